"""What the project promises, in one table, and whether this benchmark meets it.

A target is judged only where the work is the target's own: its model, device, precision and lengths.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from anchorscope.bench.table import Row


@dataclass(frozen=True)
class Circumstances:
    """What was measured, as far as targets ask."""

    model: str
    device: str
    """`cpu` or `cuda`."""
    dtype: str
    items: int
    shared: float
    """Shared tokens of an item."""
    own: float
    """Own tokens of an item, on average."""
    probe_items: int


_ANY = (0.0, 1e9)


@dataclass(frozen=True)
class Target:
    """One promise."""

    device: str
    model: str
    work: str
    measure: str
    """`speedup` over the fastest of `against`, `streaming_share_of_peak`, or `seconds`."""
    bound: float
    """At least this; for seconds, at most this."""
    against: tuple[str, ...] = ()
    own: tuple[float, float] = _ANY
    """The own tokens for which it was stated, beside about 40 shared ones."""
    probe_items: int = 0
    items: int = 0
    """How many items it was stated for, at least."""

    @property
    def text(self) -> str:
        """In words."""
        if self.measure == "seconds":
            return f"{self.work} at {self.model}: under {self.bound:g} s"
        if self.measure == "streaming_share_of_peak":
            return f"{self.work} at {self.model}, probes streaming: at least {self.bound:.0%} of the matmul peak"
        which = " and ".join(self.against)
        faster = f"the faster of {which}" if len(self.against) > 1 else which
        return f"{self.work} at {self.model}: at least {self.bound:g}× {faster}"


_PEERS = ("transformer-lens", "nnsight")
_ABOUT_25 = (20.0, 30.0)
_24 = (24.0, 24.0)
_64 = (64.0, 64.0)
_SMALL = "smollm2-135m"

TARGETS: tuple[Target, ...] = (
    Target("cpu", _SMALL, "knockout", "speedup", 5.0, ("plain",), _ABOUT_25),
    Target("cpu", _SMALL, "knockout", "speedup", 2.4, ("plain-batched",), _ABOUT_25),
    Target("cpu", _SMALL, "knockout", "speedup", 2.4, _PEERS, _ABOUT_25),
    Target("cpu", _SMALL, "single-layer", "speedup", 10.0, ("plain",), _ABOUT_25),
    Target("cpu", _SMALL, "single-layer", "speedup", 2.4, ("plain-batched",), _ABOUT_25),
    Target("cpu", _SMALL, "single-layer", "speedup", 5.0, _PEERS, _ABOUT_25),
    Target("cpu", _SMALL, "probes", "speedup", 20.0, ("scikit-learn",)),
    Target("cuda", "shape:llama-3.2-1b", "knockout", "speedup", 100.0, ("plain",), _24),
    Target("cuda", "shape:llama-3.2-3b", "knockout", "speedup", 80.0, ("plain",), _24),
    Target("cuda", "shape:qwen3-8b", "knockout", "speedup", 70.0, ("plain",), _24),
    Target("cuda", "shape:qwen3-32b", "knockout", "speedup", 35.0, ("plain",), _24),
    Target("cuda", "shape:llama-3.2-1b", "knockout", "streaming_share_of_peak", 0.65, (), _64),
    Target("cuda", "shape:qwen3-8b", "knockout", "streaming_share_of_peak", 0.72, (), _64),
    Target("cuda", "shape:qwen3-32b", "knockout", "streaming_share_of_peak", 0.72, (), _64),
    Target("cuda", "shape:qwen3-32b", "probes", "seconds", 20.0, (), probe_items=3000),
    Target("cuda", _SMALL, "generation", "speedup", 3.0, ("plain-batched",), items=10_000),
)
"""All promises that a benchmark of one machine can judge."""


def judge(rows: Sequence[Row], here: Circumstances) -> list[dict[str, Any]]:
    """Every target that these circumstances are those of, met or not, or why it cannot be told."""
    works = {row.work for row in rows}
    wanted = [one for one in TARGETS if _applies(one, here) and one.work in works]
    return [_judged(target, rows) for target in wanted]


def _applies(target: Target, here: Circumstances) -> bool:
    precise = here.dtype == ("float32" if target.device == "cpu" else "bfloat16")
    enough = here.probe_items >= target.probe_items
    long = target.own[0] <= here.own <= target.own[1] and (target.own == _ANY or 35 <= here.shared <= 50)
    many = here.items >= target.items
    return (target.device, target.model) == (here.device, here.model) and precise and enough and long and many


def _judged(target: Target, rows: Sequence[Row]) -> dict[str, Any]:
    measured = _measured(target, {row.way: row for row in rows if row.work == target.work})
    met = None
    if measured is not None:
        met = measured <= target.bound if target.measure == "seconds" else measured >= target.bound
    return {"target": target.text, "bound": target.bound, "measured": measured, "met": met}


def _measured(target: Target, by_implementation: dict[str, Row]) -> float | None:
    own = by_implementation.get("anchorscope")
    if target.measure != "speedup":
        return None if own is None else getattr(own, target.measure)
    found = [by_implementation[name].speedup for name in target.against if name in by_implementation]
    known = [speedup for speedup in found if speedup is not None]
    # Of several, the faster counts: all of them have to be there.
    return min(known) if len(known) == len(target.against) else None
