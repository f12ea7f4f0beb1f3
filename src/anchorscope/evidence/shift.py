"""The shift that a cut gives to every item, and that says nothing about any one of them.

Cutting the question moves all of a probe's log-odds towards "false". One number s per fold and layer takes that away:
the one for which the share of items with log-odds − s > 0 after the cut equals the share with log-odds > 0 before it.
Labels are not used. Every bootstrap resample estimates its own s.
"""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating]


def matching_shift(before: Floats, after: Floats, weights: Floats) -> Floats:
    """s of one fold and layer, for each row of item weights [resample, item]."""
    order = np.argsort(-after, kind="stable")
    ranked = after[order]
    positive = weights @ (before > 0).astype(weights.dtype)  # weighted number of items called true before
    reached = np.cumsum(weights[:, order], axis=1)
    # Items in front of the place where the count of "true" after the cut would exceed that before it.
    count = (reached <= positive[:, None] + 0.5).sum(axis=1)
    # A value midway between the last item called true and the first called false; beyond the ends, just past them.
    edges = np.concatenate([[ranked[0]], (ranked[:-1] + ranked[1:]) / 2, [np.nextafter(ranked[-1], -np.inf)]])
    return edges.astype(after.dtype)[count]


def shifts(before: Floats, after: Floats, folds: NDArray[np.integer], weights: Floats) -> Floats:
    """s of every item's fold, [resample, item], from one layer's log-odds [item]."""
    found = np.empty(weights.shape, dtype=after.dtype)
    for fold in np.unique(folds):
        inside = np.flatnonzero(folds == fold)
        found[:, inside] = matching_shift(before[inside], after[inside], weights[:, inside])[:, None]
    return found


def reference_shifts(
    before: Floats, after: Floats, folds: NDArray[np.integer], reference: NDArray[np.integer], weights: Floats
) -> Floats:
    """s at the reference layer of every item's fold, [resample, item], from log-odds [layer, item]."""
    found = np.empty(weights.shape, dtype=after.dtype)
    for fold in np.unique(folds):
        inside, layer = np.flatnonzero(folds == fold), reference[fold]
        moved = matching_shift(before[layer, inside], after[layer, inside], weights[:, inside])
        found[:, inside] = moved[:, None]
    return found
