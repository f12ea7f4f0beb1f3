"""The steps that measure: clean states, probes, interventions scored by them, and probes fitted anew on cut states."""

from collections.abc import Sequence
from functools import cached_property, partial

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from anchorscope.artefacts.formats import (
    ARRAY,
    ARRAYS,
    CLEAN_STATES,
    MEASUREMENTS,
    PROBE_SETS,
    TENSORS,
    records,
)
from anchorscope.artefacts.step import Step
from anchorscope.engine.sequences import SITES
from anchorscope.evidence.clean import CleanStates, run_clean
from anchorscope.evidence.effects import CutStates, Effect, Measurements, Scoring, measure, refuse_no_ops, score_states
from anchorscope.evidence.gather import refit_logits
from anchorscope.interventions.intervention import Setting
from anchorscope.interventions.registry import of_experiments
from anchorscope.plan.interventions import PlannedRuns, passes_of, plan_experiment
from anchorscope.probes.crossfit import MIN_PER_CLASS, ProbeSet, fit_probes
from anchorscope.steps.item_steps import ItemSteps
from anchorscope.steps.job import FIT_LIBRARIES, MODEL_LIBRARIES


class MeasurementSteps(ItemSteps):
    """One dataset of a run, measured."""

    @cached_property
    def clean(self) -> Step[CleanStates]:
        """States of the clean pass; large, so that they are dropped at the end unless they are to be kept."""
        made_from = self.job.made_from(1, MODEL_LIBRARIES, positions=self.job.positions)
        parents = (self.labels, self.tokens, self.job.model)
        return self._step("clean-states", parents, made_from, CLEAN_STATES, self._run_clean, large=True)

    def _run_clean(self) -> CleanStates:
        job = self.job
        return run_clean(job.executor, job.planner, self.used_items, job.positions, job.progress, self._is_compiled())

    def _is_compiled(self) -> bool:
        own = sum(len(item.located.input_ids) - item.located.prefix_length for item in self.used_items)
        return self.job.planner.worth_compiling(own * (1 + len(of_experiments(["knockout"]))))

    @cached_property
    def log_probs(self) -> Step[list[tuple[float, ...]]]:
        """How likely the model finds every token of the answers."""
        form = records(list[tuple[float, ...]])
        return self._step("log-probs", (self.clean,), self.job.made_from(1, ()), form,
                          lambda: self.clean.value.log_probs)  # fmt: skip

    @cached_property
    def probes(self) -> Step[dict[str, ProbeSet]]:
        """The cross-fitted probes of every site and position."""
        made_from = self.job.made_from(1, FIT_LIBRARIES, "folds", "seed", device=self.job.solver)
        return self._step("probes", (self.clean,), made_from, PROBE_SETS, self._fit)

    def _fit(self) -> dict[str, ProbeSet]:
        names = [f"{site}/{position}" for position in self.job.positions for site in SITES]
        states = self.clean.value.states.flatten(0, 1)
        fitted = fit_probes(states, self.splits, names, self.job.solver, self.job.progress)
        return dict(zip(names, fitted, strict=True))

    @cached_property
    def scoring(self) -> Scoring:
        """The probes in the order of positions and sites."""
        sets = self.probes.value
        in_order = [tuple(sets[f"{site}/{position}"] for site in SITES) for position in self.job.positions]
        return Scoring(tuple(in_order), self.splits.folds)

    @cached_property
    def clean_scores(self) -> Step[NDArray[np.float32]]:
        """Log-odds of the clean states, [item, position, site, probe, layer]."""
        made_from = self.job.made_from(1, FIT_LIBRARIES, device=self.job.solver)
        return self._step("clean-scores", (self.clean, self.probes), made_from, ARRAY, self._score_clean)

    def _score_clean(self) -> NDArray[np.float32]:
        return score_states(self.scoring.scorer(self.job.solver), self.clean.value.states)

    # Interventions.

    @cached_property
    def setting(self) -> Setting:
        """What interventions are given beside the items."""
        job = self.job
        return Setting(job.positions, job.recipe.edges, job.recipe.seed, job.writer, job.recipe.evidence_items)

    @cached_property
    def effects(self) -> dict[str, Step[Measurements]]:
        """Log-odds under the interventions of each experiment."""
        return {name: self._effects(name) for name in self.job.recipe.evidence if of_experiments([name])}

    def _effects(self, experiment: str) -> Step[Measurements]:
        many = any(one.many_passes or one.rewrite is not None for one in of_experiments([experiment]))
        options = ("edges", "seed", "evidence_items") if many else ("edges", "seed")
        made_from = self.job.made_from(1, MODEL_LIBRARIES, *options)
        parents = (self.probes, self.clean_scores, self.tokens, self.labels, self.job.model)
        return self._step(f"effects-{experiment}", parents, made_from, MEASUREMENTS, partial(self._measure, experiment))

    def _measure(self, experiment: str) -> Measurements:
        planned, missing = plan_experiment(
            of_experiments([experiment]), self.used_items, self.setting, self.job.planner.windows, 2 * MIN_PER_CLASS
        )
        effects, states = self._run(planned)
        refuse_no_ops(effects, self.clean_scores.value)
        if states:
            self.cut_states.put(dict(states))
        return Measurements(effects, missing)

    def _run(self, planned: Sequence[PlannedRuns]) -> tuple[list[Effect], CutStates]:
        job = self.job
        passes = passes_of(planned, self.used_items, self.setting, job.planner, self._is_compiled())
        return measure(job.executor, passes, self.scoring, self.setting, [job.headline], job.progress)

    @cached_property
    def cut_states(self) -> Step[dict[str, Tensor]]:
        """States under the interventions that keep them, [place, layer, item, d_model]; large, as the clean ones."""
        made_from = self.job.made_from(1, MODEL_LIBRARIES, "edges", "seed", "site", "position")
        parents = (self.tokens, self.labels, self.job.model)
        return self._step("cut-states", parents, made_from, TENSORS, self._run_cut_states, large=True)

    def _run_cut_states(self) -> dict[str, Tensor]:
        """Only where the log-odds are there and the states are not: another site, or a run that is extended."""
        keeping = [one for one in of_experiments(["knockout"]) if one.keeps_states]
        planned, _ = plan_experiment(keeping, self.used_items, self.setting, self.job.planner.windows, 0)
        return dict(self._run(planned)[1])

    @cached_property
    def refits(self) -> Step[dict[str, NDArray[np.floating]]]:
        """Out-of-fold log-odds of probes trained on the cut states, [layer, item]."""
        made_from = self.job.made_from(1, FIT_LIBRARIES, "folds", "seed", device=self.job.solver)
        return self._step("refits", (self.cut_states, self.labels), made_from, ARRAYS, self._refit)

    def _refit(self) -> dict[str, NDArray[np.floating]]:
        job = self.job
        return {
            name: refit_logits(name, states[0], self.splits, job.progress, job.solver)
            for name, states in self.cut_states.value.items()
        }
