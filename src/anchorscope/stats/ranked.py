"""Items in the order of a score, and what lies above every place of it, for many vectors of weights at once.

Every measure of a detector that looks at order alone is a function of two running sums: the weight of all items, and
of the truthful ones, from the highest score down. The order does not hang on the weights, so items are sorted once; a
draw of the bootstrap, a weight that brings back the natural share of true answers, or both, is a row of weights. An
item of weight 2 counts as two items. Items of equal score are taken together: what would hang on their order is its
mean over all orders.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]

_ENTRIES = 1 << 18  # of a table at once: 2 MB, so that a block's tables stay in the cache


@dataclass(frozen=True)
class Running:
    """Running sums down the order for some rows of weights; place 0 lies before the first item."""

    total: Floats
    """Weight of the items down to a place, [row, place]; places are the ends of ties."""
    true: Floats
    """Weight of the truthful ones among them."""
    score: Floats
    """Sum of weight × score down to a place; no columns where it was not asked for."""

    pure: Floats
    """Share of true answers among the equal scores that end at each place after the first, [place − 1], where it is
    0 or 1 whatever the weights; NaN where both kinds are."""

    @property
    def share(self) -> Floats:
        """Share of true answers among the equal scores that end at each place after the first, [row, place − 1]."""
        found = np.broadcast_to(self.pure, (len(self.total), len(self.pure)))
        mixed = np.flatnonzero(np.isnan(self.pure))
        if len(mixed):
            true, total = (table[:, mixed + 1] - table[:, mixed] for table in (self.true, self.total))
            found = found.copy()
            found[:, mixed] = np.divide(true, total, out=np.zeros_like(true), where=total > 0)
        return found

    @property
    def false(self) -> Floats:
        """Weight of the false answers down to a place."""
        return self.total - self.true

    def at(self, shares: Floats) -> tuple[Floats, Floats, Floats]:
        """The three sums at shares of the whole weight, [row, share]; ties are passed in proportion."""
        found = np.full((3, len(self.total), len(shares)), np.nan)
        tables = [table for table in (self.total, self.true, self.score) if table.shape[1]]
        for row in np.flatnonzero(self.total[:, -1] > 0):
            wanted = shares * self.total[row, -1]
            for kind, table in enumerate(tables):
                found[kind, row] = np.interp(wanted, self.total[row], table[row])
        return found[0], found[1], found[2]


@dataclass(frozen=True)
class Ranked:
    """Items from the highest score to the lowest."""

    score: Floats
    """[item], in this order."""
    truthful: Floats
    """1 or 0."""
    order: NDArray[np.int64]
    ends: NDArray[np.int64]
    """The last item of every set of equal scores."""

    def running(self, weights: NDArray[np.floating], with_scores: bool) -> Iterator[Running]:
        """Running sums of weights [row, item], some rows at a time."""
        ends = self._sums(np.stack([np.ones_like(self.truthful), self.truthful]))
        size, true = np.diff(ends, axis=1)
        pure = np.where((true == 0) | (true == size), true / size, np.nan)
        at_once = max(1, _ENTRIES // max(1, len(self.order)))
        for first in range(0, len(weights), at_once):
            here = np.take(weights[first : first + at_once], self.order, axis=1).astype(np.float64, copy=False)
            score = self._sums(here * self.score) if with_scores else np.zeros((len(here), 0))
            yield Running(self._sums(here), self._sums(here * self.truthful), score, pure)

    def _sums(self, values: Floats) -> Floats:
        """Of values [row, item], [row, place]."""
        sums = np.zeros((len(values), values.shape[1] + 1))
        np.cumsum(values, axis=1, out=sums[:, 1:])
        return sums if len(self.ends) == values.shape[1] else sums[:, np.append(0, self.ends + 1)]


def ranked(scores: ArrayLike, truthful: ArrayLike) -> Ranked:
    """Items of one detector by score, [item] each."""
    values, labels = np.asarray(scores, np.float64), np.asarray(truthful, bool)
    if values.ndim != 1 or values.shape != labels.shape:
        raise ValueError(f"scores and labels are one number per item, found {values.shape} and {labels.shape}")
    if np.isnan(values).any():
        raise ValueError("a score is not a number")
    order = np.argsort(-values, kind="stable")
    here = values[order]
    ends = np.flatnonzero(np.append(here[1:] != here[:-1], True)) if len(here) else np.zeros(0, np.int64)
    return Ranked(here, labels[order].astype(np.float64), order, ends)


def per_row(
    measure: Callable[[Running], Floats],
    scores: ArrayLike,
    truthful: ArrayLike,
    weights: ArrayLike | None,
    with_scores: bool = False,
) -> Floats:
    """A measure of every vector of weights [..., item]; the result has the leading shape, then the measure's own."""
    items = ranked(scores, truthful)
    given = np.ones(len(items.order)) if weights is None else np.asarray(weights)
    if given.shape[-1] != len(items.order):
        raise ValueError(f"one weight per item: {given.shape[-1]} weights, {len(items.order)} items")
    rows = given.reshape(-1, given.shape[-1])
    together = np.concatenate([measure(running) for running in items.running(rows, with_scores)])
    return together.reshape(given.shape[:-1] + together.shape[1:])
