"""Means over datasets and over cells of the train × test matrix, with their intervals.

Datasets share no items: their errors are independent, and the interval of the mean is narrower than each. Cells of the
matrix share test items and training items: their errors may all go the same way, and the interval of the mean is the
mean of the intervals. That is cautious, and can only turn a verdict into "inconclusive".
"""

import math
from collections.abc import Callable, Iterable, Sequence

from anchorscope.report.detection.results import Cell, DetectionResults
from anchorscope.stats.estimate import Estimate


def mean_of_datasets(found: Sequence[Estimate]) -> Estimate | None:
    """The mean of independent estimates; None of none."""
    return _mean(found, lambda sizes: math.hypot(*sizes) / len(sizes), "mean of the datasets, ends as of independent")


def mean_of_cells(found: Sequence[Estimate]) -> Estimate | None:
    """The mean of estimates that may err together; None of none."""
    return _mean(found, lambda sizes: math.fsum(sizes) / len(sizes), "mean of the cells, ends as of dependent")


def mean_difference(
    results: DetectionResults, detector: str, against: str, cells: Iterable[Cell], *, independent: bool = True
) -> Estimate | None:
    """`detector` minus `against` in the mean over the cells that have both."""
    each = [one for cell in cells if (one := results.difference(detector, against, cell)) is not None]
    return (mean_of_datasets if independent else mean_of_cells)(each)


def mean_value(
    results: DetectionResults, detector: str, cells: Iterable[Cell], *, independent: bool = True
) -> Estimate | None:
    """The AUROC of a detector in the mean over the cells that have it."""
    each = [one for cell in cells if (one := results.value(detector, cell)) is not None]
    return (mean_of_datasets if independent else mean_of_cells)(each)


def _mean(found: Sequence[Estimate], combined: Callable[[Sequence[float]], float], method: str) -> Estimate | None:
    if not found:
        return None
    if len(found) == 1:
        return found[0]
    value = math.fsum(one.value for one in found) / len(found)
    under = combined([one.value - one.ci_low for one in found])
    over = combined([one.ci_high - one.value for one in found])
    return Estimate(value, value - under, value + over, sum(one.n for one in found), method)
