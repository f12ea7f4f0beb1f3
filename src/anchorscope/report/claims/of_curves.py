"""Claims about single curves: each is asked of every dataset of every run.

Thresholds come from the readings themselves and from what can be read off a chart by eye; none was chosen after a
curve was seen.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from anchorscope.report.across.measures import highest, lowest, mean_from, middle, third, two_thirds
from anchorscope.report.across.run_curves import RunCurves, layers_from
from anchorscope.report.claims.claim import NO_DRAWS, Part, both, decide, missing, named
from anchorscope.report.palette import A_ANCHORED, Q_ANCHORED
from anchorscope.report.readings.of_curves import MIDDLE_THIRD
from anchorscope.report.wording import estimate, points
from anchorscope.stats.curve_shape import first, last, lead_of_third, plateau, range_within, recovery, trough
from anchorscope.stats.sampled_curve import SampledCurve

BY_EYE = 10.0
"""Points. A tenth of the charts' axis: readings call a line flat that stays within it, and see a rise beyond it."""
NEAR_ZERO = 5.0
"""Points. A first value that readings give as "about 0" and not as "about −10"."""
FIRST_LOW = (-20.0, -10.0)
"""Points. Where reading 2 sees the Q-Anchored lines begin."""
A_LOW = -20.0
"""Points. The shallowest fall of an A-Anchored line that reading 3 gives."""
CLEAR_LEAD = 5.0
"""Points by which the first third must fall more than the others: random cuts alone move a curve by a few."""

Check = Callable[[Sequence[RunCurves]], list[Part]]


def _every(check: Callable[..., Part], *groups: str) -> Check:
    """Ask it of the curves of these groups, for every dataset of every run."""

    def ask(runs: Sequence[RunCurves]) -> list[Part]:
        parts = []
        for run in runs:
            for dataset in run.datasets:
                curves = [run.curve(dataset, group) for group in groups]
                part = missing(NO_DRAWS) if any(curve is None for curve in curves) else check(*curves)
                parts.append(named(part, dataset, run.model))
        return parts

    return ask


def _apart(q: SampledCurve, a: SampledCurve) -> Part:
    closest = highest(layers_from(q - a, third(q)))
    return decide(closest, f"Q − A is {points(closest)} points where they are closest", under=0.0)


def _above_late(q: SampledCurve, a: SampledCurve) -> Part:
    gap = mean_from(q - a, two_thirds(q))
    return decide(gap, f"Q − A is {points(gap)} points in the last third", over=0.0)


def _near_zero(a: SampledCurve) -> Part:
    size = range_within(a)
    return decide(size, f"{points(size)} points from zero where it is farthest", under=BY_EYE)


def _a_falls(a: SampledCurve) -> Part:
    depth = lowest(a)
    return decide(depth, f"{points(depth)} points at its lowest", under=A_LOW)


def _starts_at_zero(q: SampledCurve) -> Part:
    start = first(q)
    return decide(start, f"{points(start)} points at the first layer", over=-NEAR_ZERO, under=NEAR_ZERO)


def _starts_low(q: SampledCurve) -> Part:
    start = first(q)
    return decide(start, f"{points(start)} points at the first layer", over=FIRST_LOW[0], under=FIRST_LOW[1])


def _falls_early(q: SampledCurve) -> Part:
    lead = lead_of_third(q, 0)
    words = f"fall of the first third less that of the steepest other: {points(lead)} points"
    return decide(lead, words, over=CLEAR_LEAD)


def _trough_in_the_middle(q: SampledCurve) -> Part:
    found = trough(q)
    place = estimate(found.relative, 0, 100.0, "\u00a0%")
    words = f"lowest at layer {estimate(found.layer, 0)}, {place} of the depth"
    return decide(found.relative, words, over=MIDDLE_THIRD[0], under=MIDDLE_THIRD[1])


def _recovers(q: SampledCurve) -> Part:
    rise = recovery(q)
    return decide(rise, f"back by {points(rise)} points from the lowest layer to the last", over=BY_EYE)


def _comes_not_back(q: SampledCurve) -> Part:
    rise = recovery(q)
    return decide(rise, f"back by {points(rise)} points from the lowest layer to the last", under=BY_EYE)


def _stays_low(q: SampledCurve) -> Part:
    level = plateau(q, BY_EYE)
    begun = decide(level, f"level from layer {estimate(level, 0)} on", under=middle(q) + 0.5)
    return both(replace(begun, unit="layer"), _comes_not_back(q))


def _falls_on(q: SampledCurve) -> Part:
    change = last(q.relative_to(middle(q)))
    falling = decide(change, f"{points(change)} points from the middle layer to the last", under=-BY_EYE)
    return both(falling, _comes_not_back(q))


apart = _every(_apart, Q_ANCHORED, A_ANCHORED)
above_late = _every(_above_late, Q_ANCHORED, A_ANCHORED)
near_zero = _every(_near_zero, A_ANCHORED)
a_falls = _every(_a_falls, A_ANCHORED)
starts_at_zero = _every(_starts_at_zero, Q_ANCHORED)
starts_low = _every(_starts_low, Q_ANCHORED)
falls_early = _every(_falls_early, Q_ANCHORED)
trough_in_the_middle = _every(_trough_in_the_middle, Q_ANCHORED)
recovers = _every(_recovers, Q_ANCHORED)
stays_low = _every(_stays_low, Q_ANCHORED)
falls_on = _every(_falls_on, Q_ANCHORED)
