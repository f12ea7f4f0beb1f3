"""Means and differences of groups with bootstrap intervals, effect sizes and tests; the same draws everywhere.

Every draw resamples whole groups of questions and both sides of a difference come from the same draw, so that the
differences are paired wherever the same questions stand on both sides. Tests use the bootstrap's standard error and a
normal distribution: a share of 2,000 draws could not go below one in a thousand, and a heat map has more cells.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.stats import false_discovery_control, norm
from torch import Tensor

from anchorscope.evidence.draws import Draws, ratio
from anchorscope.stats.estimate import Estimate, percentile_interval

Floats = NDArray[np.floating]
Bools = NDArray[np.bool_]

METHOD = "bootstrap over groups"
FEW = 10
"""Items of a group below which nothing is said of it: its interval would rest on a handful of questions."""
_STILL = 1e-12  # numbers that differ by less in all draws differ by rounding only


def of_truth(labels: Bools, truth: str) -> Bools:
    """Which items are meant by `all`, `true` or `false`."""
    return np.ones(len(labels), bool) if truth == "all" else labels == (truth == "true")


def answers_of(truth: str) -> str:
    """The same in words."""
    return "items" if truth == "all" else f"{truth} answers"


def in_groups_of(assignment: str | None, method: str = METHOD) -> str:
    """How a number was made whose groups stay as they are in the sample, whatever the draw.

    The corrected rule rests on an estimate, and elsewhere every draw makes its own groups by it.
    """
    return f"{method}, groups of the sample" if assignment == "corrected" else method


def group_means(values: Floats, inside: Bools, draws: Draws, weights: Floats | None = None) -> Tensor:
    """Mean of values [item, k] over the items inside, in every draw, [k, draw]; NaN values do not count.

    `weights` [item] say how many items each one stands for.
    """
    there = np.isfinite(values) & inside[:, None]
    each = np.ones(len(values)) if weights is None else weights
    filled = np.where(there, values, 0.0) * each[:, None]
    return ratio(draws.sums(filled), draws.sums(there * each[:, None]))


def estimate_of(samples: Tensor, n: int, method: str = METHOD) -> Estimate:
    """Value and interval of one number in every draw, [draw]; the first draw is the sample itself."""
    found = samples.cpu().numpy()
    low, high = percentile_interval(found[1:])
    return Estimate(float(found[0]), float(low), float(high), n, method)


def p_values(samples: Tensor, null: float = 0.0) -> Floats:
    """Two-sided p-values of numbers in every draw, [..., draw], against a null value.

    NaN where all draws agree: there is then no standard error to go by.
    """
    found = samples.cpu().numpy()
    spread = np.ma.filled(np.ma.masked_invalid(found[..., 1:]).std(axis=-1), np.nan)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(spread > _STILL, 2 * norm.sf(np.abs(found[..., 0] - null) / spread), np.nan)


def p_value(samples: Tensor, null: float = 0.0) -> float | None:
    """The p-value of one number in every draw, [draw]; None where there is none."""
    return known(float(p_values(samples, null)))


def known(number: float) -> float | None:
    """A number, or None where it is not one."""
    return float(number) if np.isfinite(number) else None


def q_values(p: Sequence[float] | Floats) -> Floats:
    """p-values with the false discovery rate controlled (Benjamini and Hochberg); NaN stays NaN and counts for none."""
    given = np.asarray(p, dtype=float)
    found = np.full(given.shape, np.nan)
    there = np.isfinite(given)
    if there.any():
        found[there] = false_discovery_control(given[there])
    return found


def cohens_d(first: Floats, second: Floats) -> float | None:
    """Difference of two groups' means in pooled standard deviations; None where it is not defined."""
    n = len(first) + len(second) - 2
    if min(len(first), len(second)) < 2 or n < 1:
        return None
    pooled = np.sqrt(((len(first) - 1) * np.var(first, ddof=1) + (len(second) - 1) * np.var(second, ddof=1)) / n)
    return float((np.mean(first) - np.mean(second)) / pooled) if pooled > 0 else None


def mean_in_deviations(values: Floats) -> float | None:
    """A mean in standard deviations of the items; None where it is not defined."""
    spread = float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
    return float(np.mean(values)) / spread if spread > 0 else None
