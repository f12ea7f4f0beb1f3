"""The bootstrap over groups: whole groups are drawn with replacement, as items of one group are not independent."""

import numpy as np
from numpy.typing import NDArray

RESAMPLES = 2000
"""Resamples behind every interval."""


def group_weights(groups: NDArray[np.integer], resamples: int, rng: np.random.Generator) -> NDArray[np.float32]:
    """How often each item's group is drawn, [resample, item]."""
    _, member = np.unique(groups, return_inverse=True)
    n_groups = int(member.max()) + 1 if len(member) else 0
    drawn = (
        rng.multinomial(n_groups, np.full(n_groups, 1 / n_groups), size=resamples)
        if n_groups
        else np.zeros((resamples, 0))
    )
    return drawn[:, member].astype(np.float32)
