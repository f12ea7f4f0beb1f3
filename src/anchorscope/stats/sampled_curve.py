"""A curve along the layers together with its bootstrap draws: what a statement about a whole curve needs.

An interval at every single layer says nothing about "the lowest of 30 layers", which is picked after the numbers are
seen. So a curve has one band that holds the true curve in all layers at once in 95 of 100 samples (the sup-t band):
value ± c · s, where s is the bootstrap's spread at that layer and c the 95th percentile, over the draws, of the
farthest that any layer strays in units of its s. Whatever is read off the whole band is then covered too.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from anchorscope.stats.estimate import LEVEL, Estimate, percentile_interval

Floats = NDArray[np.floating]

FEWEST_DRAWS = 50
"""With fewer whole draws than this, no interval is given and nothing is decided."""
FEWEST_GROUPS = 10
"""Drawing again from fewer groups of items says little about others: from a single one, every draw is the same."""
POINTWISE = "percentile bootstrap over groups"
SIMULTANEOUS = "simultaneous bootstrap band over all layers"
LOWEST = "layers that no other is surely below, paired bootstrap over groups"

_NO_SPREAD = 1e-5  # of the widest layer's spread: rounding, by which nothing may be divided


@dataclass(frozen=True, eq=False)
class SampledCurve:
    """One number per layer, and the same in every bootstrap resample."""

    value: Floats
    """The sample itself, [layer]."""
    samples: Floats
    """The resamples, [draw, layer]. A draw in which the curve is not defined has NaN and is left out as a whole."""
    n: int
    """Items that the curve rests on."""

    def __post_init__(self) -> None:
        if self.value.ndim != 1 or not len(self.value) or self.samples.ndim != 2:
            raise ValueError(f"a curve needs [layer] and [draw, layer], not {self.value.shape}, {self.samples.shape}")
        if self.samples.shape[1] != len(self.value):
            raise ValueError(f"{len(self.value)} layers, but draws of {self.samples.shape[1]}")

    def __sub__(self, other: "SampledCurve") -> "SampledCurve":
        """The difference of two curves that were drawn together: draw by draw, as both saw the same questions."""
        if self.samples.shape != other.samples.shape:
            raise ValueError(f"drawn together, yet {self.samples.shape} and {other.samples.shape}")
        return SampledCurve(self.value - other.value, self.samples - other.samples, min(self.n, other.n))

    def relative_to(self, layer: int) -> "SampledCurve":
        """How far every layer lies above one of them; that one has no spread at all."""
        away = self.samples - self.samples[:, [layer]]
        return SampledCurve(self.value - self.value[layer], away, self.n)

    @property
    def n_layers(self) -> int:
        """How many layers it has."""
        return len(self.value)

    @property
    def known(self) -> bool:
        """Whether there is a curve, and enough draws for an interval."""
        return bool(np.isfinite(self.value).all()) and len(self.whole) >= FEWEST_DRAWS

    @cached_property
    def whole(self) -> NDArray[np.float64]:
        """The draws in which every layer is defined."""
        return self.samples[np.isfinite(self.samples).all(axis=1)].astype(np.float64)

    @cached_property
    def band(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Lower and upper end per layer, for all layers at once; NaN where too few draws are known."""
        if not self.known:
            unknown = np.full(self.n_layers, np.nan)
            return unknown, unknown
        away = np.abs(self.whole - self.value)
        spread = self.whole.std(axis=0, ddof=1)
        wide = spread > _NO_SPREAD * spread.max()
        half = away.max(axis=0)  # for layers without spread
        if wide.any():
            farthest = (away[:, wide] / spread[wide]).max(axis=1)
            half[wide] = np.quantile(farthest, LEVEL) * spread[wide]
        return self.value - half, self.value + half

    @cached_property
    def may_be_lowest(self) -> NDArray[np.bool_]:
        """Per layer, whether it may be the lowest: no other lies below it by more than chance allows.

        Differences are taken within a draw, and the farthest over the other layers counts (multiple comparisons with
        the best), so that the set holds the truly lowest layer in 95 of 100 samples. Counting where the draws have
        their lowest layer is narrower and does not, where a flat bottom's truly lowest layer is its least noisy one.
        """
        if not self.known:
            return np.ones(self.n_layers, np.bool_)
        away = np.ascontiguousarray((self.whole - self.value).T, dtype=np.float32)
        covariance = np.atleast_2d(np.cov(self.whole, rowvar=False))
        own = np.diag(covariance)
        spread = np.sqrt(np.maximum(0.0, own[:, None] + own - 2 * covariance))
        if not spread.any():
            return np.asarray(self.value == self.value.min())
        # Two layers that always move together, and a layer and itself, have no spread.
        spread = np.maximum(spread, _NO_SPREAD * spread.max()).astype(np.float32)
        fits = np.zeros(self.n_layers, np.bool_)
        for layer in range(self.n_layers):
            farthest = ((away[layer] - away) / spread[layer][:, None]).max(axis=0)
            allowed = np.quantile(farthest, LEVEL) * spread[layer]
            fits[layer] = (self.value[layer] - self.value <= allowed).all()
        return fits

    def estimate(self, value: float, samples: Floats) -> Estimate:
        """A number of this curve from its value in every whole draw; an interval only where enough draws are known."""
        if not self.known:
            return Estimate(float(value), np.nan, np.nan, self.n, POINTWISE)
        low, high = percentile_interval(samples)
        return Estimate(float(value), float(low), float(high), self.n, POINTWISE)
