"""A number with its interval: what every statistic here is, never a bare float."""

from dataclasses import dataclass

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


def percentile_interval(
    samples: NDArray[np.floating], axis: int = 0
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The central interval of bootstrap samples along an axis; undefined resamples are left out."""
    tail = 100 * (1 - LEVEL) / 2
    defined = np.isfinite(samples).any(axis=axis)
    filled = np.where(np.expand_dims(defined, axis), samples, 0.0)
    low, high = np.nanpercentile(filled, [tail, 100 - tail], axis=axis)
    return np.where(defined, low, np.nan), np.where(defined, high, np.nan)
