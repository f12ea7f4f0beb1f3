"""Several curves of different questions side by side: which is lowest, do they keep their order, do they converge?

They are independent, but equal seeds may have given them equal draws: the draws of each are put in an order of their
own first. Noise makes curves lie farther apart and change places more often than they truly do, so intervals come from
a band over all pairs of curves at once, or have the noise's share taken out.
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from anchorscope.stats.estimate import Estimate, percentile_interval
from anchorscope.stats.sampled_curve import FEWEST_DRAWS, POINTWISE, SIMULTANEOUS, SampledCurve

Floats = NDArray[np.floating]

_SEED = 1729


def side_by_side(curves: Sequence[SampledCurve]) -> tuple[Floats, Floats]:
    """Values [curve, layer] and draws [draw, curve, layer], each curve's in an order of its own (seeded)."""
    rng = np.random.default_rng(_SEED)
    draws = min(len(curve.whole) for curve in curves)
    orders = [rng.permutation(len(curve.whole))[:draws] for curve in curves]
    drawn = [curve.whole[order] for curve, order in zip(curves, orders, strict=True)]
    return np.stack([curve.value for curve in curves]), np.stack(drawn, axis=1)


def lowest_curve(curves: Sequence[SampledCurve], first: int) -> tuple[int, Estimate]:
    """Which of at least two curves is lowest in the mean from a layer on, and how far below the next one.

    The ends come from a band over all pairs at once, as the lowest is picked after the numbers are seen.
    """
    value, drawn = (part[..., first:].mean(axis=-1, keepdims=True) for part in side_by_side(curves))
    place, n = int(np.argmin(value)), _items(curves)
    low, high = _gap_bands(value, drawn)
    ends = [end[place, np.arange(len(curves)) != place].min() for end in (low, high)]
    return place, Estimate(float(np.ptp(np.sort(value[:, 0])[:2])), float(ends[0]), float(ends[1]), n, SIMULTANEOUS)


def crossing(curves: Sequence[SampledCurve], first: int) -> Estimate:
    """By how many points two curves change places from a layer on: 0 where all keep their order.

    A pair changes places by x if one lies x below the other at some layer and x above it at another; the pair with the
    largest x counts. The ends come from a band over all pairs and layers at once.
    """
    value, drawn = (part[..., first:] for part in side_by_side(curves))
    gaps, n = value[None] - value[:, None], _items(curves)
    low, high = _gap_bands(value, drawn)
    found, least, most = (
        float(np.minimum(above.max(axis=-1), above.max(axis=-1).T).clip(min=0.0).max()) for above in (gaps, low, high)
    )
    return Estimate(found, least, most, n, SIMULTANEOUS)


def spread(curves: Sequence[SampledCurve], layer: int) -> Estimate:
    """How far the highest curve lies above the lowest at a layer; the ends come from a band over all pairs at once."""
    value, drawn = (part[..., [layer]] for part in side_by_side(curves))
    low, high = _gap_bands(value, drawn)
    nearest = np.maximum(0.0, np.maximum(low, -high)).max()
    return Estimate(float(np.ptp(value)), float(nearest), float(high.max()), _items(curves), SIMULTANEOUS)


def closing(curves: Sequence[SampledCurve], before: slice) -> Estimate:
    """How much nearer together the curves are at the last layer than over some layers before (below zero: farther).

    Nearness is the root mean square distance of two curves, the noise's share taken out as in `volatility`.
    """
    value, drawn = side_by_side(curves)
    first, second = np.triu_indices(len(curves), 1)
    gaps, drawn_gaps = value[second] - value[first], drawn[:, second] - drawn[:, first]
    noise = drawn_gaps.var(axis=0, ddof=1) if len(drawn) > 1 else np.zeros_like(gaps)

    def change(squares: Floats) -> Floats:
        parts = squares[..., before].mean(axis=(-2, -1)), squares[..., -1].mean(axis=-1)
        found: Floats = np.sqrt(parts[0].clip(min=0.0)) - np.sqrt(parts[1].clip(min=0.0))
        return found

    found = float(change(gaps**2 - noise))
    if len(drawn) < FEWEST_DRAWS:
        return Estimate(found, math.nan, math.nan, _items(curves), POINTWISE)
    low, high = percentile_interval(change(drawn_gaps**2 - 2 * noise))
    return Estimate(found, float(low), float(high), _items(curves), POINTWISE)


def _items(curves: Sequence[SampledCurve]) -> int:
    return min(curve.n for curve in curves)


def _gap_bands(value: Floats, drawn: Floats) -> tuple[Floats, Floats]:
    """Both ends of second − first per pair and layer, [first, second, layer], for all of them at once."""
    number, layers = value.shape
    first, second = np.triu_indices(number, 1)
    gaps = SampledCurve(
        (value[second] - value[first]).reshape(-1),
        (drawn[:, second] - drawn[:, first]).reshape(len(drawn), len(first) * layers),  # there may be no draw at all
        0,
    )
    low, high = (np.zeros((number, number, layers)) for _ in range(2))
    ends = [end.reshape(len(first), layers) for end in gaps.band]
    low[first, second], high[first, second] = ends
    low[second, first], high[second, first] = -ends[1], -ends[0]
    return low, high


_METHOD = "intervals of independent samples combined (MOVER)"


def mean_of(found: Sequence[Estimate]) -> Estimate:
    """The mean; one estimate alone stays what it is."""
    if len(found) == 1:
        return found[0]
    value = sum(one.value for one in found) / len(found)
    below = _aside([one.value - one.ci_low for one in found]) / len(found)
    above = _aside([one.ci_high - one.value for one in found]) / len(found)
    return _estimate(value, below, above, min(one.n for one in found))


def difference_of(first: Estimate, second: Estimate) -> Estimate:
    """first − second."""
    below = _aside([first.value - first.ci_low, second.ci_high - second.value])
    above = _aside([first.ci_high - first.value, second.value - second.ci_low])
    return _estimate(first.value - second.value, below, above, min(first.n, second.n))


def ratio_of(first: Estimate, second: Estimate) -> Estimate:
    """first / second, both sizes that cannot be below zero; an end is 0 or infinite where the intervals touch zero."""
    n = min(first.n, second.n)
    if not (first.value > 0 and second.value > 0):
        return Estimate(math.nan, math.nan, math.nan, n, _METHOD)
    found = difference_of(_logarithm(first), _logarithm(second))
    return Estimate(math.exp(found.value), _power(found.ci_low), _power(found.ci_high), n, _METHOD)


def _aside(distances: Sequence[float]) -> float:
    """Root of the sum of squares; what is not known stays so, however far the others reach."""
    return math.nan if any(math.isnan(one) for one in distances) else math.hypot(*distances)


def _estimate(value: float, below: float, above: float, n: int) -> Estimate:
    if math.isnan(below) or math.isnan(above):
        below = above = math.nan
    return Estimate(value, value - below, value + above, n, _METHOD)


def _logarithm(found: Estimate) -> Estimate:
    return Estimate(_log(found.value), _log(found.ci_low), _log(found.ci_high), found.n, found.method)


def _log(value: float) -> float:
    if math.isnan(value):
        return value
    return math.log(value) if value > 0 else -math.inf


def _power(value: float) -> float:
    try:
        return math.exp(value)
    except OverflowError:
        return math.inf
