"""Do two yes–no calls on the same items agree, beyond what chance would give?"""

import numpy as np
from numpy.typing import NDArray


def kappa(first: NDArray[np.bool_], second: NDArray[np.bool_], weights: NDArray[np.floating]) -> NDArray[np.floating]:
    """Cohen's kappa of two calls [item] (or [resample, item]) under each row of weights [resample, item].

    NaN where both calls are constant and equal: there is nothing to agree on beyond chance.
    """
    total = weights.sum(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        observed = (weights * (first == second)).sum(axis=1) / total
        p_first = (weights * first).sum(axis=1) / total
        p_second = (weights * second).sum(axis=1) / total
        expected = p_first * p_second + (1 - p_first) * (1 - p_second)
        return np.where(expected < 1, (observed - expected) / (1 - expected), np.nan)
