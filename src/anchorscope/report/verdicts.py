"""From an interval to a verdict: what the numbers allow to be said, and no more.

A claim holds if the whole interval lies on its side of the threshold, does not hold if the whole interval lies on the
other side, and is undecided otherwise; without an interval it is undecided. Differences and ratios of two estimates
take the widest interval that the two allow. That is cautious: it needs no joint bootstrap and can only turn a verdict
into "undecided".
"""

import math
from collections.abc import Sequence
from typing import Literal

from anchorscope.stats.estimate import Estimate

Verdict = Literal["holds", "does not hold", "undecided"]

_COMBINED = "widest interval of the two"


def above(estimate: Estimate | None, threshold: float) -> Verdict:
    """Is it larger than the threshold?"""
    if estimate is None or not has_interval(estimate):
        return "undecided"
    if estimate.ci_low > threshold:
        return "holds"
    return "does not hold" if estimate.ci_high < threshold else "undecided"


def below(estimate: Estimate | None, threshold: float) -> Verdict:
    """Is it smaller than the threshold?"""
    if estimate is None or not has_interval(estimate):
        return "undecided"
    if estimate.ci_high < threshold:
        return "holds"
    return "does not hold" if estimate.ci_low > threshold else "undecided"


def between(estimate: Estimate | None, low: float, high: float) -> Verdict:
    """Does it lie between the two?"""
    if estimate is None or not has_interval(estimate):
        return "undecided"
    if low < estimate.ci_low and estimate.ci_high < high:
        return "holds"
    return "does not hold" if estimate.ci_high < low or estimate.ci_low > high else "undecided"


def all_of(verdicts: Sequence[Verdict]) -> Verdict:
    """The verdict on "it is so for each of these": one that fails refutes it, one that is open leaves it open."""
    if "does not hold" in verdicts:
        return "does not hold"
    return "holds" if verdicts and all(verdict == "holds" for verdict in verdicts) else "undecided"


def has_interval(estimate: Estimate) -> bool:
    """Whether both ends are known; an end at infinity is known."""
    return not (math.isnan(estimate.ci_low) or math.isnan(estimate.ci_high))


def difference(first: Estimate | None, second: Estimate | None) -> Estimate | None:
    """first − second."""
    if first is None or second is None:
        return None
    low, high = first.ci_low - second.ci_high, first.ci_high - second.ci_low
    return Estimate(first.value - second.value, low, high, min(first.n, second.n), _COMBINED)


def size_ratio(first: Estimate | None, second: Estimate | None) -> Estimate | None:
    """|first| / |second|; the upper end is infinite where the second may be zero."""
    if first is None or second is None or second.value == 0:
        return None
    value = abs(first.value / second.value)
    if not (has_interval(first) and has_interval(second)):
        return Estimate(value, math.nan, math.nan, min(first.n, second.n), _COMBINED)
    small, large = _sizes(first)
    least, most = _sizes(second)
    high = large / least if least > 0 else math.inf
    return Estimate(value, small / most, high, min(first.n, second.n), _COMBINED)


def exact(found: Estimate | None) -> Estimate | None:
    """A number that is computed and not sampled (an expectation under shuffling) may come without an interval."""
    if found is None or has_interval(found):
        return found
    return Estimate(found.value, found.value, found.value, found.n, found.method)


def with_zero_bound(rate: Estimate | None) -> Estimate | None:
    """A rate of exactly zero has no spread to resample: its upper end is then the exact binomial one."""
    if rate is None or rate.value != 0 or rate.n <= 0 or (has_interval(rate) and rate.ci_high > 0):
        return rate
    return Estimate(0.0, 0.0, 1 - 0.025 ** (1 / rate.n), rate.n, "exact binomial bound")


def _sizes(estimate: Estimate) -> tuple[float, float]:
    """Least and greatest absolute value within the interval."""
    ends = sorted((abs(estimate.ci_low), abs(estimate.ci_high)))
    return (0.0 if estimate.ci_low <= 0 <= estimate.ci_high else ends[0]), ends[1]
