"""Splits that keep groups whole and the share of true answers even: outer folds, inner folds, halves."""

import numpy as np
from jaxtyping import Bool, Int

from anchorscope.stats.streams import Priorities


def grouped_folds(
    groups: Int[np.ndarray, " item"], labels: Bool[np.ndarray, " item"], n_folds: int, order: Priorities
) -> Int[np.ndarray, " item"]:
    """The fold of each item; `order` are random numbers of the items.

    Groups are dealt out from the largest to the smallest (equal ones in the order of their smallest number), each to
    the fold whose numbers of true and false items it leaves most even.
    """
    names, member = np.unique(groups, return_inverse=True)
    number = np.full(len(names), np.iinfo(np.uint64).max, dtype=np.uint64)
    np.minimum.at(number, member, order)
    counts = np.zeros((len(names), 2))
    np.add.at(counts, (member, labels.astype(int)), 1)
    dealt = np.lexsort((number, -counts.sum(axis=1)))
    filled = np.zeros((n_folds, 2))
    share = np.maximum(counts.sum(axis=0), 1) / n_folds
    fold_of_group = np.zeros(len(names), dtype=np.int64)
    for group in dealt:
        # Squared excess over the even share, after the group went to each fold.
        cost = (((filled + counts[group]) / share) ** 2).sum(axis=1) - ((filled / share) ** 2).sum(axis=1)
        fold = min(range(n_folds), key=lambda place: (round(cost[place], 9), filled[place].sum()))  # emptiest of equals
        fold_of_group[group] = fold
        filled[fold] += counts[group]
    return fold_of_group[member]
