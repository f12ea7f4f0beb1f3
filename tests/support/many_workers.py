"""Executors for tests: every shard on a worker of its own, in an order of the test's choosing, and memory that ends."""

import copy
import pickle
from collections.abc import Callable, Sequence
from typing import Any

import torch

from anchorscope.execute.executor import Description, Executor, describe
from anchorscope.execute.worker import Part, Shard, Worker
from anchorscope.models.language_model import LanguageModel
from anchorscope.models.wrapping import wrap
from anchorscope.progress import Progress

Order = Callable[[Sequence[int]], Sequence[int]]

ORDERS: dict[str, Order] = {
    "forwards": lambda shards: shards,
    "backwards": lambda shards: shards[::-1],
    "mixed": lambda shards: [*shards[1::2], *shards[::2]],
}
"""In which order shards run."""


class ManyWorkers(Executor):
    """Every shard goes to a worker of its own, as on another machine: pickled on its way there and back."""

    def divide(self, work: Any) -> Sequence[Any]:
        return work.shards()

    def __init__(self, lm: LanguageModel, order: str = "forwards") -> None:
        self.lm, self.order = lm, ORDERS[order]
        self.shards: list[Shard] = []
        """All that were given, in their order."""
        self.told: list[int] = []
        """Every number of tokens that was lowered to."""
        self.lowered = self.told.append

    @property
    def n_layers(self) -> int:
        return self.lm.n_layers

    def describe(self) -> Description:
        return describe(self.lm)

    def map(self, shards: Sequence[Shard], progress: Progress) -> list[Part]:
        self.shards += shards
        parts = {
            index: self._run(shards[index], progress)
            for index in self.order(range(len(shards)))
        }
        return [parts[index] for index in range(len(shards))]

    def _run(self, shard: Shard, progress: Progress) -> Part:
        part: Part = pickle.loads(
            pickle.dumps(
                Worker(self.lm).run(pickle.loads(pickle.dumps(shard)), progress)
            )
        )
        return part


def with_little_memory(
    lm: LanguageModel,
    tokens: int,
    make_error: Callable[[], BaseException] = torch.OutOfMemoryError,
) -> tuple[LanguageModel, list[int]]:
    """The same model on a device that holds no more tokens than these, and how many each batch had."""
    small: LanguageModel = wrap(copy.deepcopy(lm.model), lm.tokenizer)
    seen: list[int] = []

    def check(module: Any, given: tuple[torch.Tensor, ...]) -> None:
        seen.append(given[0].numel())
        if given[0].numel() > tokens:
            raise make_error()

    small.embedding.register_forward_pre_hook(check)
    return small, seen
