"""The steps that measure: clean states, probes, interventions scored by them, and probes fitted anew on cut states."""

from collections.abc import Sequence
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from anchorscope.artefacts.formats import (
    ARRAY,
    ARRAYS,
    CLEAN_STATES,
    FINAL_PROBES,
    MEASUREMENTS,
    PROBE_SETS,
    TENSORS,
    records,
)
from anchorscope.artefacts.index import damage
from anchorscope.artefacts.kept_states import CLEAN as CLEAN_RUN
from anchorscope.artefacts.kept_states import (
    KeptStates,
    kept_bytes,
    parse_layers,
    place_of,
    read_whole,
    refuse_full_disk,
)
from anchorscope.artefacts.step import Source, Step
from anchorscope.catalogue import KNOCKOUT
from anchorscope.engine.sequences import SITES
from anchorscope.evidence.clean import CleanStates, run_clean
from anchorscope.evidence.effects import (
    CutStates,
    Effect,
    Measurements,
    Scoring,
    measure,
    refit_logits,
    refuse_no_ops,
    score_states,
)
from anchorscope.evidence.permuted_labels import permuted_areas
from anchorscope.interventions.intervention import Intervention, Setting
from anchorscope.interventions.registry import of_experiments, with_draws
from anchorscope.plan.interventions import PlannedRuns, passes_of, plan_experiment
from anchorscope.plan.passes import Place
from anchorscope.probes.crossfit import MIN_PER_CLASS, ProbeSet, fit_probes
from anchorscope.probes.final_probe import FinalProbe, fit_final_probes
from anchorscope.stats.streams import priorities, stream
from anchorscope.steps.attention_steps import AttentionSteps
from anchorscope.steps.job import FIT_LIBRARIES, MODEL_LIBRARIES


class MeasurementSteps(AttentionSteps):
    """One dataset of a run, measured."""

    @cached_property
    def clean(self) -> Step[CleanStates]:
        """States of the clean pass; large, so that they are dropped at the end unless they are to be kept."""
        made_from = self.job.made_from(1, MODEL_LIBRARIES, positions=self.job.positions)
        parents = (self.labels, self.tokens, self.job.model)
        return self._step("clean-states", parents, made_from, CLEAN_STATES, self._run_clean, large=True)

    def _run_clean(self) -> CleanStates:
        job = self.job
        kept = self._kept_whole(CLEAN_RUN, self.clean.key)
        if kept is not None and self.log_probs.is_kept:
            return CleanStates(kept, self.log_probs.value)
        self._tell_size()
        return run_clean(job.executor, job.planner, self.used_items, job.positions, job.progress, self._is_compiled())

    @property
    def kept_layers(self) -> tuple[int, ...]:
        """The layers whose states are kept, where any are."""
        return parse_layers(self.job.recipe.keep_layers, self.job.record.identity.n_layers)

    def _kept_whole(self, intervention: str, key: str) -> Tensor | None:
        """States of an earlier run in this folder, if they were kept whole and are what was written."""
        folder, name = self.job.folder, place_of(self.name, intervention)
        known = folder.index.results.get(name)
        if known is None or damage(folder.path, {name: known}) is not None:
            return None
        return read_whole(folder.path / name, key, self.job.record.identity.n_layers)

    def _tell_size(self) -> None:
        """How much room kept states will take is told before they are made."""
        job, keep = self.job, self.job.recipe.keep
        n_files = ("states" in keep) + len(self._keeping) * ("states-cut" in keep)
        if n_files:
            identity = job.record.identity
            size = kept_bytes(
                n_files, len(job.positions), len(self.kept_layers), len(self.used_items), identity.d_model,
                getattr(torch, identity.dtype).itemsize,
            )  # fmt: skip
            refuse_full_disk(job.folder.path, size)
            of = f"{', '.join(keep)} of {len(self.used_items)} items"
            job.progress.note(f"{self.name}: {of} take {size / 1e6:,.1f} MB in the run folder")

    def _is_compiled(self) -> bool:
        own = sum(len(item.located.input_ids) - item.located.prefix_length for item in self.used_items)
        return self.job.planner.worth_compiling(own * (1 + len(self._interventions("knockout"))))

    def _interventions(self, experiment: str) -> list[Intervention]:
        return with_draws(of_experiments([experiment]), self.job.recipe.random_cuts)

    @property
    def _keeping(self) -> list[Intervention]:
        """The interventions whose states are kept, every draw of each."""
        return [one for one in self._interventions("knockout") if one.keeps_states]

    @cached_property
    def log_probs(self) -> Step[list[tuple[float, ...]]]:
        """How likely the model finds every token of the answers."""
        form = records(list[tuple[float, ...]])
        return self._step("log-probs", (self.clean,), self.job.made_from(1, ()), form,
                          lambda: self.clean.value.log_probs)  # fmt: skip

    @cached_property
    def probes(self) -> Step[dict[str, ProbeSet]]:
        """The cross-fitted probes of every site and position."""
        made_from = self.job.made_from(2, FIT_LIBRARIES, "folds", "seed", device=self.job.solver)
        return self._step("probes", (self.clean,), made_from, PROBE_SETS, self._fit)

    def _fit(self) -> dict[str, ProbeSet]:
        states = self.clean.value.states.flatten(0, 1)
        fitted = fit_probes(states, self.splits, self.place_names, self.job.solver, self.job.progress)
        return dict(zip(self.place_names, fitted, strict=True))

    @cached_property
    def final_probes(self) -> Step[dict[str, FinalProbe]]:
        """Probes that learn from all items, for use on new ones: at every site and position."""
        made_from = self.job.made_from(2, FIT_LIBRARIES, "seed", device=self.job.solver)
        return self._step("final-probes", (self.clean,), made_from, FINAL_PROBES, self._fit_final)

    def _fit_final(self) -> dict[str, FinalProbe]:
        ids = [item.item_id for item in self.used_items]
        order = priorities(self.job.recipe.seed, "final probe", ids)
        states = self.clean.value.states.flatten(0, 1)
        fitted = fit_final_probes(
            states, self.splits.strata, self.groups, self.place_names, order, self.job.solver, self.job.progress
        )
        return dict(zip(self.place_names, fitted, strict=True))

    @property
    def place_names(self) -> list[str]:
        """Every site and position, as probes are filed under."""
        return [f"{site}/{position}" for position in self.job.positions for site in SITES]

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
        return Setting(
            job.positions, job.recipe.edges, job.recipe.seed, job.writer, job.recipe.evidence_items, self.masses
        )

    @cached_property
    def effects(self) -> dict[str, Step[Measurements]]:
        """Log-odds under the interventions of each experiment."""
        return {name: self._effects(name) for name in self.job.recipe.evidence if of_experiments([name])}

    def _effects(self, experiment: str) -> Step[Measurements]:
        registered = of_experiments([experiment])
        options = ["edges", "seed"]
        if any(one.many_passes or one.rewrite is not None for one in registered):
            options.append("evidence_items")
        if any(one.repeats for one in registered):
            options.append("random_cuts")
        made_from = self.job.made_from(1, MODEL_LIBRARIES, *options)
        parents: list[Step[Any] | Source] = [
            self.probes, self.clean_scores, self.tokens, self.labels, self.job.model,
            *([self.attention_mass] if any(one.by_attention for one in registered) else []),
        ]  # fmt: skip
        return self._step(f"effects-{experiment}", parents, made_from, MEASUREMENTS, partial(self._measure, experiment))

    def _measure(self, experiment: str) -> Measurements:
        planned, missing = plan_experiment(
            self._interventions(experiment), self.used_items, self.setting, self.job.planner.windows, 2 * MIN_PER_CLASS
        )
        effects, states = self._run(planned)
        refuse_no_ops(effects, self.clean_scores.value)
        if states:
            self.cut_states.put(dict(states))
        return Measurements(effects, missing)

    def _run(self, planned: Sequence[PlannedRuns]) -> tuple[list[Effect], CutStates]:
        job = self.job
        passes = passes_of(planned, self.used_items, self.setting, job.planner, self._is_compiled())
        return measure(job.executor, passes, self.scoring, self.setting, self.cut_places, job.progress)

    @property
    def cut_places(self) -> list[Place]:
        """Where states under the knockout and the random control are kept: at the headline, or everywhere."""
        if "states-cut" not in self.job.recipe.keep:
            return [self.job.headline]
        return [(position, site) for position in range(len(self.job.positions)) for site in range(len(SITES))]

    def headline_cut_states(self) -> dict[str, Tensor]:
        """Those at the headline, [layer, item, d_model] each."""
        place = self.cut_places.index(self.job.headline)
        return {name: states[place] for name, states in self.cut_states.value.items()}

    @cached_property
    def cut_states(self) -> Step[dict[str, Tensor]]:
        """States under the interventions that keep them, [place, layer, item, d_model]; large, as the clean ones."""
        places = [list(place) for place in self.cut_places]
        made_from = self.job.made_from(
            2, MODEL_LIBRARIES, "edges", "seed", "random_cuts", positions=self.job.positions, places=places
        )
        parents = (self.tokens, self.labels, self.attention_mass, self.job.model)
        return self._step("cut-states", parents, made_from, TENSORS, self._run_cut_states, large=True)

    def _run_cut_states(self) -> dict[str, Tensor]:
        """Only where the log-odds are there and the states are not: another site, or a run that is extended."""
        keeping = self._keeping
        kept = {one.draw_name: self._kept_whole(one.draw_name, self.cut_states.key) for one in keeping}
        if all(states is not None for states in kept.values()):
            return {name: states.flatten(0, 1) for name, states in kept.items() if states is not None}
        planned, _ = plan_experiment(keeping, self.used_items, self.setting, self.job.planner.windows, 0)
        return dict(self._run(planned)[1])

    def kept(self) -> list[KeptStates]:
        """The states that the run keeps."""
        job, found = self.job, []
        ids = tuple(item.item_id for item in self.used_items)
        if "states" in job.recipe.keep:
            states = self.clean.value.states
            found.append(
                KeptStates(self.name, CLEAN_RUN, states, job.positions, self.kept_layers, ids, self.clean.key)
            )
        if "states-cut" in job.recipe.keep:
            for name, cut in self.cut_states.value.items():
                states = cut.unflatten(0, (len(job.positions), len(SITES)))
                key = self.cut_states.key
                found.append(KeptStates(self.name, name, states, job.positions, self.kept_layers, ids, key))
        return found

    @cached_property
    def refits(self) -> Step[dict[str, NDArray[np.floating]]]:
        """Out-of-fold log-odds of probes trained on the cut states, [layer, item]."""
        made_from = self.job.made_from(2, FIT_LIBRARIES, "folds", "seed", "site", "position", device=self.job.solver)
        return self._step("refits", (self.cut_states, self.labels), made_from, ARRAYS, self._refit)

    def _refit(self) -> dict[str, NDArray[np.floating]]:
        job, states = self.job, self.headline_cut_states()
        first = [one.name for one in self._keeping if one.draw == 0]
        return {name: refit_logits(name, states[name], self.splits, job.progress, job.solver) for name in first}

    @cached_property
    def permuted_refits(self) -> Step[dict[str, NDArray[np.floating]]]:
        """AUC of probes trained on the cut states and permuted labels, [permutation]: what chance is for the refit."""
        made_from = self.job.made_from(1, FIT_LIBRARIES, "folds", "seed", "site", "position", device=self.job.solver)
        parents = (self.cut_states, self.probes, self.labels)
        return self._step("permuted-refits", parents, made_from, ARRAYS, self._permute)

    def _permute(self) -> dict[str, NDArray[np.floating]]:
        job, states = self.job, self.headline_cut_states()[KNOCKOUT]
        reference = self.probes.value[f"{job.recipe.site}/{job.recipe.position}"].reference[0]
        rng = stream(job.recipe.seed, "permuted labels", self.name)
        return {KNOCKOUT: permuted_areas(states, self.splits, reference, rng, torch.device(job.solver), job.progress)}
