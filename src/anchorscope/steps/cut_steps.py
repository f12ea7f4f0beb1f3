"""The steps that cut: interventions scored by the probes, states under the cuts, and what is fitted on those anew."""

from collections.abc import Callable, Sequence
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from anchorscope.answers.choose import NEEDED
from anchorscope.artefacts.step import Source, Step
from anchorscope.catalogue import KNOCKOUT
from anchorscope.engine.sequences import SITES
from anchorscope.evidence.effects import CutStates, Effect, Measurements, measure, measured_places, refuse_no_ops
from anchorscope.evidence.tables import first_curves
from anchorscope.interventions.cuts import of_experiments
from anchorscope.interventions.intervention import Intervention, Setting
from anchorscope.kept_states import CLEAN as CLEAN_RUN
from anchorscope.kept_states import KeptStates
from anchorscope.plan.interventions import PlannedRuns, passes_of, plan_experiment
from anchorscope.plan.passes import Place
from anchorscope.probes.crossfit import permuted_areas, permuted_truth, refit_logits
from anchorscope.question_share.principal import default_directions, principal_states
from anchorscope.stats.streams import stream
from anchorscope.steps.formats import ARRAYS, MEASUREMENTS, TENSORS
from anchorscope.steps.job import FIT_LIBRARIES, MODEL_LIBRARIES
from anchorscope.steps.measurement_steps import MeasurementSteps


class CutSteps(MeasurementSteps):
    """One dataset of a run, its interventions made."""

    # Interventions.

    @cached_property
    def setting(self) -> Setting:
        """What interventions are given beside the items."""
        job = self.job
        return Setting(
            job.positions,
            job.recipe.edges,
            job.recipe.seed,
            job.writer,
            job.recipe.evidence_items,
            job.planner.context,
            self.masses,
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
        made_from = self.job.made_from(2, MODEL_LIBRARIES, *options)
        parents: list[Step[Any] | Source] = [
            self.probes,
            self.clean_scores,
            self.tokens,
            self.labels,
            self.job.model,
            *([self.attention_mass] if any(one.by_attention for one in registered) else []),
        ]
        return self._step(f"effects-{experiment}", parents, made_from, MEASUREMENTS, partial(self._measure, experiment))

    def _measure(self, experiment: str) -> Measurements:
        planned, missing = plan_experiment(
            self._interventions(experiment), self.used_items, self.setting, self.job.planner.windows, NEEDED
        )
        effects, states = self._run(planned, self._draw_chart if experiment == KNOCKOUT else lambda _: None)
        refuse_no_ops(effects, self.clean_scores.value)
        if states:
            self.principal.put(self._reduced(states))
            self.cut_states.put(self._chosen(states))
        return Measurements(effects, missing)

    def _run(
        self, planned: Sequence[PlannedRuns], after_pass: Callable[[Sequence[Effect]], None] = lambda effects: None
    ) -> tuple[list[Effect], CutStates]:
        job = self.job
        passes = passes_of(planned, self.used_items, self.setting, job.planner, self._is_compiled())
        return measure(
            job.executor, passes, self.scoring, self.setting, self._measured_places, job.progress, after_pass
        )

    def _draw_chart(self, effects: Sequence[Effect]) -> None:
        """The first chart, of what there is so far: it is there long before the controls and the report."""
        job = self.job
        if job.first_chart is None:
            return
        place = (job.recipe.site, job.recipe.position)
        measured = measured_places(
            self.splits, self.groups, job.positions, self.probes.value, self.clean_scores.value, effects
        )[place]
        variants = {one.intervention: one.variant for one in effects}
        curves = first_curves(job.record.identity.name, self.name, place, measured, variants, self.weights)
        layers = tuple(self.probes.value["/".join(place)].reference[0].tolist())
        job.first_chart.draw(self.name, curves, layers, job.record.identity.n_layers)

    @property
    def all_places(self) -> list[Place]:
        """Every position and site."""
        return [(position, site) for position in range(len(self.job.positions)) for site in range(len(SITES))]

    @property
    def cut_places(self) -> list[Place]:
        """Where states under cuts are kept: at the headline, or everywhere."""
        return self.all_places if "states-cut" in self.job.recipe.keep else [self.job.headline]

    def _measured_places(self, intervention: Intervention) -> list[Place]:
        """Where states under a cut are measured: the knockout's everywhere, those of its controls at the headline."""
        return self.all_places if intervention.name == KNOCKOUT else self.cut_places

    def _chosen(self, states: CutStates) -> dict[str, Tensor]:
        """States at the places where they are kept."""
        where = [self.all_places.index(place) for place in self.cut_places]
        return {name: found[where] if len(found) > len(where) else found for name, found in states.items()}

    # Principal directions.

    @property
    def n_directions(self) -> int:
        """Principal directions that states are reduced to for the question share."""
        n_items, width = len(self.used_items), self.job.record.identity.d_model
        asked = self.job.recipe.directions or default_directions(n_items, width)
        return min(asked, n_items - 1, width)  # there are no more

    @cached_property
    def principal(self) -> Step[dict[str, Tensor]]:
        """Clean and cut states along their principal directions, [place, layer, item, direction]; large as well."""
        made_from = self.job.made_from(
            2,
            MODEL_LIBRARIES,
            "edges",
            "seed",
            "random_cuts",
            positions=self.job.positions,
            headline=list(self.job.headline),
            directions=self.n_directions,
            device=self.job.fits.device,
        )
        parents = (self.clean, self.attention_mass)
        return self._step("principal-states", parents, made_from, TENSORS, self._run_principal, large=True)

    def _run_principal(self) -> dict[str, Tensor]:
        states = self._run_keeping()
        if not self.cut_states.is_kept:
            self.cut_states.put(self._chosen(states))
        return self._reduced(states)

    def _reduced(self, states: CutStates) -> dict[str, Tensor]:
        """Clean and cut states along their own principal directions; those of controls at the headline only."""
        everything = {CLEAN_RUN: self.clean.value.states.flatten(0, 1), **states}
        found = {}
        for name, one in everything.items():
            if name not in (CLEAN_RUN, KNOCKOUT) and len(one) > 1:
                one = one[[self.all_places.index(self.job.headline)]]
            title = f"principal directions: {name}"
            reduced = self.job.fits(principal_states, one.flatten(0, 1), self.n_directions, title=title)
            found[name] = reduced.unflatten(0, one.shape[:2])
        return found

    # States under the cuts.

    def headline_cut_states(self) -> dict[str, Tensor]:
        """Those at the headline, [layer, item, d_model] each."""
        place = self.cut_places.index(self.job.headline)
        return {name: states[place] for name, states in self.cut_states.value.items()}

    @cached_property
    def cut_states(self) -> Step[dict[str, Tensor]]:
        """States under the interventions that keep them, [place, layer, item, d_model]; large, as the clean ones."""
        places = [list(place) for place in self.cut_places]
        made_from = self.job.made_from(
            3, MODEL_LIBRARIES, "edges", "seed", "random_cuts", positions=self.job.positions, places=places
        )
        parents = (self.tokens, self.labels, self.attention_mass, self.job.model)
        return self._step("cut-states", parents, made_from, TENSORS, self._run_cut_states, large=True)

    def _run_cut_states(self) -> dict[str, Tensor]:
        """Only where the log-odds are there and the states are not: another site, or a run that is extended."""
        keeping = self._keeping
        kept = {one.draw_name: self._kept_whole(one.draw_name, self.cut_states.key) for one in keeping}
        if all(states is not None for states in kept.values()):
            return {name: states.flatten(0, 1) for name, states in kept.items() if states is not None}
        states = self._run_keeping()
        if not self.principal.is_kept:
            self.principal.put(self._reduced(states))
        return self._chosen(states)

    def _run_keeping(self) -> CutStates:
        planned, _ = plan_experiment(self._keeping, self.used_items, self.setting, self.job.planner.windows, 0)
        return self._run(planned)[1]

    def kept(self) -> list[KeptStates]:
        """The states that the run keeps."""
        job, found = self.job, []
        ids = tuple(item.item_id for item in self.used_items)
        if "states" in job.recipe.keep:
            states = self.clean.value.states
            found.append(KeptStates(self.name, CLEAN_RUN, states, job.positions, self.kept_layers, ids, self.clean.key))
        if "states-cut" in job.recipe.keep:
            for name, cut in self.cut_states.value.items():
                states = cut.unflatten(0, (len(job.positions), len(SITES)))
                key = self.cut_states.key
                found.append(KeptStates(self.name, name, states, job.positions, self.kept_layers, ids, key))
        return found

    @cached_property
    def refits(self) -> Step[dict[str, NDArray[np.floating]]]:
        """Out-of-fold log-odds of probes trained on the cut states, [layer, item]."""
        options, device = ("folds", "seed", "site", "position"), self.job.fits.device
        made_from = self.job.made_from(2, FIT_LIBRARIES, *options, device=device)
        return self._step("refits", (self.cut_states, self.labels), made_from, ARRAYS, self._refit)

    def _refit(self) -> dict[str, NDArray[np.floating]]:
        job, states = self.job, self.headline_cut_states()
        first = [one.name for one in self._keeping if one.draw == 0]
        return {name: job.fits(refit_logits, name, states[name], self.splits, title=f"refit {name}") for name in first}

    @cached_property
    def permuted_refits(self) -> Step[dict[str, NDArray[np.floating]]]:
        """AUC of probes trained on the cut states and permuted labels, [permutation]: what chance is for the refit."""
        options, device = ("folds", "seed", "site", "position"), self.job.fits.device
        made_from = self.job.made_from(1, FIT_LIBRARIES, *options, device=device)
        parents = (self.cut_states, self.probes, self.labels)
        return self._step("permuted-refits", parents, made_from, ARRAYS, self._permute)

    def _permute(self) -> dict[str, NDArray[np.floating]]:
        job, states = self.job, self.headline_cut_states()[KNOCKOUT]
        reference = self.probes.value[f"{job.recipe.site}/{job.recipe.position}"].reference[0]
        rng = stream(job.recipe.seed, "permuted labels", self.name)
        labels = permuted_truth(self.splits, rng)
        found = job.fits(permuted_areas, states, self.splits, reference, labels, title="permuted labels")
        return {KNOCKOUT: found}
