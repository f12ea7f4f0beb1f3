"""From an interval to a verdict: the thresholds of every check, and the rules that judge by them.

Most checks (`above`, `below`, `between`) use the interval alone: yes if all of it is on the claim's side of the
threshold, no if it is on the other side, else inconclusive. Differences and ratios of two estimates take the widest
interval that the two allow, which needs no joint bootstrap and can only turn a verdict into "inconclusive".

The few checks that answer the question itself (`above_zero`) have p-values, corrected for their number (Holm). They are
"no" only where the interval leaves no room for anything that matters.

Claims of earlier descriptions (`inside`) need the value itself on the claim's side as well, so that two claims that
exclude each other are never both confirmed; an interval that only touches the threshold refutes.
"""

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import Literal

from anchorscope.stats.estimate import LEVEL, Estimate

Verdict = Literal["yes", "no", "inconclusive", "not measured"]
WORST_FIRST: tuple[Verdict, ...] = ("no", "not measured", "inconclusive", "yes")
"""What speaks most against a statement comes first."""

# Thresholds, in points of ΔP where nothing else is said; none was chosen after a curve was seen. A word means the
# same in a reading of this report and in a claim of earlier readers; only a number that an earlier reader gave
# stands with the claims (`comparison.py`).

NEAR_ZERO = 5.0
"""Starts near zero. In the first layers little has been cut yet, and random cuts alone move a curve
by a few points; earlier readers give such a value as "about 0" and not as "about −10"."""
SEEN_BY_EYE = 10.0
"""A tenth of the charts' axis: earlier readers call a line flat that stays within it, and see a rise or fall beyond."""
STAYS_FLAT = SEEN_BY_EYE
"""Flat: keeps within this of zero at every layer."""

MIN_TROUGH = 5.0
"""Falls. Random cuts alone move a curve by a few points; a shallower dip means nothing."""

MIN_RECOVERY = 5.0
"""Comes back. A rise that can be told from noise; the interval accounts for the lowest layer being picked."""

MIDDLE_THIRD = (1 / 3 - 1e-9, 2 / 3 + 1e-9)
"""Shares of the depth. A layer at exactly a third (layer 9 of 28) belongs to it."""

SIGNIFICANT = 0.05
"""p-values of the tested readings, after Holm's correction over all of a run."""
NEGLIGIBLE_SHARE = 0.1
"""Of the evidence. A share, a difference of shares or a floor of estimation below it is of no account."""
WIDEST_SHARE = 1.0
"""An interval as wide as the whole scale: such a layer has too little evidence for a share, and is left out."""
SMALL_RATIO = 0.25
"""A control that does a quarter of the knockout's effect would explain too much of it."""
LEAST_RESAMPLED = 0.5
"""What the resample cut has to take, of what the knockout does: less would be due to the hole in the text."""
MATCHED_DISPLACEMENT = 0.8
"""How far a control has to move the states, of what the knockout does, to tell a loss from mere damage."""
NOOP_FLIPS = 0.03
"""About 120 items without a single flip are enough to stay under it; any knockout worth reading flips far more."""
LABEL_SORTING = 0.5
"""Difference of the true shares. Above it, guessing the label from the group is right at least three times in four."""

TWO_SIZES = 1.2
"""Largest over smallest number of parameters. Below it the difference lies in how parameters are counted."""
SAME_RATE = (0.8, 1.25)
"""About as much: a ratio within a quarter, either way."""
DISCOVERY_RATE = 0.05
"""Of the cells or heads that pass it, this share is expected to be chance."""

NEGLIGIBLE_AUROC = 0.01
"""A gain in AUROC below it is of no account."""
CALIBRATED = 0.05
"""Expected calibration error up to which a probability may be taken at its word."""
TOSSED = 0.01
"""How far from 0.5 the mean AUROC may lie with labels tossed."""

# standard errors between its ends
_IN_AN_INTERVAL = 2 * NormalDist().inv_cdf((1 + LEVEL) / 2)
_COMBINED = "widest interval of the two"


def above(estimate: Estimate | None, threshold: float) -> Verdict:
    """Is it larger than the threshold?"""
    return between(estimate, threshold, math.inf)


def below(estimate: Estimate | None, threshold: float) -> Verdict:
    """Is it smaller than the threshold?"""
    return between(estimate, -math.inf, threshold)


def between(estimate: Estimate | None, low: float, high: float) -> Verdict:
    """Does it lie between the two? An end at infinity is no limit."""
    if estimate is None or not has_interval(estimate):
        return "inconclusive"
    if (low < estimate.ci_low or low == -math.inf) and (
        estimate.ci_high < high or high == math.inf
    ):
        return "yes"
    return "no" if estimate.ci_high < low or estimate.ci_low > high else "inconclusive"


def above_zero(
    estimate: Estimate | None, corrected_p: float, negligible: float = NEGLIGIBLE_SHARE
) -> Verdict:
    """Is it larger than zero? Yes by its corrected p-value; no where its interval leaves room only for a trifle."""
    if estimate is None or math.isnan(corrected_p):
        return "inconclusive"
    if corrected_p < SIGNIFICANT and estimate.value > 0:
        return "yes"
    small = has_interval(estimate) and estimate.ci_high < negligible
    return "no" if small else "inconclusive"


def gained(estimate: Estimate | None, negligible: float = NEGLIGIBLE_AUROC) -> Verdict:
    """Is there a gain? No where the interval leaves room only for one of no account."""
    if estimate is None or not has_interval(estimate):
        return "inconclusive"
    if estimate.ci_low > 0:
        return "yes"
    return "no" if estimate.ci_high < negligible else "inconclusive"


def p_from_interval(estimate: Estimate) -> float:
    """The two-sided p-value for zero of a normal estimate with this interval; NaN without an interval."""
    spread = (estimate.ci_high - estimate.ci_low) / _IN_AN_INTERVAL
    return (
        2 * NormalDist().cdf(-abs(estimate.value) / spread) if spread > 0 else math.nan
    )


def inside(estimate: Estimate, over: float, under: float) -> Verdict:
    """Does it lie between the two, the value as well as the interval? An edge that is only touched is not inside."""
    there = over < estimate.value < under
    if there and estimate.ci_low > over and estimate.ci_high < under:
        return "yes"
    apart = estimate.ci_high <= over or estimate.ci_low >= under
    return "no" if not there and apart else "inconclusive"


def all_of(verdicts: Sequence[Verdict]) -> Verdict:
    """The verdict on "it is so for each of these": one that fails refutes it, one that is open leaves it open."""
    if "no" in verdicts:
        return "no"
    return (
        "yes"
        if verdicts and all(verdict == "yes" for verdict in verdicts)
        else "inconclusive"
    )


def has_interval(estimate: Estimate) -> bool:
    """Whether both ends are known; an end at infinity is known."""
    return not (math.isnan(estimate.ci_low) or math.isnan(estimate.ci_high))


def difference(first: Estimate | None, second: Estimate | None) -> Estimate | None:
    """first − second."""
    if first is None or second is None:
        return None
    low, high = first.ci_low - second.ci_high, first.ci_high - second.ci_low
    return Estimate(
        first.value - second.value, low, high, min(first.n, second.n), _COMBINED
    )


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


def with_zero_bound(rate: Estimate | None) -> Estimate | None:
    """A rate of exactly zero has no spread to resample: its upper end is then the exact binomial one."""
    if (
        rate is None
        or rate.value != 0
        or rate.n <= 0
        or (has_interval(rate) and rate.ci_high > 0)
    ):
        return rate
    return Estimate(0.0, 0.0, 1 - 0.025 ** (1 / rate.n), rate.n, "exact binomial bound")


def _sizes(estimate: Estimate) -> tuple[float, float]:
    """Least and greatest absolute value within the interval."""
    ends = sorted((abs(estimate.ci_low), abs(estimate.ci_high)))
    return (0.0 if estimate.ci_low <= 0 <= estimate.ci_high else ends[0]), ends[1]
