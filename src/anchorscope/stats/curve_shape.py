"""What a curve does along the layers: where it is lowest, how far it comes back, from where on it is flat.

Each answer is an estimate. What depends on one layer that is named beforehand (the first, the last) has a percentile
interval; what is looked for along the curve (the lowest, the farthest) is read off a band that holds for all layers at
once (`sampled_curve.py`), so that looking in 30 places is paid for. A layer is an estimate too: its value is where the
sample has it, its ends are the first and last layer that the draws allow. Infinity means "at no layer".
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anchorscope.stats.estimate import Estimate, percentile_interval
from anchorscope.stats.sampled_curve import LOWEST, POINTWISE, SIMULTANEOUS, SampledCurve

FLAT = 5.0
"""Points. Within this of its last value a curve counts as level."""
MIN_FALL = 5.0
"""Points. A curve that is no farther below its first value has not begun to fall."""
APART = 1.0
"""Points. In early layers two groups may differ by a hundredth of a point, surely and for nothing."""


@dataclass(frozen=True)
class Trough:
    """The lowest place of a curve."""

    depth: Estimate
    """How low it is; the interval holds the true lowest value, wherever that lies."""
    layer: Estimate
    """Where it is."""
    relative: Estimate
    """The same from 0 (first layer) to 1 (last)."""


@dataclass(frozen=True)
class Decline:
    """The way from the first value down to the trough."""

    onset: Estimate
    """The last layer before the trough that is still near the first value."""
    length: Estimate
    """Layers from there to the trough."""
    relative: Estimate
    """The same as a share of the depth."""


def first(curve: SampledCurve) -> Estimate:
    """The value at the first layer."""
    return at_layer(curve, 0)


def last(curve: SampledCurve) -> Estimate:
    """The value at the last layer."""
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
    layer = lowest_layer(curve)
    return Trough(depth, layer, _relative(layer, curve))


def lowest_layer(curve: SampledCurve) -> Estimate:
    """The layer of the lowest value; the ends are the outermost layers of those that may be the lowest."""
    place = float(np.argmin(curve.value))
    candidates = np.append(np.flatnonzero(curve.may_be_lowest), place)
    return _estimate(curve, place, candidates.min(), candidates.max(), LOWEST)


def recovery(curve: SampledCurve) -> Estimate:
    """How far the last layer lies above the trough; never below zero."""
    low, high = curve.relative_to(-1).band
    return _estimate(curve, curve.value[-1] - curve.value.min(), abs(high.min()), abs(low.min()))


def fall(curve: SampledCurve) -> Estimate:
    """How far the trough lies below the first layer; never below zero."""
    low, high = curve.relative_to(0).band
    return _estimate(curve, curve.value[0] - curve.value.min(), abs(high.min()), abs(low.min()))


def plateau(curve: SampledCurve, within: float = FLAT) -> Estimate:
    """The first layer from which on the curve stays within some points of its last value.

    The last layer is always so; a plateau that begins there is none.
    """
    away = curve.relative_to(-1)
    low, high = away.band
    value, possible, certain = (
        _from_here_on(inside)
        for inside in (
            np.abs(away.value) <= within,
            (low <= within) & (high >= -within),
            (low >= -within) & (high <= within),
        )
    )
    return _estimate(curve, value, possible, certain)


def separation(below: SampledCurve, above: SampledCurve, by: float = APART) -> Estimate:
    """The first layer from which on one curve lies below another (drawn together) to the end; infinity where it never
    does. The ends are the earliest layer from which this may be so and the first from which it surely is."""
    return stays_below(below - above, -by)


def stays_below(curve: SampledCurve, threshold: float) -> Estimate:
    """The first layer from which on the curve lies below a threshold to the end; infinity where the end does not."""
    low, high = curve.band
    value, possible, certain = (_from_here_on(line < threshold) for line in (curve.value, low, high))
    return _estimate(curve, value, possible, certain)


def range_within(curve: SampledCurve) -> Estimate:
    """The farthest that the curve gets from zero at any layer: it "stays within ± this"."""
    low, high = curve.band
    nearest = np.where((low <= 0) & (high >= 0), 0.0, np.minimum(np.abs(low), np.abs(high)))
    farthest = np.maximum(np.abs(low), np.abs(high))
    return _estimate(curve, np.abs(curve.value).max(), nearest.max(), farthest.max())


def volatility(curve: SampledCurve) -> Estimate:
    """How far a layer lies from the middle of its two neighbours: root mean square, the noise's share taken out.

    A straight line has none, however steep. A measured square is too large by its variance, and that of a draw by the
    same once more; both are subtracted, and what falls below zero is zero. The upper end is never below what noise
    alone would leave: a curve that happens to be smoother than its noise is no proof of none. Three layers are needed.
    """
    if curve.n_layers < 3 or not curve.known:
        return _estimate(curve, math.nan, math.nan, math.nan, POINTWISE)
    bends, drawn = _bends(curve.value), _bends(curve.whole)
    noise = drawn.var(axis=0, ddof=1).mean()
    found = curve.estimate((bends**2).mean() - noise, (drawn**2).mean(axis=1) - 2 * noise)
    _, unseen = percentile_interval(((drawn - bends) ** 2).mean(axis=1) - noise)
    ends = found.value, found.ci_low, max(found.ci_high, float(unseen))
    value, low, high = (math.sqrt(max(0.0, end)) for end in ends)
    return Estimate(value, low, high, curve.n, POINTWISE)


def decline(curve: SampledCurve, near: float = MIN_FALL) -> Decline:
    """From the last layer that is still near the first value to the trough; no length where it never falls so far.

    The onset's ends come from the band, the trough's from the layers that may be the lowest.
    """
    bottom = lowest_layer(curve)
    away = curve.relative_to(0)
    low, high = away.band
    value = _last_up_to(away.value >= -near, bottom.value)
    earliest, latest = _last_up_to(low >= -near, bottom.ci_low), _last_up_to(high >= -near, bottom.ci_high)
    onset = _estimate(curve, value, earliest, latest)
    shortest, longest = max(0.0, bottom.ci_low - latest), bottom.ci_high - earliest
    length = _estimate(curve, bottom.value - value, shortest, longest)
    return Decline(onset, length, _relative(length, curve))


def lead_of_third(curve: SampledCurve, third: int) -> Estimate:
    """By how many points the curve falls more within one third of the depth (0, 1, 2), named beforehand, than within
    either of the other two: the smaller of both leads, read off a band for both. Four layers are needed."""
    if curve.n_layers < 4:
        return _estimate(curve, math.nan, math.nan, math.nan)

    def leads(curves: NDArray[Any]) -> NDArray[Any]:
        falls = _falls(curves)
        return falls[:, [third]] - np.delete(falls, third, axis=1)

    both = SampledCurve(leads(curve.value[None])[0], leads(curve.samples), curve.n)
    low, high = both.band
    return _estimate(curve, both.value.min(), low.min(), high.min())


def _from_here_on(fits: NDArray[np.bool_]) -> float:
    """The first layer from which on all fit; infinity where the last one does not."""
    misses = np.flatnonzero(~fits)
    start = misses[-1] + 1 if len(misses) else 0
    return float(start) if start < len(fits) else math.inf


def _last_up_to(fits: NDArray[np.bool_], end: float) -> float:
    """The last layer that fits, up to one of them; the first layer always does."""
    if math.isnan(end):
        return math.nan
    return float(np.flatnonzero(fits[: int(end) + 1])[-1]) if fits[0] else 0.0


def _bends(curves: NDArray[Any]) -> NDArray[Any]:
    return curves[..., 1:-1] - (curves[..., :-2] + curves[..., 2:]) / 2


def _falls(curves: NDArray[Any]) -> NDArray[Any]:
    edges = np.rint(np.linspace(0, curves.shape[1] - 1, 4)).astype(int)
    return -np.diff(curves[:, edges], axis=1)


def _relative(found: Estimate, curve: SampledCurve) -> Estimate:
    depth = max(1, curve.n_layers - 1)
    return Estimate(found.value / depth, found.ci_low / depth, found.ci_high / depth, found.n, found.method)


def _estimate(curve: SampledCurve, value: float, low: float, high: float, method: str = SIMULTANEOUS) -> Estimate:
    """An estimate of a curve; without a curve there is none, without enough draws no interval."""
    if not np.isfinite(curve.value).all():
        value = math.nan
    if not curve.known:
        low = high = math.nan
    return Estimate(float(value), float(low), float(high), curve.n, method)
