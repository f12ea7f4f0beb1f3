"""How runs are asked: every curve, all datasets of a run together, one dataset against the others, or two sizes."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import combinations

import numpy as np

from anchorscope.report.earlier_readings.claim import NO_DRAWS, Check, Condition, Part, missing, worst
from anchorscope.report.earlier_readings.curve_measures import level, third
from anchorscope.report.palette import Q_ANCHORED, display_name
from anchorscope.report.size_order import order_by_size
from anchorscope.report.statements.run_curves import RunCurves, measurable
from anchorscope.report.verdicts import SAME_ORDER
from anchorscope.stats.curves import SampledCurve, crossing, difference_of, mean_of, ratio_of
from anchorscope.stats.estimate import Estimate

PAPER = ("popqa", "triviaqa", "hotpotqa", "nq")
"""The datasets of the charts that were read."""
SEVERAL_NEEDED = "needs a run on several datasets"
TWO_SIZES_NEEDED = "needs runs of two model sizes"
SHARED_NEEDED = "needs a dataset that both sizes were run on"
TWO_SHARED_NEEDED = "needs two datasets that both sizes were run on"

_OfCurve = Callable[[SampledCurve], Estimate]


def every(*conditions: Condition, groups: tuple[str, ...] = (Q_ANCHORED,)) -> Check:
    """All conditions for every dataset of every run; where the further ones hold, the first has the say."""

    def ask(runs: Sequence[RunCurves]) -> list[Part]:
        parts = []
        for run in runs:
            for dataset in run.datasets:
                curves = [run.curve(dataset, group) for group in groups]
                known = all(curve is not None for curve in curves)
                found = [one.judge(*curves) for one in conditions] if known else [missing(NO_DRAWS)]
                further = [part for part in found[1:] if part.verdict != "holds"]
                parts.append(replace(worst([found[0], *further]), dataset=dataset, model=run.model))
        return parts

    return Check("one model", ask)


def together(condition: Condition, groups: tuple[str, ...] = (Q_ANCHORED,)) -> Check:
    """The condition for all datasets of a run at once; its measure takes a list of curves per group."""
    return _of_runs(lambda run: _all_of(run, lambda *curves: condition.judge(*curves), groups))


def _all_of(run: RunCurves, ask: Callable[..., Part], groups: tuple[str, ...] = (Q_ANCHORED,)) -> Part:
    if len(run.datasets) < 2:
        return missing(SEVERAL_NEEDED)
    curves = [[run.curve(name, group) for name in run.datasets] for group in groups]
    if any(one is None or not np.isfinite(one.value).all() for found in curves for one in found):
        return missing(NO_DRAWS)
    return ask(*curves)


def one_order() -> Check:
    """Have all pairs of datasets an order, and is none turned round at any layer from a third of the depth on?"""

    def ask(run: RunCurves) -> Part:
        return _all_of(run, lambda curves: _turned(dict(zip(run.datasets, curves, strict=True))))

    return _of_runs(ask)


def _turned(curves: dict[str, SampledCurve]) -> Part:
    ranked = sorted(curves, key=lambda name: level(curves[name]).value)
    parts = []
    for lower, upper in combinations(ranked, 2):
        words = f"{display_name(lower)} − {display_name(upper)} is {{}} points in the mean"
        below = Condition(lambda first, second: difference_of(level(first), level(second)), words, under=0.0)
        parts.append(below.judge(curves[lower], curves[upper]))
    start = third(next(iter(curves.values())))
    swapped = Condition(lambda found: crossing(found, start), "two change places by {} points", under=SAME_ORDER)
    return worst([*parts, swapped.judge(list(curves.values()))])


def against_others(
    dataset: str, of: _OfCurve, words: str, *, over: float = -math.inf, under: float = math.inf
) -> Check:
    """One dataset against every other of the paper: any of them can refute it, all four are needed to bear it out."""
    rivals = [name for name in PAPER if name != dataset]

    def ask(run: RunCurves) -> Part:
        absent = [name for name in PAPER if name not in run.datasets]
        if dataset in absent or len(absent) == len(rivals):
            return missing(f"needs {display_name(dataset)} and another of the paper's datasets")
        mine, others = run.q(dataset), {name: curve for name in rivals if (curve := run.q(name)) is not None}
        if mine is None or not others:
            return missing(NO_DRAWS)
        parts = []
        for name, other in others.items():
            against = f"{words} {display_name(name)}"
            gap = Condition(lambda one, two: difference_of(of(one), of(two)), against, over, under)
            parts.append(gap.judge(mine, other))
        found = worst(parts)
        if found.verdict == "holds" and len(others) < len(rivals):
            lacking = " and ".join(display_name(name) for name in rivals if name not in others)
            return replace(found, verdict="undecided", reason=f"needs {lacking} too")
        return found

    return _of_runs(ask)


def sizes(condition: Condition, datasets: int = 1) -> Check:
    """The smallest run against the largest; the measure takes the Q-Anchored curves of either."""

    def ask(runs: Sequence[RunCurves]) -> list[Part]:
        order = order_by_size([run.findings for run in runs])
        if not order.by_size:
            return [missing(TWO_SIZES_NEEDED)]
        small, large = (next(run for run in runs if run.findings is order.runs[end]) for end in (0, -1))
        shared = [name for name in small.datasets if name in large.datasets]
        if len(shared) < datasets:
            return [missing(SHARED_NEEDED if datasets == 1 else TWO_SHARED_NEEDED)]
        kept = measurable((small, large), shared)
        kept = kept if len(kept) >= datasets else tuple(shared)
        curves = [[curve for name in kept if (curve := run.q(name)) is not None] for run in (small, large)]
        if any(len(found) < len(kept) for found in curves):
            return [missing(NO_DRAWS)]
        few = [display_name(name) for name in shared if name not in kept]
        left_out = f", without {', '.join(few)} (too few items)" if few else ""
        return [replace(condition.judge(*curves), model=f"{order.names[0]} to {order.names[-1]}{left_out}")]

    return Check("two model sizes", ask)


def change(of: _OfCurve) -> Callable[[Sequence[SampledCurve], Sequence[SampledCurve]], Estimate]:
    """The larger model's mean less the smaller one's."""
    return lambda small, large: difference_of(mean_of(list(map(of, large))), mean_of(list(map(of, small))))


def times(of: _OfCurve) -> Callable[[Sequence[SampledCurve], Sequence[SampledCurve]], Estimate]:
    """The larger model's mean over the smaller one's."""
    return lambda small, large: ratio_of(mean_of(list(map(of, large))), mean_of(list(map(of, small))))


def _of_runs(ask: Callable[[RunCurves], Part]) -> Check:
    return Check("several datasets", lambda runs: [replace(ask(run), model=run.model) for run in runs])
