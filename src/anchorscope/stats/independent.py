"""Estimates of different samples put together: their mean, difference and ratio, each with its interval.

Two runs, or two datasets, saw other questions, so their errors do not go together. Then the distances from value to
end add like the sides of a right angle (MOVER: Zou & Donner 2008, Statistics in Medicine 27). Nothing is drawn again:
it serves intervals of every kind, lopsided ones and ones read off a band, and two equal calls give equal numbers.
Without both intervals there is none.
"""

import math
from collections.abc import Sequence

from anchorscope.stats.estimate import Estimate

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
