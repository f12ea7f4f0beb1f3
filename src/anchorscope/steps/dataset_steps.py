"""The last steps of a dataset: tables, experiments, and its part of the results."""

from dataclasses import replace
from functools import cached_property
from typing import Any

import polars as pl

from anchorscope.answers.choose import PER_CLASS
from anchorscope.answers.generate import do_not_fit
from anchorscope.answers.label import balanced_by, grouped_by, require_enough
from anchorscope.artefacts.step import Step
from anchorscope.evidence.effects import measured_places, with_log_probs
from anchorscope.evidence.measured import Measured
from anchorscope.evidence.tables import Evidence, evidence_tables
from anchorscope.experiments.experiment import Experiment, ExperimentInputs, Found, chosen_experiments
from anchorscope.files import canonical_hash
from anchorscope.items import Item
from anchorscope.plan.interventions import Missing
from anchorscope.probes.crossfit import PROBES
from anchorscope.result_tables import (
    confidence,
    counts_frame,
    effects_frame,
    experiment_items_frame,
    experiments_frame,
    items_frame,
    probe_tensors,
    unavailable_frame,
    unused_frames,
)
from anchorscope.results import DatasetResult, LeftOut
from anchorscope.steps.detection_steps import DetectionSteps
from anchorscope.steps.formats import FOUND, FRAMES
from anchorscope.steps.job import MODEL_LIBRARIES, TABLE_LIBRARIES


class DatasetSteps(DetectionSteps):
    """One dataset of a run, from its questions to its results."""

    @cached_property
    def measured(self) -> dict[tuple[str, str], Measured]:
        """Log-odds before and after every intervention, per (site, position)."""
        found = [effect for step in self.effects.values() for effect in step.value.effects]
        return measured_places(
            self.splits, self.groups, self.job.positions, self.probes.value, self.clean_scores.value, found
        )

    @cached_property
    def tables(self) -> Step[dict[str, pl.DataFrame]]:
        """Curves, scores, pathways and summary."""
        options = ("site", "position", "bootstrap", "seed")
        model = self.job.record.identity.name  # it stands in the tables, and the model's key does not know it
        made_from = self.job.made_from(4, TABLE_LIBRARIES, *options, device=self.job.fits.device, model=model)
        parents: list[Step[Any]] = [*self.effects.values(), self.clean_scores, self.probes, self.refits]
        parents += [self.permuted_refits, self.labels, self.log_probs]
        return self._step(
            "tables",
            parents,
            made_from,
            FRAMES,
            lambda: self.job.fits(evidence_tables, self._evidence(), title="evidence"),
        )

    def _evidence(self) -> Evidence:
        answers = with_log_probs([item.answer for item in self.used_items], self.log_probs.value)
        sure = [confidence(answer) for answer in answers]
        return Evidence(
            model=self.job.record.identity.name,
            dataset=self.name,
            item_ids=[item.item_id for item in self.used_items],
            questions=[item.question.question for item in self.used_items],
            answers=[answer.text for answer in answers],
            relations=[item.question.relation for item in self.used_items],
            confidence_mean=[mean for mean, _ in sure],
            confidence_min=[least for _, least in sure],
            variants={one.intervention: one.variant for step in self.effects.values() for one in step.value.effects},
            places=self.measured,
            refits=self.refits.value,
            headline=(self.job.recipe.site, self.job.recipe.position),
            weights=self.weights,
            permuted=self.permuted_refits.value,
        )

    @cached_property
    def experiments(self) -> dict[str, Step[Found]]:
        """The experiments that are more than interventions."""
        return {one.name: self._experiment(one) for one in chosen_experiments(self.job.recipe.evidence)}

    def _experiment(self, experiment: Experiment) -> Step[Found]:
        options = ("site", "position", "edges", "evidence_items", "window", "max_new_tokens", "bootstrap", "seed")
        made_from = self.job.made_from(2, (*MODEL_LIBRARIES, "numpy", "scipy"), *options, device=self.job.solver)
        parents = (self.effects["knockout"], self.log_probs, self.job.model)
        return self._step(
            f"experiment-{experiment.name}", parents, made_from, FOUND, lambda: experiment.run(self._inputs())
        )

    def _inputs(self) -> ExperimentInputs:
        job, (position, site) = self.job, self.job.headline
        return ExperimentInputs(
            dataset=self.name,
            items=self.items_with_log_probs,
            used=self.used,
            states=lambda: self.clean.value.states[position, site],
            cut_states=self.headline_cut_states,
            scoring=self.scoring,
            splits=self.splits,
            measured=self.measured[job.recipe.site, job.recipe.position],
            headline=job.headline,
            weights=self.weights,
            setting=self.setting,
            window=job.recipe.window,
            max_new_tokens=job.recipe.max_new_tokens,
            executor=job.executor,
            planner=job.planner,
            device=job.solver,
            progress=job.progress,
        )

    @cached_property
    def items_with_log_probs(self) -> list[Item]:
        """The items; answers that were given elsewhere have the log-probabilities of the clean pass."""
        answers = with_log_probs([item.answer for item in self.used_items], self.log_probs.value)
        items = list(self.items)
        for index, answer in zip(self.used, answers, strict=True):
            items[index] = replace(items[index], answer=answer)
        return items

    # What the run publishes.

    @property
    def result_key(self) -> str:
        """The key of all that this dataset contributes to the results."""
        steps: list[Step[Any]] = [self.tables, self.share_tables, self.final_probes, *self.experiments.values()]
        steps += [self.detection_columns, self.detection_states] if self.is_for_detection else []
        return canonical_hash([step.key for step in steps])

    def result(self) -> DatasetResult:
        """Everything that this dataset contributes to the result files."""
        job, headline = self.job, (self.job.recipe.site, self.job.recipe.position)
        too_long = do_not_fit(self.answers.value, job.planner.context)
        require_enough(self.name, self.labels.value, PER_CLASS, job.recipe.balance, too_long)
        effects = [effect for step in self.effects.values() for effect in step.value.effects]  # brings cut states along
        shared = dict(self.share_tables.value)  # its nulls are passes: whoever has come to the tables needs no model
        features, kept = self.features(), self.kept()
        tables = self.tables.value
        of_items = shared.pop("item_shares")
        found = {name: step.value for name, step in self.experiments.items()}
        missing = [one for step in self.effects.values() for one in step.value.missing]
        missing += [Missing(name, why) for name, one in found.items() for why in one.missing]
        item_ids = [item.item_id for item in self.used_items]
        folds = dict(zip(self.used.tolist(), self.splits.folds.tolist(), strict=True))
        sets = self.probes.value
        asked = [item.question for item in self.used_items]
        return DatasetResult(
            name=self.name,
            items=items_frame(self.items_with_log_probs, folds, tables["pathways"], headline, of_items),
            effects=effects_frame(self.name, item_ids, PROBES, job.positions, self.clean_scores.value, effects),
            counts=counts_frame(self.name, self.questions.value, self.items),
            tables={**tables, **shared},
            experiments=experiments_frame(job.record.identity.name, self.name, headline, found),
            experiment_items=experiment_items_frame(self.name, item_ids, found),
            unavailable=unavailable_frame(self.name, missing),
            probes=probe_tensors(self.name, PROBES, sets, self.final_probes.value),
            reference_layers=tuple(sets["/".join(headline)].reference[0].tolist()),
            balanced_by=balanced_by(asked, job.recipe.balance),
            grouped_by=grouped_by(asked, job.recipe.group_by),
            unconverged=tuple(one for fitted in sets.values() for one in fitted.unconverged),
            kept=kept,
            features=features,
            notes=(
                *((f"{self.name}: {too_long}",) if too_long else ()),
                *dict.fromkeys(note for fitted in sets.values() for note in fitted.notes),
            ),
        )

    def left_out(self, reason: str) -> LeftOut:
        """A dataset with too few answers: its items and counts."""
        rows = zip(self.questions.value.questions, self.answers.value, self.labels.value, strict=True)
        items = [Item(*row, None) for row in rows]
        return LeftOut(self.name, reason, *unused_frames(self.name, self.questions.value, items))
