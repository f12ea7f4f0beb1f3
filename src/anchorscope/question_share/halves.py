"""Half splits: groups dealt to two halves again and again, so that evidence and what explains it never share a label.

In each split a probe learns from one half and scores the other; what the cut state still explains of those scores is
learned within that other half, out of fold. Halves and folds keep groups whole and balance relation × truth.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Int

from anchorscope.probes.folds import grouped_folds
from anchorscope.probes.grid_search import INNER_FOLDS
from anchorscope.stats.streams import priorities

SPLITS = 8
"""Half splits that are averaged over."""
RIDGE_FOLDS = 5
"""Folds within a half: who is explained is never learned from."""


@dataclass(frozen=True)
class Halves:
    """Who learns from whom; the same for every layer, site, position and intervention of a dataset."""

    first: Bool[np.ndarray, "split item"]
    """Whether an item is in the first half."""
    folds: Int[np.ndarray, "split item"]
    """Fold of each item within its own half."""
    inner: Int[np.ndarray, "split side item"]
    """Inner fold of the probe that learns from each half, -1 for items of the other one."""

    @property
    def n_splits(self) -> int:
        """Number of splits."""
        return len(self.first)

    @property
    def training(self) -> Bool[np.ndarray, "training_set item"]:
        """The items that each split's two probes learn from."""
        return (self.inner >= 0).reshape(-1, self.inner.shape[-1])


def make_halves(
    groups: Int[np.ndarray, " item"],
    strata: Int[np.ndarray, " item"],
    seed: int,
    item_ids: Sequence[str],
    n_splits: int = SPLITS,
) -> Halves:
    """Splits drawn by the items' names; `strata` (relation × truth) are even in every half and fold."""
    n = len(strata)
    first = np.zeros((n_splits, n), dtype=bool)
    folds = np.zeros((n_splits, n), dtype=np.int64)
    inner = np.full((n_splits, 2, n), -1, dtype=np.int64)
    for split in range(n_splits):
        order = priorities(seed, f"question share half {split}", item_ids)
        half = grouped_folds(groups, strata, 2, order)
        first[split] = half == 0
        for side in range(2):
            inside = np.flatnonzero(half == side)
            for purpose, n_folds, table in (
                ("fold", RIDGE_FOLDS, folds[split]),
                ("inner fold", INNER_FOLDS, inner[split, side]),
            ):
                drawn = priorities(seed, f"question share {purpose} {split}", item_ids)[inside]
                table[inside] = grouped_folds(groups[inside], strata[inside], n_folds, drawn)
    return Halves(first, folds, inner)
