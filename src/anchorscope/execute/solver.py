"""Who fits probes and resamples tables: this process, or a worker where only workers have the model's kind of device.

Both give other last digits on a CPU than on a GPU. So a coordinator without a GPU asks one of its workers, and gets the
bits of a run in one process with such a GPU. On a CPU, or with a GPU of its own, it does them by itself: to send the
states would only cost time.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from anchorscope.errors import MemoryRanOut, UserError
from anchorscope.execute.executor import Executor
from anchorscope.execute.numerics import NumericsClass
from anchorscope.execute.parts import DevicePart
from anchorscope.plan.passes import plan_device_work
from anchorscope.progress import Progress

T = TypeVar("T")

ACCELERATOR = "cuda"
"""What every worker calls its device, or the first of several, where it is no CPU."""


def fit_device(here: str, workers: NumericsClass | None) -> str:
    """Where that is done: `here`, the device of this process, or an accelerator that only the workers have."""
    return ACCELERATOR if workers is not None and workers.on_accelerator and here == "cpu" else here


@dataclass(frozen=True)
class Solver:
    """Calls functions of `plan.passes` where they belong."""

    device: str
    """Where they compute: part of what their results depend on."""
    executor: Executor | None
    """Whose workers do it; None for this process."""
    progress: Progress

    def __call__(self, function: Callable[..., T], *arguments: Any, title: str = "probes") -> T:
        """What the function gives."""
        if self.executor is None:
            return function(*arguments, device=self.device, progress=self.progress)
        work = plan_device_work(title, function, arguments, self.device)
        try:
            (part,) = self.executor.map([work], self.progress)
        except MemoryRanOut as error:
            raise UserError(
                f"Memory of a worker does not suffice for {title}; give workers more of it, or ask fewer questions "
                f"(--limit)."
            ) from error
        assert isinstance(part, DevicePart), f"a worker gave {type(part).__name__} where DevicePart was due"
        found: T = part.found
        return found
