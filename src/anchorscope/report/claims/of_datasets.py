"""Claims that compare the datasets of a model, along their Q-Anchored curves; each run is asked on its own.

Levels are means from a third of the depth on: before it all curves are near zero, and a mean is not misled by one
noisy layer as a lowest value is.
"""

from collections.abc import Callable, Sequence
from itertools import combinations

import numpy as np

from anchorscope.report.across.measures import gap_beyond_spread, mean_from, third, two_thirds, widest_gap
from anchorscope.report.across.run_curves import RunCurves
from anchorscope.report.claims.claim import NO_DRAWS, Part, decide, missing, named, worst
from anchorscope.report.palette import display_name
from anchorscope.report.wording import points
from anchorscope.stats.curve_order import closing, crossing
from anchorscope.stats.curve_shape import volatility
from anchorscope.stats.estimate import Estimate
from anchorscope.stats.independent import difference_of
from anchorscope.stats.sampled_curve import SampledCurve

PAPER = ("popqa", "triviaqa", "hotpotqa", "nq")
"""The datasets of the charts that were read."""
SIMILAR = 30.0
"""Points. The widest that reading 5 gives lines that it calls very similar (−40 to −70 at one layer)."""
REVERSED = 5.0
"""Points. Two lines that cross by less than random cuts move a curve have not changed their order."""

Check = Callable[[Sequence[RunCurves]], list[Part]]


def lowest(dataset: str) -> Check:
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
        return decide(size, f"{points(size)} points apart where two are farthest", under=SIMILAR)

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
        parts.append(decide(back, f"two change places by {points(back)} points", under=REVERSED))
        return worst(parts)

    return _each(lambda run: _together(run, turned))(runs)


def converge(runs: Sequence[RunCurves]) -> list[Part]:
    """Are the datasets closer together at the last layer than in the middle third?"""

    def narrowing(run: RunCurves, curves: dict[str, SampledCurve]) -> Part:
        every = list(curves.values())
        nearer = closing(every, slice(third(every[0]), two_thirds(every[0]) + 1))
        return decide(nearer, f"distance in the middle less that at the end: {points(nearer)} points", over=0.0)

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
