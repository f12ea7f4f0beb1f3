"""How good a detector's scores are: order (AUROC, AUPRC), what is left after abstaining (risk–coverage, PRR).

A score is higher for an answer that is more likely true. All measures take `scores` [item], `truthful` [item] and
`weights` [..., item] (none: 1 each), give one number per vector of weights, NaN where it is not defined, and share
three properties: an item of weight 2 counts as two items, the order of the items does not matter, and where scores
are equal the measure is its mean over the orders of the equal ones (AUPRC: they are flagged together).
`stats.reliability` has the measures of a probability.

A detector flags false answers, so the positive class of AUPRC and of the ROC curve is "not truthful". Coverage is the
share of answers that are accepted, best first; risk is the share of false ones among these.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import digamma

from anchorscope.stats.ranked import Running, per_row
from anchorscope.stats.reliability import brier, ece

Floats = NDArray[np.float64]

COVERAGES = (0.5, 0.8, 0.9)
"""Shares of accepted answers at which accuracy is told."""

METRICS = ("auroc", "auprc", "brier", "ece", "excess_aurc", "prr", "accuracy_at_50", "accuracy_at_80", "accuracy_at_90")
"""What is told of every detector."""


def auroc(
    scores: ArrayLike, truthful: ArrayLike, weights: ArrayLike | None = None, strata: ArrayLike | None = None
) -> Floats:
    """Share of true–false pairs in which the true answer scores higher, ties half: `stats.auc` in weights.

    A pair counts by the product of its weights. With strata, only pairs within one count.
    """
    if strata is None:
        return per_row(lambda sums: _ratio(*_pairs(sums).T), scores, truthful, weights)
    values, labels, stratum_of = np.asarray(scores, np.float64), np.asarray(truthful, bool), np.asarray(strata)
    given = np.ones(len(labels)) if weights is None else np.asarray(weights)
    both = np.zeros((*given.shape[:-1], 2))
    for stratum in np.unique(stratum_of):
        inside = stratum_of == stratum
        both += per_row(_pairs, values[inside], labels[inside], given[..., inside])
    return _ratio(both[..., 0], both[..., 1])


def average_precision(scores: ArrayLike, truthful: ArrayLike, weights: ArrayLike | None = None) -> Floats:
    """AUPRC of the false answers: precision of what is flagged, averaged over the false answers (no interpolation).

    The precision at a false answer is the share of false ones among all answers that score as low or lower.
    """
    return per_row(_average_precision, scores, truthful, weights)


def aurc(scores: ArrayLike, truthful: ArrayLike, weights: ArrayLike | None = None) -> Floats:
    """Area under the risk–coverage curve: the mean, over k = 1 … n, of the risk among the k best answers."""
    return per_row(lambda sums: 1 - _area(sums, 1.0), scores, truthful, weights)


def excess_aurc(scores: ArrayLike, truthful: ArrayLike, weights: ArrayLike | None = None) -> Floats:
    """The area under the risk–coverage curve less that of an oracle, which accepts all true answers first."""
    return per_row(lambda sums: _oracle_area(sums, 1.0) - _area(sums, 1.0), scores, truthful, weights)


def prediction_rejection_area(
    scores: ArrayLike, truthful: ArrayLike, weights: ArrayLike | None = None, max_rejection: float = 1.0
) -> Floats:
    """Mean accuracy of what is kept while the worst answers are rejected one by one, up to a share of them."""
    return per_row(lambda sums: _area(sums, max_rejection), scores, truthful, weights)


def prediction_rejection_ratio(
    scores: ArrayLike, truthful: ArrayLike, weights: ArrayLike | None = None, max_rejection: float = 1.0
) -> Floats:
    """PRR: how far the prediction–rejection area goes from that of a random order (0) to the oracle's (1).

    As lm-polygraph defines it; its random order is a mean of 1,000 shuffles, ours is what they tend to, the accuracy.
    """
    return per_row(lambda sums: _rejection_ratio(sums, max_rejection), scores, truthful, weights)


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


def roc_curve(
    scores: ArrayLike, truthful: ArrayLike, weights: ArrayLike | None = None, points: int = 200
) -> tuple[Floats, Floats]:
    """Share of true answers that are flagged, 0 … 1, [point], and of false ones, [..., point], lowest scores first.

    Where many false answers are flagged at one share of true ones the curve rises steeply: the value is the highest.
    """
    grid = np.linspace(0, 1, points + 1)
    return grid, per_row(lambda sums: _flagged(sums, grid), scores, truthful, weights)


def all_metrics(
    probability: ArrayLike, truthful: ArrayLike, weights: ArrayLike | None = None, scores: ArrayLike | None = None
) -> dict[str, Floats]:
    """Every one of `METRICS`; order by `scores` where they are given (log-odds tie less often than probabilities)."""

    def of_the_order(sums: Running) -> Floats:
        pairs, area, oracle = _pairs(sums), _area(sums, 1.0), _oracle_area(sums, 1.0)
        ratio = _between(area, _accuracy(sums), oracle)
        found = [_ratio(pairs[:, 0], pairs[:, 1]), _average_precision(sums), oracle - area, ratio]
        return np.column_stack([*found, _accuracy_at(sums, np.asarray(COVERAGES))])

    order = np.moveaxis(per_row(of_the_order, probability if scores is None else scores, truthful, weights), -1, 0)
    error = ece(probability, truthful, weights)
    found = (order[0], order[1], brier(probability, truthful, weights), error, *order[2:])
    return dict(zip(METRICS, found, strict=True))


def _pairs(sums: Running) -> Floats:
    """Pairs that the true answer wins, and all pairs, [row, 2]."""
    false = sums.false
    # A true item is above the false ones that come after it, and half above those that tie with it.
    below = false[:, -1:] - (false[:, 1:] + false[:, :-1]) / 2
    wins = np.einsum("rp,rp->r", np.diff(sums.true, axis=1), below)
    return np.column_stack([wins, sums.true[:, -1] * false[:, -1]])


def _average_precision(sums: Running) -> Floats:
    false = sums.false
    flagged_false, flagged = false[:, -1:] - false[:, :-1], sums.total[:, -1:] - sums.total[:, :-1]
    precision = flagged_false / np.maximum(flagged, np.finfo(np.float64).tiny)
    return _ratio(np.einsum("rp,rp->r", np.diff(false, axis=1), precision), false[:, -1])


def _area(sums: Running, max_rejection: float) -> Floats:
    """Mean accuracy among the k best over the whole numbers k above those that are always kept.

    From place A to place A + g, where t of the weight g is true, the accuracy at k is (T + (k − A) t/g) / k. Its sum is
    t/g per k, and T − A t/g times the sum of 1/k, which is a difference of harmonic numbers.
    """
    n = sums.total[:, -1:]
    kept = n - np.floor(max_rejection * n + 1e-9)
    total = np.maximum(sums.total, kept)
    share = sums.share
    area = np.einsum("rp,rp->r", share, np.diff(total, axis=1))
    base = sums.true[:, :-1] - sums.total[:, :-1] * share
    area += np.einsum("rp,rp->r", base, np.diff(_harmonic(total), axis=1))
    return _ratio(area, (n - kept)[:, 0])


def _oracle_area(sums: Running, max_rejection: float) -> Floats:
    """The same where all true answers come first: 1 as long as they last, then T / k."""
    n, true = sums.total[:, -1], sums.true[:, -1]
    kept = n - np.floor(max_rejection * n + 1e-9)
    first = np.maximum(true, kept)
    return _ratio(first - kept + true * (_harmonic(n) - _harmonic(first)), n - kept)


def _rejection_ratio(sums: Running, max_rejection: float) -> Floats:
    return _between(_area(sums, max_rejection), _accuracy(sums), _oracle_area(sums, max_rejection))


def _between(value: Floats, random: Floats, best: Floats) -> Floats:
    """How far a value lies from the random one to the best; NaN where all answers are true, or all false."""
    apart = best - random
    return _ratio(value - random, np.where(apart > 1e-12, apart, 0.0))


def _accuracy(sums: Running) -> Floats:
    return _ratio(sums.true[:, -1], sums.total[:, -1])


def _accuracy_at(sums: Running, shares: Floats) -> Floats:
    total, true, _ = sums.at(shares)
    return _ratio(true, total)


def _flagged(sums: Running, grid: Floats) -> Floats:
    """Share of false answers flagged, [row, point], where so large a share of the true ones is."""
    found = np.full((len(sums.total), len(grid)), np.nan)
    true, false = sums.true[:, -1:] - sums.true[:, ::-1], sums.false[:, -1:] - sums.false[:, ::-1]
    for row in np.flatnonzero((true[:, -1] > 0) & (false[:, -1] > 0)):
        here, height = true[row] / true[row, -1], false[row] / false[row, -1]
        last = np.append(here[1:] != here[:-1], True)  # of a vertical piece only the top is wanted
        found[row] = np.interp(grid, here[last], height[last])
    return found


def _harmonic(k: Floats) -> Floats:
    """1 + 1/2 + … + 1/k, carried on smoothly between whole numbers (less Euler's constant)."""
    return digamma(k + 1)


def _ratio(above: Floats, below: Floats, otherwise: float = np.nan) -> Floats:
    return np.divide(above, below, out=np.full(np.broadcast(above, below).shape, otherwise), where=below > 0)
