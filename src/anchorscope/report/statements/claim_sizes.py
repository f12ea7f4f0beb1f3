"""Claims about a larger model against a smaller one: the largest and the smallest run, mean over their datasets."""

from collections.abc import Callable, Sequence

from anchorscope.report.palette import display_name
from anchorscope.report.statements.claim import NO_DRAWS, Part, decide, missing, named
from anchorscope.report.statements.run_curves import RunCurves, depth_below_zero, fall_per_layer, lowest, measurable
from anchorscope.report.statements.size_trends import order_by_size
from anchorscope.report.verdicts import GREATER, SAME_RATE
from anchorscope.report.wording import estimate, points
from anchorscope.stats.curve_order import difference_of, mean_of, ratio_of, spread
from anchorscope.stats.curve_shape import decline, volatility
from anchorscope.stats.estimate import Estimate
from anchorscope.stats.sampled_curve import SampledCurve

TWO_SIZES_NEEDED = "needs runs of two model sizes: anchorscope compare"
SHARED_NEEDED = "needs a dataset that both sizes were run on"
TWO_SHARED_NEEDED = "needs two datasets that both sizes were run on"

Measure = Callable[[Sequence[SampledCurve]], Estimate]


def deeper(runs: Sequence[RunCurves]) -> list[Part]:
    """Is the trough of the larger model lower?"""

    def part(small: Estimate, large: Estimate) -> Part:
        change = difference_of(large, small)
        return decide(change, f"the trough changes by {points(change)} points", under=0.0)

    return _compare(runs, _mean(lowest), part)


def a_quarter_greater(runs: Sequence[RunCurves]) -> list[Part]:
    """Is the trough of the larger model 20–30 % deeper?"""

    def part(small: Estimate, large: Estimate) -> Part:
        times = ratio_of(large, small)
        return decide(times, f"{estimate(times)} times as deep", over=GREATER[0], under=GREATER[1])

    return _compare(runs, _mean(depth_below_zero), part)


def longer_decline(runs: Sequence[RunCurves]) -> list[Part]:
    """Does the decline take more layers in the larger model?"""

    def part(small: Estimate, large: Estimate) -> Part:
        change = difference_of(large, small)
        return decide(change, f"the decline changes by {estimate(change, 1)} layers", over=0.0)

    return _compare(runs, _mean(lambda curve: decline(curve).length), part)


def more_volatile(runs: Sequence[RunCurves]) -> list[Part]:
    """Are the larger model's curves more jagged?"""

    def part(small: Estimate, large: Estimate) -> Part:
        times = ratio_of(large, small)
        return decide(times, f"{estimate(times)} times as jagged", over=1.0)

    return _compare(runs, _mean(volatility), part)


def same_rate(runs: Sequence[RunCurves]) -> list[Part]:
    """Do both lose about as much per layer?"""

    def part(small: Estimate, large: Estimate) -> Part:
        times = ratio_of(large, small)
        return decide(times, f"{estimate(times)} times as much per layer", over=SAME_RATE[0], under=SAME_RATE[1])

    return _compare(runs, _mean(fall_per_layer), part)


def tighter_end(runs: Sequence[RunCurves]) -> list[Part]:
    """Do the larger model's datasets end closer together?"""

    def part(small: Estimate, large: Estimate) -> Part:
        change = difference_of(large, small)
        return decide(change, f"the spread at the last layer changes by {points(change)} points", under=0.0)

    return _compare(runs, lambda curves: spread(curves, -1), part, datasets=2)


def _mean(of: Callable[[SampledCurve], Estimate]) -> Measure:
    return lambda curves: mean_of([of(curve) for curve in curves])


def _compare(
    runs: Sequence[RunCurves], measure: Measure, part: Callable[[Estimate, Estimate], Part], datasets: int = 1
) -> list[Part]:
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
    whose = f"{order.names[0]} to {order.names[-1]}" + (f", without {', '.join(few)} (too few items)" if few else "")
    return [named(part(*(measure(found) for found in curves)), "", whose)]
