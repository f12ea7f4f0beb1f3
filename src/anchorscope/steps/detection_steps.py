"""The steps of `--keep detection`: what detectors read beside clean and cut states, made only where it is asked for."""

from dataclasses import replace
from functools import cached_property

import numpy as np
import polars as pl
from numpy.typing import NDArray
from torch import Tensor

from anchorscope.artefacts.step import Step
from anchorscope.catalogue import BOOSTS, DETECTION_RUNS, SAMPLES
from anchorscope.evidence.detection import (
    agreement_columns,
    boosted_states,
    clean_states_at,
    confidence_columns,
    truth_column,
)
from anchorscope.evidence.share_nulls import ANSWER_ONLY, QUESTION_ONLY, RANDOM_WEIGHTS
from anchorscope.execute.run_passes import run_samples
from anchorscope.kept_states import KeptStates
from anchorscope.plan.passes import SamplesPass, plan_answers
from anchorscope.schema import FEATURE_SCHEMA
from anchorscope.steps.formats import ARRAYS, TENSORS, records
from anchorscope.steps.job import MODEL_LIBRARIES
from anchorscope.steps.share_steps import ShareSteps

TEMPERATURE, TOP_P = 1.0, 1.0
"""Of the sampled answers: the model's own distribution."""


class DetectionSteps(ShareSteps):
    """One dataset of a run, with what detectors read."""

    @property
    def is_for_detection(self) -> bool:
        """Whether it is asked for."""
        return "detection" in self.job.recipe.keep

    # Numbers.

    @cached_property
    def samples(self) -> Step[list[list[str]]]:
        """Sampled answers to the questions of the used items."""
        made_from = self.job.made_from(
            1,
            MODEL_LIBRARIES,
            "prompt",
            "max_new_tokens",
            "seed",
            samples=max(SAMPLES),
            temperature=TEMPERATURE,
            top_p=TOP_P,
        )
        parents = (self.labels, self.job.model)
        return self._step("detection-samples", parents, made_from, records(list[list[str]]), self._sample)

    def _sample(self) -> list[list[str]]:
        self._tell_size()  # the first pass of detection: a disk that is too small is not noticed after all of them
        job, writer = self.job, self.job.writer()
        questions = [replace(item.question, model_answer=None) for item in self.used_items]
        asked = plan_answers(
            questions, writer.tokenizer, writer.template, job.recipe.max_new_tokens, job.planner.batch_tokens
        )
        work = SamplesPass(asked, max(SAMPLES), job.recipe.seed, TEMPERATURE, TOP_P)
        return [[one.text for one in answers] for answers in run_samples(job.executor, work, job.progress)]

    @cached_property
    def detection_columns(self) -> Step[dict[str, NDArray[np.floating]]]:
        """Numbers of the used items, by the names of features.parquet."""
        made_from = self.job.made_from(2, MODEL_LIBRARIES, "edges", "seed")
        parents = (self.samples, self.labels, self.tokens, self.attention_mass, self.job.model)
        return self._step("detection-columns", parents, made_from, ARRAYS, self._count)

    def _count(self) -> dict[str, NDArray[np.floating]]:
        job, items, samples = self.job, self.used_items, self.samples.value
        return {
            **confidence_columns(job.executor, job.planner, items, self.setting, job.progress),
            **truth_column(job.executor, job.planner, items, job.writer(), job.progress),
            **agreement_columns(items, samples),
        }

    def features(self) -> pl.DataFrame | None:
        """features.parquet; None where it is not asked for."""
        if not self.is_for_detection:
            return None
        columns = {"item_id": [item.item_id for item in self.used_items], **self.detection_columns.value}
        return pl.DataFrame({name: columns[name] for name in FEATURE_SCHEMA}, schema=FEATURE_SCHEMA)

    # States.

    @cached_property
    def detection_states(self) -> Step[dict[str, Tensor]]:
        """States at the headline place in the runs of `DETECTION_RUNS`, [layer, item, d_model]; large."""
        made_from = self.job.made_from(
            2, MODEL_LIBRARIES, "edges", positions=self.job.positions, headline=list(self.job.headline), boosts=BOOSTS
        )
        parents = (self.labels, self.tokens, self.job.model)
        return self._step("detection-states", parents, made_from, TENSORS, self._run_detection, large=True)

    def _run_detection(self) -> dict[str, Tensor]:
        kept = {name: self._kept_whole(name, self.detection_states.key) for name in DETECTION_RUNS}
        if all(states is not None for states in kept.values()):
            return {name: states[0, 0] for name, states in kept.items() if states is not None}
        self._tell_size()
        job, items = self.job, self.used_items
        partial = self.partial_states()
        found = {"answer-only": partial[ANSWER_ONLY][0], "question-only": partial[QUESTION_ONLY][0]}
        found |= boosted_states(
            job.executor, job.planner, items, self.setting, job.headline, self._is_compiled(), job.progress
        )
        if self._has_room_for_another_model():
            title = "random weights, clean"
            found[RANDOM_WEIGHTS] = clean_states_at(
                job.executor, job.planner, items, self.setting, job.headline, title, job.progress, random_weights=True
            )
        return found

    def _has_room_for_another_model(self) -> bool:
        """Random weights stand beside the model's own; where they do not fit, it is told and that run left out."""
        fits = self.job.planner.has_room_for_twin
        if not fits:
            self.job.folder.tell(
                f"{self.name}: states of {RANDOM_WEIGHTS} are left out; a second model of this size does not fit "
                f"beside the first"
            )
        return fits

    @cached_property
    def _held_partial_states(self) -> dict[str, Tensor]:
        return super().partial_states()

    def partial_states(self) -> dict[str, Tensor]:
        """Held where two steps ask for them, so that one pass serves both."""
        return self._held_partial_states if self.is_for_detection else super().partial_states()

    def kept(self) -> list[KeptStates]:
        """The states that the run keeps."""
        if not self.is_for_detection:
            return super().kept()
        job, ids = self.job, tuple(item.item_id for item in self.used_items)
        return [
            *super().kept(),
            *(
                KeptStates(
                    self.name,
                    name,
                    states[None, None],
                    (job.recipe.position,),
                    self.kept_layers,
                    ids,
                    self.detection_states.key,
                    (job.recipe.site,),
                )
                for name, states in self.detection_states.value.items()
            ),
        ]
