"""Which items experiments run on that take many passes: the same ones in all of them, so that they can be compared."""

import numpy as np
from numpy.typing import NDArray


def some_items(n: int, most: int | None, seed: int) -> NDArray[np.int64]:
    """All items, or at most so many drawn at random, in order."""
    if most is None or n <= most:
        return np.arange(n)
    return np.sort(np.random.default_rng([seed, 6]).choice(n, size=most, replace=False))
