"""The knockout after the softmax: weights of the cut edges set to zero, and the rest not raised in their place.

Masking before the softmax hands the lost attention to what remains; zeroing throws it away, so that less comes in. The
paper does not say which it does; where the two disagree, a result hangs on that choice.
"""

from anchorscope.interventions.intervention import Intervention
from anchorscope.interventions.knockout import question_tokens

ZEROING = Intervention(
    name="zeroing",
    about="weights on the exact tokens are zeroed after the softmax",
    keys=question_tokens,
    evidence="zeroing",
    how="zero",
)
