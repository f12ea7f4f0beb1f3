"""Do two yes–no calls on the same items agree, beyond what chance would give?"""

import numpy as np
from numpy.typing import NDArray


def kappa(numbers: NDArray[np.floating]) -> NDArray[np.floating]:
    """Cohen's kappa of two calls, from how many items get which pair of them, [2, 2, ...].

    NaN where both calls are constant and equal: there is nothing to agree on beyond chance.
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        shares = numbers / numbers.sum(axis=(0, 1))
        observed = shares[0, 0] + shares[1, 1]
        expected = (shares.sum(axis=0) * shares.sum(axis=1)).sum(axis=0)
        return np.where(expected < 1, (observed - expected) / (1 - expected), np.nan)
