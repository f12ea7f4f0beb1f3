"""When single items may be called: three things have to agree, as each of them alone finds groups where there are none.

Something is lost at all; items that are predicted to lose more do lose more, held out; and two groups explain what is
left of the evidence better than one regression.
"""

import numpy as np
from jaxtyping import Float, Int
from scipy.stats import norm

from anchorscope.question_share.posterior import LEAST_GAIN

SIGNIFICANT = 0.05
"""The first of the three needs a p-value below this."""


def beyond_zero(lost: Float[np.ndarray, " item"], groups: Int[np.ndarray, " item"]) -> tuple[float, float]:
    """T and its one-sided p-value: truth is independent of the clean evidence, given the cut state."""
    _, member = np.unique(groups, return_inverse=True)
    sums = np.bincount(member, weights=lost)
    spread = sums.std(ddof=1) * np.sqrt(len(sums))
    statistic = float(sums.sum() / spread) if spread > 0 else 0.0
    return statistic, float(norm.sf(statistic))


def may_call(p_value: float, thirds_low: float, gain: float) -> bool:
    """Whether items are called: p of `beyond_zero`, lower end of the thirds' difference, mean gain of the mixture."""
    return p_value < SIGNIFICANT and thirds_low > 0 and gain > LEAST_GAIN
