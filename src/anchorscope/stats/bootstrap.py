"""The bootstrap over groups: whole groups are drawn with replacement, as items of one group are not independent."""

import numpy as np
from numpy.typing import NDArray

from anchorscope.stats.estimate import percentile_interval

RESAMPLES = 2000
"""Resamples behind every interval."""


def group_weights(groups: NDArray[np.integer], resamples: int, rng: np.random.Generator) -> NDArray[np.float32]:
    """How often each item's group is drawn, [resample, item]."""
    _, member = np.unique(groups, return_inverse=True)
    n_groups = int(member.max()) + 1 if len(member) else 0
    drawn = (
        rng.multinomial(n_groups, np.full(n_groups, 1 / n_groups), size=resamples)
        if n_groups
        else np.zeros((resamples, 0))
    )
    return drawn[:, member].astype(np.float32)


def weighted_mean(values: NDArray[np.floating], weights: NDArray[np.floating]) -> NDArray[np.floating]:
    """Means of values [item, ...] under each row of weights [resample, item]; NaN where no item is drawn."""
    flat = values.reshape(len(values), int(np.prod(values.shape[1:]))).astype(np.float64)
    total = weights.sum(axis=1, dtype=np.float64)
    with np.errstate(invalid="ignore", divide="ignore"):
        means = (weights.astype(np.float64) @ flat) / total[:, None]
    return np.where(total[:, None] > 0, means, np.nan).reshape(len(weights), *values.shape[1:])


def mean_with_interval(
    values: NDArray[np.floating], weights: NDArray[np.floating]
) -> tuple[NDArray[np.floating], NDArray[np.floating], NDArray[np.floating]]:
    """Mean over items of values [item, ...] and its interval from the given resamples."""
    if len(values) == 0:
        empty = np.full(values.shape[1:], np.nan)
        return empty, empty, empty
    low, high = percentile_interval(weighted_mean(values, weights))
    return values.mean(axis=0, dtype=np.float64), low, high
