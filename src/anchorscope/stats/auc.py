"""Area under the ROC curve with ties counted half, within strata, for many score rows and many resamples at once.

Scores of different folds come from different probes and may not be compared with each other; so the AUC of a
cross-fitted score is the mean of the AUCs within the folds, weighted by their numbers of true–false pairs. The same
with folds × relations as strata is the AUC "within relations".
"""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating]


def auc(scores: Floats, labels: NDArray[np.bool_], strata: NDArray[np.integer] | None = None) -> Floats:
    """Pair-weighted mean of the AUCs within strata; scores [..., item], the result has the leading shape."""
    weights = np.ones((1, len(labels)))
    return resampled_auc(scores, labels, weights, strata)[0]


def resampled_auc(
    scores: Floats, labels: NDArray[np.bool_], weights: Floats, strata: NDArray[np.integer] | None = None
) -> Floats:
    """The same for each row of item weights [resample, item]; [resample, ...], NaN where no pair exists."""
    lead = scores.shape[:-1]
    rows = scores.reshape(-1, scores.shape[-1])
    places = np.zeros(len(labels), dtype=int) if strata is None else np.asarray(strata)
    wins = np.zeros((len(weights), len(rows)))
    pairs = np.zeros((len(weights), 1))
    for stratum in np.unique(places):
        inside = np.flatnonzero(places == stratum)
        positive = inside[labels[inside]]
        negative = inside[~labels[inside]]
        if len(positive) == 0 or len(negative) == 0:
            continue
        pairs[:, 0] += weights[:, positive].sum(1) * weights[:, negative].sum(1)
        for row, row_scores in enumerate(rows):
            wins[:, row] += _wins(
                row_scores[positive], row_scores[negative], weights[:, positive], weights[:, negative]
            )
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(pairs > 0, wins / pairs, np.nan).reshape(len(weights), *lead)


def _wins(positive: Floats, negative: Floats, positive_weights: Floats, negative_weights: Floats) -> Floats:
    """Weighted number of pairs in which the true item scores higher, ties half, per resample."""
    order = np.argsort(negative, kind="stable")
    ranked = negative[order]
    below = np.searchsorted(ranked, positive, side="left")
    not_above = np.searchsorted(ranked, positive, side="right")
    summed = np.concatenate(
        [np.zeros((len(negative_weights), 1)), np.cumsum(negative_weights[:, order], axis=1)], axis=1
    )
    beaten = 0.5 * (summed[:, below] + summed[:, not_above])
    return np.einsum("rp,rp->r", positive_weights, beaten)
