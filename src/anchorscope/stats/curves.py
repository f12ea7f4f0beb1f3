"""Curves along the layers with their bootstrap draws: what a statement about whole curves needs.

**One curve** has a band that holds the true curve in all layers at once in 95 of 100 samples (sup-t): value ± c · s,
with s the bootstrap's spread at a layer and c the 95th percentile, over the draws, of the largest deviation in units of
s. What is looked for along a curve ("the lowest of 30 layers") is read off the band; a value at a layer that is named
beforehand has a percentile interval. Infinity means "at no layer".

**Several curves** of different questions are independent, but equal seeds may have given them equal draws: each one's
are put in an order of their own.
"""

import math
from collections.abc import Sequence
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
LOWEST = (
    "layers that no other is below with 95% confidence, paired bootstrap over groups"
)

# of the widest layer's spread: rounding, by which nothing may be divided
_NO_SPREAD = 1e-5


@dataclass(frozen=True, eq=False)
class SampledCurve:
    """One number per layer, and the same in every bootstrap resample."""

    value: Floats
    """The sample itself, [layer]."""
    samples: Floats
    """The resamples, [draw, layer]. A draw in which the curve is not defined has NaN and is left out as a whole."""
    n: int
    """Items that the curve rests on."""

    def __sub__(self, other: "SampledCurve") -> "SampledCurve":
        """The difference of two curves that were drawn together: draw by draw, as both saw the same questions."""
        return SampledCurve(
            self.value - other.value, self.samples - other.samples, min(self.n, other.n)
        )

    def relative_to(self, layer: int) -> "SampledCurve":
        """How far every layer lies above one of them; that one has no spread at all."""
        away = self.samples - self.samples[:, [layer]]
        return SampledCurve(self.value - self.value[layer], away, self.n)

    @property
    def n_layers(self) -> int:
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


@dataclass(frozen=True)
class Trough:
    """The lowest place of a curve."""

    depth: Estimate
    """How low it is; the interval holds the true lowest value, wherever that lies."""
    layer: Estimate
    """Where it is; the ends are the outermost layers of those that may be the lowest."""
    relative: Estimate
    """The same from 0 (first layer) to 1 (last)."""


def first(curve: SampledCurve) -> Estimate:
    return at_layer(curve, 0)


def last(curve: SampledCurve) -> Estimate:
    return at_layer(curve, curve.n_layers - 1)


def at_layer(curve: SampledCurve, layer: int) -> Estimate:
    """The value at a layer that was named before the curve was seen."""
    return curve.estimate(curve.value[layer], curve.whole[:, layer])


def trough(curve: SampledCurve) -> Trough:
    """The lowest place.

    The lowest of many noisy values is too low on average; the interval, from the band, is not fooled by that.
    """
    low, high = curve.band
    depth = _estimate(curve, curve.value.min(), low.min(), high.min())
    lowest = float(np.argmin(curve.value))
    candidates = np.append(np.flatnonzero(curve.may_be_lowest), lowest)
    layer = _estimate(curve, lowest, candidates.min(), candidates.max(), LOWEST)
    deepest = max(1, curve.n_layers - 1)
    ends = layer.value / deepest, layer.ci_low / deepest, layer.ci_high / deepest
    return Trough(depth, layer, Estimate(*ends, layer.n, layer.method))


def recovery(curve: SampledCurve) -> Estimate:
    """How far the last layer lies above the trough; never below zero."""
    low, high = curve.relative_to(-1).band
    return _estimate(
        curve, curve.value[-1] - curve.value.min(), abs(high.min()), abs(low.min())
    )


def range_within(curve: SampledCurve) -> Estimate:
    """The farthest that the curve gets from zero at any layer: it "stays within ± this"."""
    low, high = curve.band
    nearest = np.where(
        (low <= 0) & (high >= 0), 0.0, np.minimum(np.abs(low), np.abs(high))
    )
    farthest = np.maximum(np.abs(low), np.abs(high))
    return _estimate(curve, np.abs(curve.value).max(), nearest.max(), farthest.max())


def _estimate(
    curve: SampledCurve,
    value: float,
    low: float,
    high: float,
    method: str = SIMULTANEOUS,
) -> Estimate:
    """An estimate of a curve; without a curve there is none, without enough draws no interval."""
    if not np.isfinite(curve.value).all():
        value = math.nan
    if not curve.known:
        low = high = math.nan
    return Estimate(float(value), float(low), float(high), curve.n, method)


_METHOD = "intervals of independent samples combined (MOVER)"


def mean_of(parts: Sequence[Estimate]) -> Estimate:
    """The mean; one estimate alone stays what it is."""
    if len(parts) == 1:
        return parts[0]
    value = sum(part.value for part in parts) / len(parts)
    below = _aside([part.value - part.ci_low for part in parts]) / len(parts)
    above = _aside([part.ci_high - part.value for part in parts]) / len(parts)
    return _combined(value, below, above, min(part.n for part in parts))


def difference_of(first: Estimate, second: Estimate) -> Estimate:
    below = _aside([first.value - first.ci_low, second.ci_high - second.value])
    above = _aside([first.ci_high - first.value, second.value - second.ci_low])
    return _combined(first.value - second.value, below, above, min(first.n, second.n))


def _aside(distances: Sequence[float]) -> float:
    """Root of the sum of squares; what is not known stays so, however far the others reach."""
    return math.nan if any(map(math.isnan, distances)) else math.hypot(*distances)


def _combined(value: float, below: float, above: float, n: int) -> Estimate:
    if math.isnan(below) or math.isnan(above):
        below = above = math.nan
    return Estimate(value, value - below, value + above, n, _METHOD)
