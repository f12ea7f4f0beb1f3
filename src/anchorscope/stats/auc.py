"""Area under the ROC curve (AUC): how often a true item scores above a false one, ties counted half, within strata.

Scores of different folds come from different probes and may not be compared with each other; so the AUC of a
cross-fitted score is the mean of the AUCs within the folds, weighted by their numbers of true–false pairs. The same
with folds × relations as strata is the AUC "within relations". `evidence.areas` computes it in every draw of the
bootstrap.
"""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating]


def auc(scores: Floats, labels: NDArray[np.bool_], strata: NDArray[np.integer] | None = None) -> Floats:
    """Pair-weighted mean of the AUCs within strata; NaN where there is no pair.

    Scores are [..., item]; labels are [item], or [..., item] where every row has its own. The result has the leading
    shape.
    """
    from scipy.stats import rankdata  # only here: it takes half a second, and workers that are started seldom need it

    shape = np.broadcast_shapes(scores.shape, labels.shape)
    scores, labels = np.broadcast_to(scores, shape), np.broadcast_to(labels, shape)
    stratum_of = np.zeros(shape[-1], np.int64) if strata is None else np.asarray(strata)
    wins, pairs = np.zeros(shape[:-1]), np.zeros(shape[:-1])
    for stratum in np.unique(stratum_of):
        inside = stratum_of == stratum
        true = labels[..., inside]
        n_true = true.sum(axis=-1)
        # Mann–Whitney: the true items' ranks among all, less those that they would have among themselves.
        wins += (rankdata(scores[..., inside], axis=-1) * true).sum(axis=-1) - n_true * (n_true + 1) / 2
        pairs += n_true * (true.shape[-1] - n_true)
    return np.divide(wins, pairs, out=np.full(shape[:-1], np.nan), where=pairs > 0)
