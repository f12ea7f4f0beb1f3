"""Who fits probes and resamples tables: this process, or where there are workers, one of them.

Workers have the states, in files of the run folder, and the model's kind of device: both give other last digits on a
CPU than on a GPU. So a coordinator without a GPU gets the bits of a run in one process with such a GPU.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor

from anchorscope.errors import MemoryRanOut, UserError
from anchorscope.execute.executor import Executor
from anchorscope.execute.numerics import NumericsClass
from anchorscope.plan.passes import DeviceWork
from anchorscope.probes.chunks import ChunkPlan, plan_chunks
from anchorscope.progress import Progress, Silent

T = TypeVar("T")

ACCELERATOR = "cuda"
"""What every worker calls its device, or the first of several, where it is no CPU."""


def fit_device(own_device: str, workers: NumericsClass | None) -> str:
    """Where that is done: `own_device`, the device of this process, or an accelerator that only the workers have."""
    return ACCELERATOR if workers is not None and workers.on_accelerator and own_device == "cpu" else own_device


@dataclass(frozen=True)
class Solver:
    """Calls functions that take `device` and `progress` where they belong."""

    device: str
    """Where they compute: part of what their results depend on."""
    executor: Executor | None
    """Whose workers do it; None for this process."""
    progress: Progress

    def __call__(self, function: Callable[..., T], *arguments: Any, title: str = "probes") -> T:
        """What the function gives."""
        return self.each(function, [arguments], [title])[0]

    def each(self, function: Callable[..., T], calls: Sequence[tuple[Any, ...]], titles: Sequence[str]) -> list[T]:
        """What the function gives in several calls, which workers share."""
        if self.executor is None:
            return [function(*arguments, device=self.device, progress=self.progress) for arguments in calls]
        works = [
            DeviceWork(title, function, arguments, self.device) for title, arguments in zip(titles, calls, strict=True)
        ]
        try:
            return self.executor.map(works, self.progress)
        except MemoryRanOut as error:
            raise UserError(
                f"Memory of a worker does not suffice for {titles[0]}; give workers more of it, or ask fewer questions "
                f"(--limit)."
            ) from error

    def divided(self, function: Callable[..., T], *arguments: Any) -> T:
        """What a function gives that takes `solve`: workers share its chunks of layers."""
        if self.executor is None:
            return function(*arguments, device=self.device, progress=self.progress)
        return function(*arguments, device=self.device, progress=Silent(), solve=self._solve)

    def _solve(
        self,
        function: Callable[..., T],
        problems: Tensor,
        n_columns: int,
        arguments: tuple[Any, ...],
        device: torch.device,
        progress: Progress,
    ) -> list[T]:
        """The chunks that one process would solve, in blocks: what is solved together decides the last bits."""
        assert self.executor is not None, "this process solves all chunks as one block"
        shape = tuple(problems.shape), n_columns, problems.element_size()
        at_once = self(_plan_chunks, *shape, title="probes")
        n_chunks = -(-len(problems) // at_once.problems)
        size = at_once.problems * -(-n_chunks // (2 * self.executor.n_workers))
        blocks = problems.split(size)
        return self.each(function, [(block, at_once, *arguments) for block in blocks], ["probes"] * len(blocks))


def _plan_chunks(
    shape: tuple[int, int, int], n_columns: int, itemsize: int, device: str, progress: Progress
) -> ChunkPlan:
    """Asked of a worker: it knows how much memory its device has."""
    return plan_chunks(shape, n_columns, torch.device(device), None, itemsize)
