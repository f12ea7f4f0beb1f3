"""The steps of the nulls: states in which there should be little to find, reduced as the run's own states are."""

import copy
from functools import cached_property

from torch import Tensor

from anchorscope.artefacts.formats import TENSORS
from anchorscope.artefacts.step import MadeFrom, Step
from anchorscope.evidence.share_nulls import RANDOM_WEIGHTS, partial_states, random_weight_states
from anchorscope.execute.executor import LocalExecutor
from anchorscope.models.language_model import LanguageModel
from anchorscope.models.shapes import build
from anchorscope.models.wrapping import wrap
from anchorscope.question_share.principal import principal_states
from anchorscope.steps.cut_steps import CutSteps
from anchorscope.steps.job import MODEL_LIBRARIES


class NullSteps(CutSteps):
    """One dataset of a run, with its nulls."""

    @cached_property
    def null_states(self) -> Step[dict[str, Tensor]]:
        """Question only and answer only, along principal directions at the headline place, [1, layer, item, …]."""
        parents = (self.labels, self.tokens, self.job.model)
        return self._step("null-states", parents, self._made_from(1), TENSORS, self._run_nulls)

    def _made_from(self, epoch: int) -> MadeFrom:
        return self.job.made_from(
            epoch, MODEL_LIBRARIES, "edges", "seed", positions=self.job.positions, headline=list(self.job.headline),
            directions=self.n_directions, device=self.job.solver,
        )  # fmt: skip

    def _run_nulls(self) -> dict[str, Tensor]:
        job = self.job
        found = partial_states(job.executor, job.planner, self.used_items, self.setting, job.headline, job.progress)
        return self._along_directions(found)

    def _along_directions(self, states: dict[str, Tensor]) -> dict[str, Tensor]:
        return {
            name: principal_states(one.flatten(0, 1), self.n_directions, self.job.solver).unflatten(0, one.shape[:2])
            for name, one in states.items()
        }

    @cached_property
    def random_weights(self) -> Step[dict[str, Tensor]]:
        """Clean and cut states through random weights of the model's shape, likewise; made where asked for."""
        parents = (self.labels, self.tokens, self.job.model)
        return self._step(f"{RANDOM_WEIGHTS}-states", parents, self._made_from(1), TENSORS, self._run_random_weights)

    def _run_random_weights(self) -> dict[str, Tensor]:
        job = self.job
        executor = LocalExecutor(self._without_knowledge, lambda tokens: None)
        states = random_weight_states(
            executor, job.planner, self.used_items, self.setting, job.headline, job.progress
        )
        return self._along_directions(states)

    def _without_knowledge(self) -> LanguageModel:
        """A model of the same shape whose weights were drawn at random."""
        lm = self.job.lm
        model = build(copy.deepcopy(lm.model.config), lm.model.dtype, lm.device).eval()
        return wrap(model, lm.tokenizer, lm.name, lm.source, random_weights=True)
