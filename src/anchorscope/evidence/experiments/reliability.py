"""How well a measure of single items repeats itself: split-half correlation, and the reliability of the whole.

Ranks instead of values, as a few items with little evidence have wild shares. Ranks are those of the sample; every draw
of the bootstrap weighs the items anew.
"""

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray
from scipy.stats import rankdata
from torch import Tensor

from anchorscope.evidence.draws import Draws


def rank_correlation(
    first: Float[ndarray, " item"], second: Float[ndarray, " item"], draws: Draws
) -> Float[Tensor, " draw"]:
    """Spearman's correlation of two measures in every draw; NaN where one of them is constant."""
    x, y = (_standardised(values) for values in (first, second))
    n, sx, sy, sxx, syy, sxy = draws.sums(np.stack([np.ones(len(x)), x, y, x * x, y * y, x * y], axis=1))
    covariance = sxy / n - sx * sy / n**2
    spread = ((sxx / n - (sx / n) ** 2) * (syy / n - (sy / n) ** 2)).clamp(min=0).sqrt()
    return torch.where(spread > 1e-12, covariance / spread, torch.nan)


def spearman_brown(halves: Float[Tensor, " draw"]) -> Float[Tensor, " draw"]:
    """The reliability of the whole from the correlation of its halves."""
    return 2 * halves / (1 + halves)


def _standardised(values: Float[ndarray, " item"]) -> Float[ndarray, " item"]:
    ranks = rankdata(values)
    return (ranks - ranks.mean()) / max(float(ranks.std()), 1e-12)
