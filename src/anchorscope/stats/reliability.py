"""How far a probability of "truthful" can be taken at its word: Brier score, calibration error, reliability diagram.

`probability` and `truthful` are [item], `weights` [..., item] (none: 1 each); the results have the leading shape. An
item of weight 2 counts as two items.

The calibration error of a finite sample is above 0 even for a perfect probability: with n items in B bins by about
0.8 · √(B/n) · √(p (1 − p)) at a rate of p, 0.02 for 3,000 items in 10 bins.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from anchorscope.stats.ranked import Running, per_row

Floats = NDArray[np.float64]

BINS = 10
"""Bins of equal mass."""


@dataclass(frozen=True)
class ReliabilityBins:
    """What was said and what was so, per bin, from low to high; NaN where a bin is empty."""

    probability: Floats
    """Mean probability, [..., bin]."""
    rate: Floats
    """Share of true answers, [..., bin]."""
    mass: Floats
    """Share of all weight, [..., bin]."""

    @property
    def error(self) -> Floats:
        """Expected calibration error: mean of |mean probability − rate|, by mass, [...]."""
        known = np.isfinite(self.mass).all(axis=-1)
        gaps = np.where(self.mass > 0, np.abs(self.probability - self.rate) * self.mass, 0.0)
        return np.where(known, gaps.sum(axis=-1), np.nan)


def brier(probability: ArrayLike, truthful: ArrayLike, weights: ArrayLike | None = None) -> Floats:
    """Mean squared difference of probability and truth (1 or 0)."""
    said, so = np.asarray(probability, np.float64), np.asarray(truthful, np.float64)
    return _weighted_mean((said - so) ** 2, weights)


def calibration_gap(probability: ArrayLike, truthful: ArrayLike, weights: ArrayLike | None = None) -> Floats:
    """Mean probability less the share of true answers: calibration in the large, with its sign."""
    said, so = np.asarray(probability, np.float64), np.asarray(truthful, np.float64)
    return _weighted_mean(said - so, weights)


def ece(
    probability: ArrayLike,
    truthful: ArrayLike,
    weights: ArrayLike | None = None,
    bins: int = BINS,
    equal_width: bool = False,
) -> Floats:
    """Expected calibration error in bins of equal mass (or width): mean |mean probability − rate|, by mass.

    The class-wise error of two classes is the same number: the bins of 1 − p are those of p, mirrored.
    """
    return reliability_bins(probability, truthful, weights, bins, equal_width).error


def reliability_bins(
    probability: ArrayLike,
    truthful: ArrayLike,
    weights: ArrayLike | None = None,
    bins: int = BINS,
    equal_width: bool = False,
) -> ReliabilityBins:
    """The bins of a reliability diagram.

    Bins of equal mass hold equal shares of the weight; an item on an edge belongs to both in proportion, and so do
    items of equal probability. Bins of equal width are (lower, upper], the first one with its lower edge.
    """
    said = np.asarray(probability, np.float64)
    if len(said) and (said.min() < 0 or said.max() > 1):
        raise ValueError(f"a probability lies between 0 and 1; found {said.min():.4g} to {said.max():.4g}")
    parts = _by_width(said, truthful, weights, bins) if equal_width else _by_mass(said, truthful, weights, bins)
    mass, true, said_sum = np.moveaxis(parts, -2, 0)
    whole = mass.sum(axis=-1, keepdims=True)
    with np.errstate(invalid="ignore", divide="ignore"):
        return ReliabilityBins(said_sum / mass, true / mass, mass / whole)


def _by_mass(said: Floats, truthful: ArrayLike, weights: ArrayLike | None, bins: int) -> Floats:
    """Weight, true weight and weight × probability, [..., 3, bin]."""
    edges = np.linspace(0, 1, bins + 1)

    def parts(sums: Running) -> Floats:
        # The running sums come from high to low.
        return np.stack([np.diff(one, axis=1)[:, ::-1] for one in sums.at(edges)], axis=1)

    return per_row(parts, said, truthful, weights, with_scores=True)


def _by_width(said: Floats, truthful: ArrayLike, weights: ArrayLike | None, bins: int) -> Floats:
    edges = np.linspace(0, 1, bins + 1)
    place = np.maximum(np.searchsorted(edges, said, side="left") - 1, 0)
    within = (place[:, None] == np.arange(bins)).astype(np.float64)
    given = np.ones(len(said)) if weights is None else np.asarray(weights, np.float64)
    so = np.asarray(truthful, np.float64)
    return np.stack([(given * value) @ within for value in (np.ones_like(said), so, said)], axis=-2)


def _weighted_mean(values: Floats, weights: ArrayLike | None) -> Floats:
    given = np.ones(len(values)) if weights is None else np.asarray(weights)
    whole = given.sum(axis=-1, dtype=np.float64)
    above = np.einsum("...i,i->...", given, values, dtype=np.float64)
    return np.divide(above, whole, out=np.full(whole.shape, np.nan), where=whole > 0)
