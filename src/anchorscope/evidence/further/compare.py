"""Means and differences of groups with bootstrap intervals, effect sizes and tests; the same draws everywhere.

Every draw resamples whole groups of questions and both sides of a difference come from the same draw, so that the
differences are paired wherever the same questions stand on both sides. Tests use the bootstrap's standard error and a
normal distribution: a share of 2,000 draws could not go below one in a thousand, and a heat map has more cells.
"""

from collections.abc import Sequence

import numpy as np
import torch
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


def group_means(values: Floats, inside: Bools, draws: Draws, weights: Floats | None = None) -> Tensor:
    """Mean of values [item, k] over the items inside, in every draw, [k, draw]; NaN values do not count.

    `weights` [item] say how many items each one stands for.
    """
    known = np.isfinite(values) & inside[:, None]
    each = np.ones(len(values)) if weights is None else weights
    filled = np.where(known, values, 0.0) * each[:, None]
    return ratio(draws.sums(filled), draws.sums(known * each[:, None]))


def estimate_of(samples: Tensor, n: int, method: str = METHOD) -> Estimate:
    """Value and interval of one number in every draw, [draw]; the first draw is the sample itself."""
    found = samples.cpu().numpy()
    low, high = percentile_interval(found[1:])
    return Estimate(float(found[0]), float(low), float(high), n, method)


def p_values(samples: Tensor, null: float = 0.0) -> Floats:
    """Two-sided p-values of numbers in every draw, [..., draw], against a null value."""
    found = samples.cpu().numpy()
    spread = np.nanstd(found[..., 1:], axis=-1)
    with np.errstate(invalid="ignore", divide="ignore"):
        return 2 * norm.sf(np.abs(found[..., 0] - null) / spread)


def q_values(p: Sequence[float] | Floats) -> Floats:
    """p-values with the false discovery rate controlled (Benjamini and Hochberg); NaN stays NaN and counts for none."""
    given = np.asarray(p, dtype=float)
    found = np.full(given.shape, np.nan)
    known = np.isfinite(given)
    if known.any():
        found[known] = false_discovery_control(given[known])
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


def stacked(parts: Sequence[Tensor]) -> Tensor:
    """Several numbers in every draw as one table, [k, draw]."""
    return torch.stack(list(parts))
