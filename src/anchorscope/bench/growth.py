"""How the cost of the knockout grows: with items, with length, with layers; each ×1, ×2, ×4, ×8.

The exponent is the slope of log seconds over log size: 1 is linear, below 1 a fixed part is shared. Items grow at the
same length; length is that of an item's own tokens; layers are the first ones of the model.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np
from torch import nn

from anchorscope.bench.implementations.own import Own
from anchorscope.bench.meter import Measured, measure
from anchorscope.bench.setting import Setting
from anchorscope.bench.workload import LEAST_OWN, Workload
from anchorscope.models.language_model import LanguageModel

FACTORS = (1, 2, 4, 8)
"""By how much each grows."""
_LINEAR = 1.1  # an exponent up to this is called linear: medians of few repeats are not exact


@dataclass(frozen=True)
class Growth:
    """One axis."""

    axis: str
    """`items`, `length` or `layers`."""
    sizes: tuple[int, ...]
    seconds: tuple[float, ...]
    added_mb: tuple[float, ...]
    """Memory that the work added, states that are kept included."""
    exponent: float
    """Slope of log seconds over log size."""

    @property
    def verdict(self) -> str:
        """In words."""
        return "linear or better" if self.exponent <= _LINEAR else "more than linear"

    def record(self) -> dict[str, Any]:
        """As the JSON object shows it."""
        return {**vars(self), "verdict": self.verdict}


def measure_growth(setting: Setting) -> list[Growth]:
    """All three axes, by our own implementation."""
    return [_of_items(setting), _of_length(setting), _of_layers(setting)]


def _of_items(setting: Setting) -> Growth:
    least = max(2, setting.options.items // max(FACTORS))
    work = setting.workload(least * max(FACTORS))
    sizes = [min(least * factor, len(work.items)) for factor in FACTORS]
    return _axis(setting, "items", {size: work.first(size) for size in sizes})


def _of_length(setting: Setting) -> Growth:
    n = max(2, setting.options.items // 4)
    return _axis(setting, "length", {LEAST_OWN * by: setting.workload(n, own=LEAST_OWN * by) for by in FACTORS})


def _of_layers(setting: Setting) -> Growth:
    n, layers = max(2, setting.options.items // 4), setting.lm.n_layers
    work = setting.workload(n)
    sizes = sorted({max(1, layers // factor) for factor in FACTORS})
    taken = {}
    for size in sizes:
        with _first_layers(setting.lm, size):
            taken[size] = _measured(setting, lambda: Own(setting.lm).knockout(work))
    return _fitted(setting, "layers", taken)


def _axis(setting: Setting, axis: str, works: dict[int, Workload]) -> Growth:
    own = Own(setting.lm)
    taken = {size: _measured(setting, lambda work=work: own.knockout(work)) for size, work in works.items()}  # type: ignore[misc]
    return _fitted(setting, axis, taken)


def _measured(setting: Setting, run: Callable[[], Any]) -> list[Measured]:
    run()  # warm: shapes may be compiled
    return [measure(run, setting.lm.device) for _ in range(setting.options.repeats)]


def _fitted(setting: Setting, axis: str, taken: dict[int, list[Measured]]) -> Growth:
    seconds = tuple(median(one.seconds for one in repeats) for repeats in taken.values())
    added = tuple(max(_added(one) for one in repeats) for repeats in taken.values())
    slope = float(np.polyfit(np.log(list(taken)), np.log(seconds), 1)[0]) if len(taken) > 1 else float("nan")
    growth = Growth(axis, tuple(taken), seconds, added, slope)
    setting.say(f"growth with {axis}: exponent {slope:.2f}, {growth.verdict}")
    return growth


def _added(one: Measured) -> float:
    return one.host_added_mb if one.device_added_mb is None else one.device_added_mb


@contextmanager
def _first_layers(lm: LanguageModel, n: int) -> Iterator[None]:
    """While it holds, the model ends after its first layers."""
    whole = lm.layers
    setattr(lm.stack, lm.family.layers, nn.ModuleList(list(whole)[:n]))
    try:
        yield
    finally:
        setattr(lm.stack, lm.family.layers, whole)
