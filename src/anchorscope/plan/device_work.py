"""Work on a device that runs no model: the probes of one dataset, fitted as one shard; so are its principal directions,
its question share and the resampling of its tables.

Which functions may be asked for is a closed list; each takes `device` and `progress` beside its arguments. A worker
calls the very function that one process calls, so that the same kind of device gives the same bits.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from anchorscope.probes.crossfit import fit_final_probes, fit_probes, refit_logits, score_clean
from anchorscope.probes.permuted_labels import permuted_areas
from anchorscope.progress import Progress
from anchorscope.question_share.principal import principal_states
from anchorscope.question_share.shares import further_shares, held_out_scores, knockout_share, question_shares

F = TypeVar("F", bound=Callable[..., Any])
FUNCTIONS: dict[str, Callable[..., Any]] = {
    one.__name__: one
    for one in (
        fit_probes,
        fit_final_probes,
        refit_logits,
        permuted_areas,
        score_clean,
        principal_states,
        question_shares,
        knockout_share,
        held_out_scores,
        further_shares,
    )
}
"""What workers can be asked for, by name."""


def on_device(function: F) -> F:
    """Puts a function of a module above this one on the list; workers import it when a record of it comes."""
    FUNCTIONS[function.__name__] = function
    return function


@dataclass(frozen=True)
class DeviceWork:
    """One call of one of `FUNCTIONS`."""

    title: str
    function: str
    """Its name."""
    arguments: tuple[Any, ...]
    """Tensors in host memory, arrays and records; of types that travel."""
    device: str
    """Where it computes, as the worker names its devices."""

    def run(self, progress: Progress) -> Any:
        """What the function gives; ValueError where it is not on the list."""
        if self.function not in FUNCTIONS:
            raise ValueError(f"{self.function[:60]!r} is not among {', '.join(FUNCTIONS)}")
        return FUNCTIONS[self.function](*self.arguments, device=self.device, progress=progress)


def plan_device_work(title: str, function: Callable[..., Any], arguments: tuple[Any, ...], device: str) -> DeviceWork:
    """A call as data; the function has to be on the list."""
    assert FUNCTIONS.get(function.__name__) is function, f"{function.__name__} is not on the list of functions"
    return DeviceWork(title, function.__name__, arguments, device)
