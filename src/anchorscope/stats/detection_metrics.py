"""How good a detector's scores are: order (AUPRC), risk after abstaining (risk–coverage, PRR), calibration.

A score is higher for an answer that is more likely true. Measures take `scores` [item], `truthful` [item] and `weights`
[..., item] (none: 1 each; a draw of the bootstrap is a row), and give one number per row, NaN where it is undefined. An
item of weight 2 counts as two; equal scores give the mean over their orders (AUPRC: they are flagged together). Items
are sorted once: every measure of order is a function of two running sums.

A detector flags false answers: the positive class of AUPRC is "not truthful". Coverage is the share of accepted
answers, best first; risk is the share of false ones among them.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import digamma, expit, logit, ndtri

from anchorscope.stats.estimate import LEVEL, percentile_interval

Floats = NDArray[np.float64]

_ENTRIES = 1 << 18  # of a table at once: 2 MB, so that a block's tables stay in the cache


@dataclass(frozen=True)
class Running:
    """Running sums down the order for some rows of weights; place 0 lies before the first item."""

    total: Floats
    """Weight of the items down to a place, [row, place]; places are the ends of ties."""
    true: Floats
    """Weight of the truthful ones among them."""
    value: Floats
    """Sum of weight × value down to a place: of the score, or of the probability."""
    pure: Floats
    """Share of true answers among the equal scores that end at each place after the first, [place − 1], where it is
    0 or 1 whatever the weights; NaN where both kinds are."""

    @property
    def share(self) -> Floats:
        """The same for every row, [row, place − 1]."""
        true, total = np.diff(self.true, axis=1), np.diff(self.total, axis=1)
        mixed = np.divide(true, total, out=np.zeros_like(true), where=total > 0)
        return np.ascontiguousarray(np.where(np.isnan(self.pure), mixed, self.pure))

    @property
    def false(self) -> Floats:
        """Weight of the false answers down to a place."""
        return self.total - self.true

    def at(self, shares: Floats) -> Floats:
        """The three sums at shares of the whole weight, [3, row, share]; ties are passed in proportion."""
        whole, n_places = self.total[:, -1:], self.total.shape[1]
        wanted = shares * whole
        low, high = np.zeros(wanted.shape, np.int64), np.full(wanted.shape, n_places - 1)
        for _ in range(n_places.bit_length()):  # halves all rows at once
            middle = (low + high) // 2
            is_passed = np.take_along_axis(self.total, middle, axis=1) <= wanted
            low, high = np.where(is_passed, middle, low), np.where(is_passed, high, middle)
        tables = self.total, self.true, self.value
        (start, end), *others = [[np.take_along_axis(table, at, axis=1) for at in (low, high)] for table in tables]
        part = np.divide(wanted - start, end - start, out=np.zeros_like(start), where=end > start)
        sums = np.stack([first + part * (last - first) for first, last in ((start, end), *others)])
        return np.where(whole > 0, sums, np.nan)


def per_row(
    measure: Callable[[Running], Floats],
    scores: ArrayLike,
    truthful: ArrayLike,
    weights: ArrayLike | None,
    values: ArrayLike | None = None,
) -> Floats:
    """A measure of every vector of weights [..., item]; the result has the leading shape, then the measure's own."""
    ordered_by, labels = np.asarray(scores, np.float64), np.asarray(truthful, bool)
    if np.isnan(ordered_by).any():
        raise ValueError("a score is not a number")
    given = np.ones(len(ordered_by)) if weights is None else np.asarray(weights)
    order = np.argsort(-ordered_by, kind="stable")
    ranked, true = ordered_by[order], labels[order].astype(np.float64)
    ranked_values = ranked if values is None else np.asarray(values, np.float64)[order]
    starts = np.flatnonzero(np.append(True, ranked[1:] != ranked[:-1])) if len(ranked) else np.zeros(0, np.int64)
    places = np.append(starts, len(ranked))

    def sums(table: Floats) -> Floats:
        whole = np.zeros((len(table), table.shape[1] + 1))
        np.cumsum(table, axis=1, out=whole[:, 1:])
        return whole if len(places) == whole.shape[1] else whole[:, places]

    of_ties = np.diff(sums(true[None]))[0] / np.diff(places)
    pure = np.where((of_ties == 0) | (of_ties == 1), of_ties, np.nan)
    rows, at_once = given.reshape(-1, given.shape[-1]), max(1, _ENTRIES // max(1, len(ranked)))
    parts = []
    for first in range(0, len(rows), at_once):
        weight = rows[first : first + at_once, order].astype(np.float64)
        parts.append(measure(Running(sums(weight), sums(weight * true), sums(weight * ranked_values), pure)))
    together = np.concatenate(parts)
    return together.reshape(given.shape[:-1] + together.shape[1:])


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
        defined = np.isfinite(self.mass).all(axis=-1)
        gaps = np.where(self.mass > 0, np.abs(self.probability - self.rate) * self.mass, 0.0)
        return np.where(defined, gaps.sum(axis=-1), np.nan)


def brier(probability: ArrayLike, truthful: ArrayLike, weights: ArrayLike | None = None) -> Floats:
    """Mean squared difference of probability and truth (1 or 0)."""
    claimed, so = np.asarray(probability, np.float64), np.asarray(truthful, np.float64)
    given = np.ones(len(claimed)) if weights is None else np.asarray(weights)
    whole = given.sum(axis=-1, dtype=np.float64)
    above = np.einsum("...i,i->...", given, (claimed - so) ** 2, dtype=np.float64)
    return np.divide(above, whole, out=np.full(whole.shape, np.nan), where=whole > 0)


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
    claimed = np.asarray(probability, np.float64)
    if equal_width:
        return _as_bins(_by_width(claimed, truthful, weights, bins))
    return _as_bins(per_row(lambda sums: _by_mass(sums, bins), claimed, truthful, weights))


def _as_bins(parts: Floats) -> ReliabilityBins:
    """The bins of their sums [..., 3, bin]."""
    mass, true, probability = np.moveaxis(parts, -2, 0)
    whole = mass.sum(axis=-1, keepdims=True)
    with np.errstate(invalid="ignore", divide="ignore"):
        return ReliabilityBins(probability / mass, true / mass, mass / whole)


def _by_mass(sums: Running, bins: int = BINS) -> Floats:
    """Weight, true weight and weight × probability, [row, 3, bin]."""
    # The running sums come from high to low.
    return np.stack([np.diff(one, axis=1)[:, ::-1] for one in sums.at(np.linspace(0, 1, bins + 1))], axis=1)


def _by_width(claimed: Floats, truthful: ArrayLike, weights: ArrayLike | None, bins: int) -> Floats:
    edges = np.linspace(0, 1, bins + 1)
    bin_of = np.maximum(np.searchsorted(edges, claimed, side="left") - 1, 0)
    within = (bin_of[:, None] == np.arange(bins)).astype(np.float64)
    given = np.ones(len(claimed)) if weights is None else np.asarray(weights, np.float64)
    so = np.asarray(truthful, np.float64)
    return np.stack([(given * value) @ within for value in (np.ones_like(claimed), so, claimed)], axis=-2)


COVERAGES = (0.5, 0.8, 0.9)
"""Shares of accepted answers at which accuracy is reported."""

METRICS = ("auprc", "brier", "ece", "e-aurc", "prr", "accuracy@50", "accuracy@80", "accuracy@90")
"""What is reported of every detector beside its AUROC (`stats.auc`)."""


def accuracy_at_coverage(
    scores: ArrayLike, truthful: ArrayLike, weights: ArrayLike | None = None, coverages: ArrayLike = COVERAGES
) -> Floats:
    """Share of true answers among the best-scored share of all, [..., coverage]; the last one in proportion."""
    shares = np.asarray(coverages, np.float64)
    return per_row(lambda sums: _accuracy_at(sums, shares), scores, truthful, weights)


def risk_coverage_curve(
    scores: ArrayLike, truthful: ArrayLike, weights: ArrayLike | None = None, points: int = 100
) -> tuple[Floats, Floats]:
    """Coverage 1/points … 1, [point], and the risk there, [..., point]: the same places for all weights, for bands."""
    coverage = np.arange(1, points + 1) / points
    return coverage, 1 - accuracy_at_coverage(scores, truthful, weights, coverage)


def all_metrics(
    probability: ArrayLike, truthful: ArrayLike, weights: ArrayLike | None = None, scores: ArrayLike | None = None
) -> dict[str, Floats]:
    """Every one of `METRICS`; order by `scores` where they are given (log-odds tie less often than probabilities)."""

    def of_the_order(sums: Running) -> Floats:
        area, oracle = _area(sums), _oracle_area(sums)
        accuracy = _ratio(sums.true[:, -1], sums.total[:, -1])
        # How far the area lies from a random order's to the best; NaN where all answers are true, or all false.
        apart = oracle - accuracy
        rejection = _ratio(area - accuracy, np.where(apart > 1e-12, apart, 0.0))
        kept = _accuracy_at(sums, np.asarray(COVERAGES))
        error = _as_bins(_by_mass(sums)).error
        return np.column_stack([_average_precision(sums), error, oracle - area, rejection, kept])

    ordered_by = probability if scores is None else scores
    order = np.moveaxis(per_row(of_the_order, ordered_by, truthful, weights, probability), -1, 0)
    return dict(zip(METRICS, (order[0], brier(probability, truthful, weights), *order[1:]), strict=True))


def _average_precision(sums: Running) -> Floats:
    false = sums.false
    flagged_false, flagged = false[:, -1:] - false[:, :-1], sums.total[:, -1:] - sums.total[:, :-1]
    precision = flagged_false / np.maximum(flagged, np.finfo(np.float64).tiny)
    return _ratio(np.einsum("rp,rp->r", np.diff(false, axis=1), precision), false[:, -1])


def _area(sums: Running) -> Floats:
    """Mean accuracy among the k best over the whole numbers k; of a weight that is no whole number, the rest is kept.

    From place A to place A + g, where t of the weight g is true, the accuracy at k is (T + (k − A) t/g) / k. Its sum is
    t/g per k, and T − A t/g times the sum of 1/k: a difference of harmonic numbers, and these are digamma(k + 1).
    """
    n = sums.total[:, -1:]
    rest = n - np.floor(n + 1e-9)
    total = np.maximum(sums.total, rest)
    share = sums.share
    area = np.einsum("rp,rp->r", share, np.diff(total, axis=1))
    base = sums.true[:, :-1] - sums.total[:, :-1] * share
    area += np.einsum("rp,rp->r", base, np.diff(digamma(total + 1), axis=1))
    return _ratio(area, (n - rest)[:, 0])


def _oracle_area(sums: Running) -> Floats:
    """The same where all true answers come first: 1 as long as they last, then T / k."""
    n, true = sums.total[:, -1], sums.true[:, -1]
    rest = n - np.floor(n + 1e-9)
    first = np.maximum(true, rest)
    return _ratio(first - rest + true * (digamma(n + 1) - digamma(first + 1)), n - rest)


def _accuracy_at(sums: Running, shares: Floats) -> Floats:
    total, true, _ = sums.at(shares)
    return _ratio(true, total)


def _ratio(above: Floats, below: Floats) -> Floats:
    return np.divide(above, below, out=np.full(np.broadcast(above, below).shape, np.nan), where=below > 0)


REFIT = 1.0
"""Variances between fold seeds that are added to a resampled AUROC's: resamples repeat no fit, and how much another
sample would change the fits shows in how far those of other folds disagree (tests/laws/detectors/test_evaluation.py
measures the coverage)."""


def auroc_interval(value: float, samples: Floats, spread: float = 0.0) -> tuple[float, float]:
    """The 95 % interval of an AUROC, symmetric in its log-odds.

    `samples` are resamples of its items, `spread` is its standard deviation over fold seeds (0 for a fixed detector).
    Where all pairs are ranked alike there are no log-odds, and the percentiles of the resamples are taken.
    """
    if not 0 < value < 1:
        low, high = percentile_interval(samples)
        return float(low), float(high)
    error = float(np.sqrt(np.nanvar(samples) + REFIT * spread**2))
    middle, reach = logit(value), -ndtri((1 - LEVEL) / 2) * error / (value * (1 - value))
    return float(expit(middle - reach)), float(expit(middle + reach))
