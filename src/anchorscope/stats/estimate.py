"""A number with its interval: what every statistic here is, never a bare float; and the bootstrap behind the intervals.

The bootstrap draws whole groups with replacement, as items of one group are not independent.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

LEVEL = 0.95
"""Coverage of every interval."""


@dataclass(frozen=True)
class Estimate:
    """A statistic."""

    value: float
    ci_low: float
    ci_high: float
    n: int
    """Items that it rests on."""
    method: str
    """How value and interval were made."""


def simultaneous(estimate: Estimate, n: int) -> Estimate:
    """An estimate of which n are read together: its interval wider, so that all n hold at once (Bonferroni).

    Each end moves as that of a normal estimate would.
    """
    at = [NormalDist().inv_cdf(1 - (1 - LEVEL) / 2 / m) for m in (1, max(1, n))]
    wider = at[1] / at[0]
    low = estimate.value - wider * (estimate.value - estimate.ci_low)
    high = estimate.value + wider * (estimate.ci_high - estimate.value)
    return Estimate(
        estimate.value, low, high, estimate.n, f"{estimate.method}, for {n}"
    )


def percentile_interval(
    samples: NDArray[np.floating], axis: int = 0
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The central interval of bootstrap samples along an axis; undefined resamples are left out."""
    last = np.moveaxis(samples, axis, -1)
    rows = last.reshape(-1, last.shape[-1]).astype(np.float64)
    ends = np.full((2, len(rows)), np.nan)
    finite = np.isfinite(rows)
    whole = finite.all(axis=1)
    if whole.any():
        ends[:, whole] = _central(rows[whole])
    # few need to be checked one by one
    for row in np.flatnonzero(~whole & finite.any(axis=1)):
        ends[:, row] = _central(rows[row, finite[row]])
    low, high = ends.reshape(2, *last.shape[:-1])
    return low, high


def _central(
    samples: NDArray[np.float64],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Both ends along the last axis, as NumPy's percentiles are defined; without all their cases, in half the time."""
    n = samples.shape[-1]
    position = (1 - LEVEL) / 2 * (n - 1)
    inner, outer = min(int(position) + 1, n - 1), int(position)
    ranked = np.partition(
        samples, [outer, inner, n - 1 - inner, n - 1 - outer], axis=-1
    )
    low = ranked[..., outer] + (position - outer) * (
        ranked[..., inner] - ranked[..., outer]
    )
    high = ranked[..., n - 1 - outer] + (position - outer) * (
        ranked[..., n - 1 - inner] - ranked[..., n - 1 - outer]
    )
    return low, high


def estimate_share(number: int, n: int, of: str) -> Estimate:
    """The share that `number` is of n, with Wilson's interval; NaN of nothing."""
    if n == 0:
        return Estimate(math.nan, math.nan, math.nan, 0, f"no {of}")
    from scipy.stats import binomtest  # only here: it takes half a second

    interval = binomtest(number, n).proportion_ci(LEVEL, method="wilson")
    return Estimate(
        number / n,
        float(interval.low),
        float(interval.high),
        n,
        f"share of {of}, Wilson's interval",
    )


def group_weights(
    groups: NDArray[np.integer], resamples: int, rng: np.random.Generator
) -> NDArray[np.float32]:
    """How often each item's group is drawn, [resample, item]."""
    _, member = np.unique(groups, return_inverse=True)
    n_groups = int(member.max()) + 1 if len(member) else 0
    times = (
        rng.multinomial(n_groups, np.full(n_groups, 1 / n_groups), size=resamples)
        if n_groups
        else np.zeros((resamples, 0))
    )
    return times[:, member].astype(np.float32)


def kappa(numbers: NDArray[np.floating]) -> NDArray[np.floating]:
    """Cohen's kappa of two calls, from how many items get which pair of them, [2, 2, ...].

    NaN where both calls are constant and equal: there is nothing to agree on beyond chance.
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        shares = numbers / numbers.sum(axis=(0, 1))
        observed = shares[0, 0] + shares[1, 1]
        expected = (shares.sum(axis=0) * shares.sum(axis=1)).sum(axis=0)
        return np.where(expected < 1, (observed - expected) / (1 - expected), np.nan)


def holm(p_values: Sequence[float]) -> list[float]:
    """Each p-value times the tests that are at least as large, never below a smaller one's; NaN counts as no test."""
    ranked = sorted((p, index) for index, p in enumerate(p_values) if not math.isnan(p))
    corrected = [math.nan] * len(p_values)
    largest = 0.0
    for rank, (p, index) in enumerate(ranked):
        largest = max(largest, min(1.0, (len(ranked) - rank) * p))
        corrected[index] = largest
    return corrected
