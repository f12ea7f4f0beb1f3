"""The steps of the nulls: what probes make of states in which there should be little to find."""

from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from anchorscope.artefacts.step import MadeFrom, Step
from anchorscope.evidence.further_runs import (
    ANSWER_ONLY,
    QUESTION_ONLY,
    RANDOM_WEIGHTS,
    answer_only_states,
    random_weight_states,
)
from anchorscope.question_share.principal import principal_states
from anchorscope.question_share.shares import ShareItems, held_out_scores, knockout_share
from anchorscope.steps.cut_steps import CutSteps
from anchorscope.steps.formats import ARRAYS
from anchorscope.steps.job import MODEL_LIBRARIES


class NullSteps(CutSteps):
    """One dataset of a run, with its nulls."""

    @cached_property
    def share_items(self) -> ShareItems:
        """The used items as the question share sees them."""
        return ShareItems(
            self.splits.labels,
            self.groups,
            self.splits.folds,
            [item.question.relation for item in self.used_items],
            [item.item_id for item in self.used_items],
            self.job.recipe.seed,
        )

    @cached_property
    def null_scores(self) -> Step[dict[str, NDArray[np.floating]]]:
        """Log-odds by probes that read the question only or the answer only, at the headline place, [layer, item]."""
        parents = (self.labels, self.tokens, self.job.model)
        return self._step("null-scores", parents, self._made_from(2), ARRAYS, self._score_nulls)

    def _made_from(self, epoch: int) -> MadeFrom:
        return self.job.made_from(
            epoch,
            MODEL_LIBRARIES,
            "folds",
            "edges",
            "seed",
            positions=self.job.positions,
            headline=list(self.job.headline),
            directions=self.n_directions,
            device=self.job.fits.device,
        )

    def _score_nulls(self) -> dict[str, NDArray[np.floating]]:
        return {
            name: self.job.fits(held_out_scores, self._along_directions(states), self.share_items, name, title=name)
            for name, states in self.partial_states().items()
        }

    def partial_states(self) -> dict[str, Tensor]:
        """States of the question alone and of the answer alone, [1, layer, item, d_model]."""
        job = self.job
        question, self.question_only = self.question_only, None
        answer = answer_only_states(
            job.executor, job.planner, self.used_items, self.setting, job.headline, job.progress
        )
        return {QUESTION_ONLY: self.run_items().question_only if question is None else question, ANSWER_ONLY: answer}

    def _along_directions(self, states: Tensor) -> Tensor:
        """States [1, layer, item, d_model] along their principal directions, [layer, item, direction]."""
        return self.job.fits(principal_states, states[0], self.n_directions, title="principal directions")

    @cached_property
    def lost_without_knowledge(self) -> Step[dict[str, NDArray[np.floating]]]:
        """What the knockout takes from random weights of the model's shape; made where asked for."""
        parents = (self.labels, self.tokens, self.job.model)
        return self._step(f"lost-{RANDOM_WEIGHTS}", parents, self._made_from(1), ARRAYS, self._lose_without_knowledge)

    def _lose_without_knowledge(self) -> dict[str, NDArray[np.floating]]:
        job = self.job
        states = random_weight_states(
            job.executor, job.planner, self.used_items, self.setting, job.headline, job.progress
        )
        clean, cut = (self._along_directions(one) for one in states)
        found = job.fits(knockout_share, clean, cut, self.share_items, RANDOM_WEIGHTS, title="question share")
        return {f"{RANDOM_WEIGHTS}/{part}": array for part, array in found.stored().items()}
