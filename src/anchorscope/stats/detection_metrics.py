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
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, logit, ndtri
from torch import Tensor
from torch.nn.functional import pad

from anchorscope.stats.estimate import LEVEL, percentile_interval

Floats = NDArray[np.float64]

_ENTRIES = {
    "cpu": 1 << 18,
    "cuda": 1 << 23,
}  # of a table at once; 2 MB on a CPU: a block's tables stay in the cache
CPU = torch.device("cpu")


@dataclass(frozen=True)
class Running:
    """Running sums down the order for some rows of weights; place 0 lies before the first item. All in float64."""

    total: Tensor
    """Weight of the items down to a place, [row, place]; places are the ends of ties."""
    true: Tensor
    """Weight of the truthful ones among them."""
    value: Tensor
    """Sum of weight × value down to a place: of the score, or of the probability."""
    pure: Tensor
    """Share of true answers among the equal scores that end at each place after the first, [place − 1], where it is
    0 or 1 whatever the weights; NaN where both kinds are."""

    @property
    def share(self) -> Tensor:
        """The same for every row, [row, place − 1]."""
        weight = self.total.diff()
        return torch.where(
            self.pure.isnan(),
            torch.where(weight > 0, self.true.diff() / weight, 0.0),
            self.pure,
        )

    @property
    def false(self) -> Tensor:
        """Weight of the false answers down to a place."""
        return self.total - self.true

    def at(self, shares: Tensor) -> tuple[Tensor, ...]:
        """The three sums at shares of the whole weight, [row, share] each; ties are passed in proportion."""
        whole = self.total[:, -1:]
        wanted = shares.to(whole) * whole
        high = torch.searchsorted(self.total, wanted, right=True).clamp(
            max=self.total.shape[1] - 1
        )
        tables = self.total, self.true, self.value
        (start, end), *others = [
            [table.gather(1, place) for place in (high - 1, high)] for table in tables
        ]
        part = torch.where(end > start, (wanted - start) / (end - start), 0.0)
        sums = [
            first + part * (last - first) for first, last in ((start, end), *others)
        ]
        return tuple(torch.where(whole > 0, each, torch.nan) for each in sums)


def per_row(
    measure: Callable[[Running], Tensor],
    scores: ArrayLike,
    truthful: ArrayLike,
    weights: ArrayLike | None,
    values: ArrayLike | None = None,
    device: torch.device = CPU,
) -> Floats:
    """A measure of every vector of weights [..., item]; the result has the leading shape, then the measure's own."""
    ordered_by, labels = np.asarray(scores, np.float64), np.asarray(truthful, bool)
    if np.isnan(ordered_by).any():
        raise ValueError("a score is not a number")
    given = np.ones(len(ordered_by)) if weights is None else np.asarray(weights)
    order = np.argsort(-ordered_by, kind="stable")
    ranked, ranked_labels = ordered_by[order], labels[order].astype(np.float64)
    starts = (
        np.flatnonzero(np.append(True, ranked[1:] != ranked[:-1]))
        if len(ranked)
        else np.zeros(0, np.int64)
    )
    ends = np.append(starts, len(ranked))
    of_ties = np.diff(np.append(0.0, ranked_labels.cumsum())[ends]) / np.diff(ends)
    pure = torch.from_numpy(
        np.where((of_ties == 0) | (of_ties == 1), of_ties, np.nan)
    ).to(device)
    by = ranked if values is None else np.asarray(values, np.float64)[order]
    true, value, places, item = (
        torch.from_numpy(part).to(device) for part in (ranked_labels, by, ends, order)
    )

    def sums(table: Tensor) -> Tensor:
        whole = pad(table.cumsum(1), (1, 0))
        return whole if len(places) == whole.shape[1] else whole[:, places]

    rows = torch.from_numpy(
        np.require(given.reshape(-1, given.shape[-1]), requirements=("C", "W"))
    )
    at_once = max(1, _ENTRIES[device.type] // max(1, len(ranked)))
    parts = []
    for block in rows.split(at_once):
        weight = block.to(device).index_select(1, item).double()
        parts.append(
            measure(
                Running(sums(weight), sums(weight * true), sums(weight * value), pure)
            )
        )
    together = torch.cat(parts).cpu().numpy()
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
        gaps = np.where(
            self.mass > 0, np.abs(self.probability - self.rate) * self.mass, 0.0
        )
        return np.where(defined, gaps.sum(axis=-1), np.nan)


def brier(
    probability: ArrayLike, truthful: ArrayLike, weights: ArrayLike | None = None
) -> Floats:
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
    return _as_bins(
        per_row(lambda sums: _by_mass(sums, bins), claimed, truthful, weights)
    )


def _as_bins(parts: Floats) -> ReliabilityBins:
    """The bins of their sums [..., 3, bin]."""
    mass, true, probability = np.moveaxis(parts, -2, 0)
    whole = mass.sum(axis=-1, keepdims=True)
    with np.errstate(invalid="ignore", divide="ignore"):
        return ReliabilityBins(probability / mass, true / mass, mass / whole)


def _by_mass(sums: Running, bins: int = BINS) -> Tensor:
    """Weight, true weight and weight × probability, [row, 3, bin]."""
    # The running sums come from high to low.
    return torch.stack(
        [
            one.diff().flip(1)
            for one in sums.at(torch.linspace(0, 1, bins + 1, dtype=torch.double))
        ],
        1,
    )


def _by_width(
    claimed: Floats, truthful: ArrayLike, weights: ArrayLike | None, bins: int
) -> Floats:
    edges = np.linspace(0, 1, bins + 1)
    bin_of = np.maximum(np.searchsorted(edges, claimed, side="left") - 1, 0)
    within = (bin_of[:, None] == np.arange(bins)).astype(np.float64)
    given = (
        np.ones(len(claimed)) if weights is None else np.asarray(weights, np.float64)
    )
    so = np.asarray(truthful, np.float64)
    return np.stack(
        [(given * value) @ within for value in (np.ones_like(claimed), so, claimed)],
        axis=-2,
    )


COVERAGES = (0.5, 0.8, 0.9)
"""Shares of accepted answers at which accuracy is reported."""

METRICS = (
    "auprc",
    "brier",
    "ece",
    "e-aurc",
    "prr",
    "accuracy@50",
    "accuracy@80",
    "accuracy@90",
)
"""What is reported of every detector beside its AUROC (`stats.auc`)."""


def accuracy_at_coverage(
    scores: ArrayLike,
    truthful: ArrayLike,
    weights: ArrayLike | None = None,
    coverages: ArrayLike = COVERAGES,
) -> Floats:
    """Share of true answers among the best-scored share of all, [..., coverage]; the last one in proportion."""
    shares = torch.from_numpy(np.asarray(coverages, np.float64))
    return per_row(lambda sums: _accuracy_at(sums, shares), scores, truthful, weights)


def risk_coverage_curve(
    scores: ArrayLike,
    truthful: ArrayLike,
    weights: ArrayLike | None = None,
    points: int = 100,
) -> tuple[Floats, Floats]:
    """Coverage 1/points … 1, [point], and the risk there, [..., point]: the same places for all weights, for bands."""
    coverage = np.arange(1, points + 1) / points
    return coverage, 1 - accuracy_at_coverage(scores, truthful, weights, coverage)


def all_metrics(
    probability: ArrayLike,
    truthful: ArrayLike,
    weights: ArrayLike | None = None,
    scores: ArrayLike | None = None,
    device: torch.device = CPU,
) -> dict[str, Floats]:
    """Every one of `METRICS`; order by `scores` where they are given (log-odds tie less often than probabilities)."""

    def of_the_order(sums: Running) -> Tensor:
        area, oracle = _area(sums), _oracle_area(sums)
        accuracy = sums.true[:, -1] / sums.total[:, -1]
        # How far the area lies from a random order's to the best; NaN where all answers are true, or all false.
        apart = oracle - accuracy
        rejection = torch.where(apart > 1e-12, (area - accuracy) / apart, torch.nan)
        mass, true, said = _by_mass(sums).unbind(1)
        error = (said - true).abs().sum(-1) / mass.sum(-1)
        kept = _accuracy_at(sums, torch.tensor(COVERAGES, dtype=torch.double))
        return torch.column_stack(
            [_average_precision(sums), error, oracle - area, rejection, kept]
        )

    ordered_by = probability if scores is None else scores
    order = np.moveaxis(
        per_row(of_the_order, ordered_by, truthful, weights, probability, device), -1, 0
    )
    return dict(
        zip(
            METRICS,
            (order[0], brier(probability, truthful, weights), *order[1:]),
            strict=True,
        )
    )


def _average_precision(sums: Running) -> Tensor:
    false = sums.false
    flagged_false, flagged = (
        false[:, -1:] - false[:, :-1],
        sums.total[:, -1:] - sums.total[:, :-1],
    )
    precision = flagged_false / flagged.clamp(min=torch.finfo(torch.double).tiny)
    return torch.linalg.vecdot(false.diff(), precision) / false[:, -1]


def _area(sums: Running) -> Tensor:
    """Mean accuracy among the k best over the whole numbers k; of a weight that is no whole number, the rest is kept.

    From place A to place A + g, where t of the weight g is true, the accuracy at k is (T + (k − A) t/g) / k. Its sum is
    t/g per k, and T − A t/g times the sum of 1/k: a difference of harmonic numbers, and these are digamma(k + 1).
    """
    n = sums.total[:, -1:]
    rest = n - (n + 1e-9).floor()
    total = sums.total.maximum(rest)
    share = sums.share
    base = sums.true[:, :-1] - sums.total[:, :-1] * share
    area = torch.linalg.vecdot(share, total.diff()) + torch.linalg.vecdot(
        base, torch.digamma(total + 1).diff()
    )
    return area / (n - rest)[:, 0]


def _oracle_area(sums: Running) -> Tensor:
    """The same where all true answers come first: 1 as long as they last, then T / k."""
    n, true = sums.total[:, -1], sums.true[:, -1]
    rest = n - (n + 1e-9).floor()
    first = true.maximum(rest)
    return (first - rest + true * (torch.digamma(n + 1) - torch.digamma(first + 1))) / (
        n - rest
    )


def _accuracy_at(sums: Running, shares: Tensor) -> Tensor:
    total, true, _ = sums.at(shares)
    return true / total


REFIT = 1.0
"""Variances between fold seeds that are added to a resampled AUROC's: resamples repeat no fit, and how much another
sample would change the fits shows in how far those of other folds disagree (tests/laws/detectors/test_evaluation.py
measures the coverage)."""


def auroc_interval(
    value: float, samples: Floats, spread: float = 0.0
) -> tuple[float, float]:
    """The 95 % interval of an AUROC, symmetric in its log-odds.

    `samples` are resamples of its items, `spread` is its standard deviation over fold seeds (0 for a fixed detector).
    Where all pairs are ranked alike there are no log-odds, and the percentiles of the resamples are taken.
    """
    if not 0 < value < 1:
        low, high = percentile_interval(samples)
        return float(low), float(high)
    error = float(np.sqrt(np.nanvar(samples) + REFIT * spread**2))
    middle, reach = (
        logit(value),
        -ndtri((1 - LEVEL) / 2) * error / (value * (1 - value)),
    )
    return float(expit(middle - reach)), float(expit(middle + reach))
