"""The shift that a cut gives to every item, and that says nothing about any one of them.

Cutting the question moves all of a probe's log-odds towards "false". One number s per fold and layer takes that away:
the one for which the share of items with log-odds − s > 0 after the cut equals the share with log-odds > 0 before it.
Labels are not used. Every bootstrap resample estimates its own s.
"""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating]


def matching_shift(before: Floats, after: Floats, weights: Floats) -> Floats:
    """s of one fold and layer, for each row of item weights [resample, item].

    Between the last item called true and the first called false any s would do. It is placed where zero lies between
    the two items around it before the cut: so a cut that changes nothing is not corrected at all, and one that moves
    every item alike is undone exactly.
    """
    called_true = weights @ (before > 0).astype(weights.dtype)  # weighted number
    high, low = _around(before, called_true, weights)
    new_high, new_low = _around(after, called_true, weights)
    with np.errstate(invalid="ignore", divide="ignore"):
        share = np.where(high > low, high / (high - low), 1.0)
        between = new_high - share * (new_high - new_low)
        # Where all items are called alike, the outermost one keeps its distance from zero.
        found = np.where(np.isinf(high), new_low - low, np.where(np.isinf(low), new_high - high, between))
    return found.astype(after.dtype)


def _around(scores: Floats, called_true: Floats, weights: Floats) -> tuple[Floats, Floats]:
    """Score of the last item that is called true and of the first called false, if so many of the highest are true."""
    order = np.argsort(-scores, kind="stable")
    reached = np.cumsum(weights[:, order], axis=1)
    last_true = (reached < called_true[:, None] - 0.5).sum(axis=1)
    first_false = (reached <= called_true[:, None] + 0.5).sum(axis=1)
    ranked = np.append(scores[order].astype(np.float64), -np.inf)
    return np.where(called_true > 0, ranked[last_true], np.inf), ranked[first_false]


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
