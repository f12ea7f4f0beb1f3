"""The steps that measure clean runs: states, probes, and their scores."""

from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from anchorscope.artefacts.sealed_folder import damage
from anchorscope.artefacts.step import Step
from anchorscope.catalogue import DETECTION_RUNS
from anchorscope.engine.capture import AttentionMass
from anchorscope.engine.sequences import SITES
from anchorscope.evidence.effects import CleanRun, CleanStates, Scoring, run_clean
from anchorscope.interventions.cuts import of_experiments, with_draws
from anchorscope.interventions.intervention import Intervention
from anchorscope.kept_states import CLEAN as CLEAN_RUN
from anchorscope.kept_states import kept_bytes, parse_layers, place_of, read_whole, refuse_full_disk
from anchorscope.probes.crossfit import FinalProbe, ProbeSet, fit_final_probes, fit_probes, score_clean
from anchorscope.stats.estimate import group_weights
from anchorscope.stats.streams import priorities, stream
from anchorscope.steps.formats import ARRAY, CLEAN_STATES, FINAL_PROBES, PROBE_SETS, records
from anchorscope.steps.item_steps import ItemSteps
from anchorscope.steps.job import FIT_LIBRARIES, MODEL_LIBRARIES


class MeasurementSteps(ItemSteps):
    """One dataset of a run, measured."""

    _size_is_told = False
    question_only: Tensor | None = None
    """States before the answer that the clean pass of this process brought, until somebody takes them."""

    @cached_property
    def clean(self) -> Step[CleanStates]:
        """States of the clean pass; large, so that they are dropped at the end unless they are to be kept."""
        made_from = self.job.made_from(1, MODEL_LIBRARIES, positions=self.job.positions)
        parents = (self.labels, self.tokens, self.job.model)
        return self._step("clean-states", parents, made_from, CLEAN_STATES, self._run_clean, large=True)

    def _run_clean(self) -> CleanStates:
        kept = self._kept_whole(CLEAN_RUN, self.clean.key)
        if kept is not None and self.log_probs.is_kept:
            return CleanStates(kept, self.log_probs.value)
        self._tell_size()
        found = self.run_items()
        if not self.attention_mass.is_kept:
            self.attention_mass.put(found.attention)
        self.question_only = found.question_only
        return found.clean

    def run_items(self) -> CleanRun:
        """The clean pass: states, attention, and states before the answer; all of them the same whenever it is run."""
        job = self.job
        return run_clean(
            job.executor,
            job.planner,
            self.used_items,
            job.positions,
            job.progress,
            self._is_compiled(),
            job.recipe.edges,
            job.headline[1],
        )

    @cached_property
    def attention_mass(self) -> Step[list[AttentionMass]]:
        """How much attention each token of every used item receives in the clean run, which brings it along."""
        made_from = self.job.made_from(2, MODEL_LIBRARIES, "edges")
        parents = (self.labels, self.tokens, self.job.model)
        make = lambda: self.run_items().attention  # noqa: E731 - only where the states are there and this is not
        return self._step("attention-mass", parents, made_from, records(list[AttentionMass]), make)

    def masses(self) -> dict[str, AttentionMass]:
        """The same by the items' names."""
        if not self.attention_mass.is_kept:
            self.clean.value  # noqa: B018 - made now, it brings the attention along
        names = [item.item_id for item in self.used_items]
        return dict(zip(names, self.attention_mass.value, strict=True))

    @property
    def kept_layers(self) -> tuple[int, ...]:
        """The layers whose states are kept, where any are."""
        return parse_layers(self.job.recipe.keep_layers, self.job.record.identity.n_layers)

    def _kept_whole(self, intervention: str, key: str) -> Tensor | None:
        """States of an earlier run in this folder, if they were kept whole and are what was written."""
        folder, name = self.job.folder, place_of(self.name, intervention)
        known = folder.results.get(name)
        if known is None or damage(folder.path, {name: known}) is not None:
            return None
        return read_whole(folder.path / name, key, self.job.record.identity.n_layers)

    def _tell_size(self) -> None:
        """How much room kept states will take is told, once, before any states are made, if there is room for them."""
        job, keep = self.job, self.job.recipe.keep
        n_files = ("states" in keep) + len(self._keeping) * ("states-cut" in keep)
        n_places = n_files * len(job.positions) * len(SITES) + len(DETECTION_RUNS) * ("detection" in keep)
        if self._size_is_told:
            return
        self._size_is_told = True
        identity, n_items = job.record.identity, len(self.used_items)
        width = identity.d_model, getattr(torch, identity.dtype).itemsize
        size = kept_bytes(n_places, len(self.kept_layers), n_items, *width)
        passing = kept_bytes(len(job.positions) * len(SITES), identity.n_layers, n_items, *width)
        refuse_full_disk(job.folder.path, passing, size)
        if size:
            of = f"{', '.join(keep)} of {n_items} items"
            job.progress.note(f"{self.name}: {of} take {size / 1e6:,.1f} MB in the run folder")

    def _is_compiled(self) -> bool:
        own = sum(len(item.located.input_ids) - item.located.prefix_length for item in self.used_items)
        return self.job.planner.worth_compiling(own * (1 + len(self._interventions("knockout"))))

    def _interventions(self, experiment: str) -> list[Intervention]:
        number = self.job.recipe.random_cuts
        assert number is not None, "the number of random cuts is chosen before any is made"
        return with_draws(of_experiments([experiment]), number)

    @property
    def _keeping(self) -> list[Intervention]:
        """The interventions whose states are kept, every draw of each."""
        return [one for one in self._interventions("knockout") if one.keeps_states]

    @cached_property
    def log_probs(self) -> Step[list[tuple[float, ...]]]:
        """How likely the model finds every token of the answers."""
        form = records(list[tuple[float, ...]])
        return self._step(
            "log-probs", (self.clean,), self.job.made_from(1, ()), form, lambda: self.clean.value.log_probs
        )

    @cached_property
    def probes(self) -> Step[dict[str, ProbeSet]]:
        """The cross-fitted probes of every site and position."""
        made_from = self.job.made_from(2, FIT_LIBRARIES, "folds", "seed", device=self.job.fits.device)
        return self._step("probes", (self.clean,), made_from, PROBE_SETS, self._fit)

    def _fit(self) -> dict[str, ProbeSet]:
        states = self.clean.value.states.flatten(0, 1)
        fitted = self.job.fits(fit_probes, states, self.splits, self.place_names)
        return dict(zip(self.place_names, fitted, strict=True))

    @cached_property
    def final_probes(self) -> Step[dict[str, FinalProbe]]:
        """Probes that learn from all items, for use on new ones: at every site and position."""
        made_from = self.job.made_from(2, FIT_LIBRARIES, "seed", device=self.job.fits.device)
        return self._step("final-probes", (self.clean,), made_from, FINAL_PROBES, self._fit_final)

    def _fit_final(self) -> dict[str, FinalProbe]:
        ids = [item.item_id for item in self.used_items]
        order = priorities(self.job.recipe.seed, "final probe", ids)
        states = self.clean.value.states.flatten(0, 1)
        fitted = self.job.fits(
            fit_final_probes, states, self.splits.strata, self.groups, self.place_names, order, title="final probes"
        )
        return dict(zip(self.place_names, fitted, strict=True))

    @cached_property
    def weights(self) -> NDArray[np.float32]:
        """Bootstrap weights over groups, [resample, item]."""
        recipe = self.job.recipe
        return group_weights(self.groups, recipe.bootstrap, stream(recipe.seed, "bootstrap", self.name))

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
        made_from = self.job.made_from(1, FIT_LIBRARIES, device=self.job.fits.device)
        return self._step("clean-scores", (self.clean, self.probes), made_from, ARRAY, self._score_clean)

    def _score_clean(self) -> NDArray[np.float32]:
        scoring = self.scoring
        states = self.clean.value.states
        return self.job.fits(score_clean, states, scoring.sets, scoring.folds, title="score clean states")
