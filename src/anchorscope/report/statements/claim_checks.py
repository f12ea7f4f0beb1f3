"""Claims about single curves, asked of every dataset of every run, and claims that compare the datasets of a model.

Thresholds come from the readings themselves and from what can be read off a chart by eye; none was chosen after a
curve was seen. Levels of datasets are means from a third of the depth on: before it all curves are near zero, and a
mean is not misled by one noisy layer as a lowest value is.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import combinations

import numpy as np

from anchorscope.report.palette import A_ANCHORED, Q_ANCHORED, display_name
from anchorscope.report.statements.claim import NO_DRAWS, Part, both, decide, missing, named, worst
from anchorscope.report.statements.run_curves import (
    RunCurves,
    gap_beyond_spread,
    highest,
    layers_from,
    lowest,
    mean_from,
    middle,
    third,
    two_thirds,
    widest_gap,
)
from anchorscope.report.verdicts import (
    A_FALLS_TO,
    CLAIMED_LEVEL,
    CLAIMED_RECOVERY,
    CLAIMED_SIMILAR,
    CLEAR_LEAD,
    CLOSING,
    FIRST_LOW,
    MIDDLE_THIRD,
    NEAR_ZERO,
    SAME_ORDER,
    SEEN_BY_EYE,
    STAYS_FLAT,
)
from anchorscope.report.wording import estimate, points
from anchorscope.stats.curve_order import closing, crossing, difference_of
from anchorscope.stats.curve_shape import (
    first,
    last,
    lead_of_third,
    plateau,
    range_within,
    recovery,
    trough,
    volatility,
)
from anchorscope.stats.estimate import Estimate
from anchorscope.stats.sampled_curve import SampledCurve

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
    return decide(size, f"{points(size)} points from zero where it is farthest", under=STAYS_FLAT)


def _a_falls(a: SampledCurve) -> Part:
    depth = lowest(a)
    return decide(depth, f"{points(depth)} points at its lowest", under=A_FALLS_TO)


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
    return decide(rise, f"back by {points(rise)} points from the lowest layer to the last", over=CLAIMED_RECOVERY)


def _comes_not_back(q: SampledCurve) -> Part:
    rise = recovery(q)
    return decide(rise, f"back by {points(rise)} points from the lowest layer to the last", under=CLAIMED_RECOVERY)


def _stays_low(q: SampledCurve) -> Part:
    level = plateau(q, CLAIMED_LEVEL)
    begun = decide(level, f"level from layer {estimate(level, 0)} on", under=middle(q) + 0.5)
    return both(replace(begun, unit="layer"), _comes_not_back(q))


def _falls_on(q: SampledCurve) -> Part:
    change = last(q.relative_to(middle(q)))
    falling = decide(change, f"{points(change)} points from the middle layer to the last", under=-SEEN_BY_EYE)
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


PAPER = ("popqa", "triviaqa", "hotpotqa", "nq")
"""The datasets of the charts that were read."""


def lies_lowest(dataset: str) -> Check:
    """Does this dataset lie below the three others of the paper?"""

    def level(curve: SampledCurve) -> Estimate:
        return mean_from(curve, third(curve))

    def part(mine: Estimate, other: Estimate, rival: str) -> Part:
        gap = difference_of(mine, other)
        return decide(gap, f"{points(gap)} points against {rival}", under=0.0)

    return _each(lambda run: _extreme(run, dataset, level, part))


def most_volatile(dataset: str) -> Check:
    """Does this dataset's curve jump more from layer to layer than those of the three others?"""

    def part(mine: Estimate, other: Estimate, rival: str) -> Part:
        gap = difference_of(mine, other)
        return decide(gap, f"{points(gap)} points of jaggedness against {rival}", over=0.0)

    return _each(lambda run: _extreme(run, dataset, volatility, part))


def similar(runs: Sequence[RunCurves]) -> list[Part]:
    """Do all datasets stay close to each other, at every layer?"""

    def farthest(run: RunCurves, curves: dict[str, SampledCurve]) -> Part:
        size = widest_gap(list(curves.values()))
        return decide(size, f"{points(size)} points apart where two are farthest", under=CLAIMED_SIMILAR)

    return _each(lambda run: _together(run, farthest))(runs)


def order_kept(runs: Sequence[RunCurves]) -> list[Part]:
    """Have all pairs an order, and is none turned round at any layer from a third of the depth on?"""

    def turned(run: RunCurves, curves: dict[str, SampledCurve]) -> Part:
        start = third(next(iter(curves.values())))
        ranked = sorted(curves, key=lambda name: float(curves[name].value[start:].mean()))
        levels = {name: mean_from(curves[name], start) for name in ranked}
        parts = []
        for lower, upper in combinations(ranked, 2):
            gap = difference_of(levels[lower], levels[upper])
            words = f"{display_name(lower)} − {display_name(upper)} is {points(gap)} points in the mean"
            parts.append(decide(gap, words, under=0.0))
        back = crossing(list(curves.values()), start)
        parts.append(decide(back, f"two change places by {points(back)} points", under=SAME_ORDER))
        return worst(parts)

    return _each(lambda run: _together(run, turned))(runs)


def converge(runs: Sequence[RunCurves]) -> list[Part]:
    """Are the datasets closer together at the last layer than in the middle third?"""

    def narrowing(run: RunCurves, curves: dict[str, SampledCurve]) -> Part:
        every = list(curves.values())
        nearer = closing(every, slice(third(every[0]), two_thirds(every[0]) + 1))
        return decide(nearer, f"distance in the middle less that at the end: {points(nearer)} points", over=CLOSING)

    return _each(lambda run: _together(run, narrowing))(runs)


def anchoring_over_dataset(runs: Sequence[RunCurves]) -> list[Part]:
    """Is the gap between the groups wider than that between the datasets?"""

    def wider(run: RunCurves, curves: dict[str, SampledCurve]) -> Part:
        above = [curve for name in curves if (curve := run.a(name)) is not None]
        if len(above) < len(curves):
            return missing(NO_DRAWS)
        beyond = gap_beyond_spread(list(curves.values()), above)
        return decide(beyond, f"gap of the groups less spread of the datasets: {points(beyond)} points", over=0.0)

    return _each(lambda run: _together(run, wider))(runs)


def _each(ask: Callable[[RunCurves], Part]) -> Check:
    def every(runs: Sequence[RunCurves]) -> list[Part]:
        parts = [(ask(run), run.model) for run in runs]
        return [named(part, "", model) for part, model in parts]

    return every


def _together(run: RunCurves, ask: Callable[[RunCurves, dict[str, SampledCurve]], Part]) -> Part:
    """Ask it of all datasets of a run at once."""
    if len(run.datasets) < 2:
        return missing("needs a run on several datasets")
    curves = {name: curve for name in run.datasets if (curve := run.q(name)) is not None}
    if len(curves) < len(run.datasets) or not all(np.isfinite(curve.value).all() for curve in curves.values()):
        return missing(NO_DRAWS)
    return ask(run, curves)


def _extreme(
    run: RunCurves,
    dataset: str,
    of: Callable[[SampledCurve], Estimate],
    part: Callable[[Estimate, Estimate, str], Part],
) -> Part:
    """One dataset against every other of the paper: any of them can refute it, all four are needed to bear it out."""
    rivals = [name for name in PAPER if name != dataset]
    absent = [name for name in PAPER if name not in run.datasets]
    if dataset in absent or len(absent) == len(rivals):
        return missing(f"needs {display_name(dataset)} and another of the paper's datasets")
    mine = run.q(dataset)
    others = {name: curve for name in rivals if (curve := run.q(name)) is not None}
    if mine is None or not others:
        return missing(NO_DRAWS)
    own = of(mine)
    found = worst([part(own, of(curve), display_name(name)) for name, curve in others.items()])
    if found.verdict == "holds" and len(others) < len(rivals):
        lacking = " and ".join(display_name(name) for name in rivals if name not in others)
        return Part("undecided", found.found, found.words, reason=f"needs {lacking} too", margin=found.margin)
    return found
