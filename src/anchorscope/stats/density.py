"""The density of a sample as a smooth curve: a Gaussian around every value, as wide as Silverman's rule says."""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating]

_REACH = 4.0  # bandwidths beyond the outermost values: a Gaussian has lost all but 3e-5 of its area there
_AT_ONCE = 2**22  # pairs of a value and a point of the grid


def silverman_bandwidth(values: Floats) -> float:
    """0.9 · min(standard deviation, interquartile range / 1.34) · n^(−1/5); 0 where all values are the same.

    The rule assumes one mode, so that it rather smooths two modes into one than draws one as two.
    """
    if len(values) < 2:
        return 0.0
    spread = float(np.std(values, ddof=1))
    low, high = np.percentile(values, [25, 75])
    middle = float(high - low) / 1.34
    return 0.9 * (min(spread, middle) if middle > 0 else spread) * len(values) ** -0.2


def density_grid(values: Floats, points: int = 256) -> Floats:
    """Where to draw the density of some values: a little beyond the outermost on both sides."""
    beyond = _REACH * (silverman_bandwidth(values) or 1.0)
    return np.linspace(float(np.min(values)) - beyond, float(np.max(values)) + beyond, points)


def gaussian_density(values: Floats, grid: Floats, bandwidth: float | None = None) -> Floats:
    """The density of values at the points of a grid; NaN where it has no width, as all values are the same."""
    if not np.isfinite(values).all():
        raise ValueError("the density of values that are not finite is not defined")
    width = silverman_bandwidth(values) if bandwidth is None else bandwidth
    if width <= 0:
        return np.full(len(grid), np.nan)
    found = np.zeros(len(grid))
    step = max(1, _AT_ONCE // max(1, len(grid)))
    for start in range(0, len(values), step):
        away = (grid[:, None] - values[None, start : start + step]) / width
        found += np.exp(-0.5 * away**2).sum(axis=1)
    return found / (len(values) * width * np.sqrt(2 * np.pi))
