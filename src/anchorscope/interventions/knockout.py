"""The attention knockout: no later position may attend to the question's exact tokens, in any layer.

Masked before the softmax, so that what remains renormalises. Which later positions lose the edges is the option
`edges`: `all` of them, those `outside` the exact tokens, or the answer's own (`direct`).
"""

import numpy as np

from anchorscope.interventions.intervention import Intervention, ItemTokens


def question_tokens(item: ItemTokens, rng: np.random.Generator) -> tuple[int, ...]:
    """The keys of the knockout."""
    return item.question_tokens


KNOCKOUT = Intervention(
    name="knockout",
    about="attention to the question's exact tokens is cut",
    keys=question_tokens,
    keeps_states=True,
)
