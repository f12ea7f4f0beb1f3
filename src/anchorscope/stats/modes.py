"""Does a sample have one mode or two: Hartigan's dip test.

The dip of a sample is the smallest distance between its distribution function and any unimodal one (convex up to a
mode, concave from there on) (Hartigan and Hartigan, Annals of
Statistics 13, 1985). It is found from the greatest convex minorant and the least concave majorant, between which the
modal interval is narrowed down. All samples of a call are worked on together, as points in one line, because a p-value
takes thousands of them. (`diptest` has one sample at a time, and no resamples.) Densities, to draw them, come first.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from anchorscope.stats.streams import stream

Floats = NDArray[np.floating]

_REACH = 4.0  # bandwidths beyond the outermost values: a Gaussian has lost all but 3e-5 of its area there


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


def gaussian_density(values: Floats, grid: Floats) -> Floats:
    """The density of values at the points of a grid; NaN where it has no width, as all values are the same."""
    from scipy.stats import gaussian_kde

    width = silverman_bandwidth(values)
    return gaussian_kde(values, width / np.std(values, ddof=1))(grid) if width > 0 else np.full(len(grid), np.nan)


Indices = NDArray[np.intp]

SAMPLES = 2000
"""Uniform samples behind a p-value."""

_AT_ONCE = 2**20  # points of all samples that are worked on together, in about 100 MB


def dip(values: Floats) -> float:
    """The dip of a sample: between 1/(2n) and 1/4 where its n values differ, 0 where all are the same."""
    return float(dips(values, np.ones((1, len(values))))[0])


def dips(values: Floats, counts: Floats) -> Floats:
    """The dip of each resample, which holds the values as often as counts [resample, value] say; NaN for an empty one.

    A value that comes several times is a high step, which a unimodal distribution can only have at its mode: resamples
    have larger dips than the sample that they are drawn from.
    """
    if not np.isfinite(values).all():
        raise ValueError("the dip is not defined for values that are not finite")
    if len(values) == 0:
        return np.full(len(counts), np.nan)
    order = np.argsort(values, kind="stable")
    different, starts = np.unique(values[order], return_index=True)
    return _in_chunks(different, np.add.reduceat(np.asarray(counts, float)[:, order], starts, axis=1))


def dip_p_value(found: float, n: int, seed: int, samples: int = SAMPLES) -> float:
    """How often n independent uniform values have at least this dip: (1 + those that have) / (1 + samples).

    The uniform distribution is the unimodal one whose dips are largest in long samples: the test is on the safe side.
    """
    return float((1 + (null_dips(n, seed, samples) >= found).sum()) / (1 + samples))


@lru_cache(maxsize=64)
def null_dips(n: int, seed: int, samples: int = SAMPLES) -> Floats:
    """Dips of uniform samples of n values; the same at every call with this seed."""
    uniform = np.sort(stream(seed, "dip test", str(n)).random((samples, n)), axis=1)
    found = _in_chunks(uniform, np.ones(uniform.shape))
    found.setflags(write=False)  # all callers share it
    return found


def _in_chunks(values: Floats, counts: Floats) -> Floats:
    """Dips of rows of sorted values, [value] or [row, value], that come so often, [row, value]."""
    step = max(1, _AT_ONCE // counts.shape[1])
    rows = np.broadcast_to(values, counts.shape)
    parts = [slice(start, start + step) for start in range(0, len(counts), step)]
    return np.concatenate([_Points.of(rows[part], counts[part]).dips() for part in parts] or [np.empty(0)])


@dataclass(frozen=True)
class _Points:
    """The different values of some samples in one line, each sample in order: [point]."""

    n_rows: int
    row: Indices
    """The sample of each point."""
    x: Floats
    before: Floats
    """The sample's distribution function just below each point."""
    after: Floats
    """The same at the point."""

    @classmethod
    def of(cls, values: Floats, counts: Floats) -> "_Points":
        totals = counts.sum(axis=1, keepdims=True)
        with np.errstate(invalid="ignore", divide="ignore"):
            reached = np.cumsum(counts, axis=1) / totals
        begun = np.concatenate([np.zeros_like(totals), reached[:, :-1]], axis=1)
        there = counts > 0
        return cls(len(counts), np.nonzero(there)[0], values[there], begun[there], reached[there])

    def take(self, points: NDArray[np.bool_]) -> "_Points":
        """Some of the points."""
        return _Points(self.n_rows, self.row[points], self.x[points], self.before[points], self.after[points])

    def dips(self) -> Floats:
        """The dip of each sample."""
        found = self._second_steps()
        here = self
        while len(here.row):  # each round narrows the modal intervals of the samples that are not done
            here = here._narrowed(found)
        return found / 2

    def _second_steps(self) -> Floats:
        """Twice the least that a dip can be: every step but one is half missed. NaN for empty samples."""
        order = np.lexsort((self.before - self.after, self.row))
        rows, starts, sizes = np.unique(self.row[order], return_index=True, return_counts=True)
        steps = (self.after - self.before)[order]
        found = np.full(self.n_rows, np.nan)
        found[rows] = np.where(sizes > 1, steps[np.minimum(starts + 1, len(steps) - 1)], 0.0)
        return found

    def _narrowed(self, found: Floats) -> "_Points":
        """The points of smaller modal intervals; what is outside of them goes into twice the dips found so far."""
        lower, upper = _hull(self.row, self.x, self.before), _hull(self.row, self.x, -self.after)
        minorant, majorant = _along(lower, self.x, self.before), _along(upper, self.x, self.after)
        at = np.arange(len(self.row))
        rows, starts = np.unique(self.row, return_index=True)
        ends = np.append(starts[1:], len(at)) - 1
        gaps = np.full(len(at), -np.inf)
        corners = np.union1d(lower, upper)
        gaps[corners] = (majorant - minorant)[corners]
        widest = np.maximum.reduceat(gaps, starts)
        widens = (widest >= found[rows]) & np.isfinite(widest)
        sizes = ends - starts + 1
        peaks = np.minimum.reduceat(np.where(gaps == np.repeat(widest, sizes), at, len(at)), starts)
        low = lower[np.searchsorted(lower, peaks, side="right") - 1]
        high = upper[np.searchsorted(upper, peaks)]
        below, above = at < np.repeat(low, sizes), at > np.repeat(high, sizes)
        missed = np.maximum(np.where(below, self.after - minorant, 0.0), np.where(above, majorant - self.before, 0.0))
        found[rows] = np.where(widens, np.maximum(found[rows], np.maximum.reduceat(missed, starts)), found[rows])
        goes_on = widens & ((low > starts) | (high < ends))
        inside = (at >= np.repeat(low, sizes)) & (at <= np.repeat(high, sizes))
        return self.take(np.repeat(goes_on, sizes) & inside)


def _hull(row: Indices, x: Floats, height: Floats) -> Indices:
    """The corners of each row's greatest convex minorant, its first and last point among them.

    A point on or above the line between any two others is no corner. So all that are, seen from the neighbours that are
    left, can go at once, until none is.
    """
    kept = np.arange(len(row))
    while len(kept) > 2:
        left, here, right = kept[:-2], kept[1:-1], kept[2:]
        rise, run = height[right] - height[left], x[right] - x[left]
        above = (height[here] - height[left]) * run >= rise * (x[here] - x[left])
        stays = np.ones(len(kept), bool)
        stays[1:-1] = ~(above & (row[left] == row[right]))
        if stays.all():
            break
        kept = kept[stays]
    return kept


def _along(corners: Indices, x: Floats, height: Floats) -> Floats:
    """The heights of the lines between corners at every point."""
    at = np.arange(len(x))
    place = np.searchsorted(corners, at, side="right") - 1
    left, right = corners[place], corners[np.minimum(place + 1, len(corners) - 1)]
    # A row's last point is a corner, after which the next row begins: it is not between two.
    share = np.divide(x - x[left], x[right] - x[left], out=np.zeros(len(x)), where=at != left)
    return height[left] + share * (height[right] - height[left])
