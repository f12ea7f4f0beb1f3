"""Controls of the knockout: as many other tokens cut, and nothing cut at all.

If cutting random tokens did the same, the chart would say nothing about the question's key words; and what cutting
nothing changes is the noise floor below which no change counts.
"""

import numpy as np

from anchorscope.interventions.intervention import Intervention, ItemTokens

NOISE_ITEMS = 200
"""Items in the no-op control: enough for a 99th percentile."""


def random_candidates(item: ItemTokens) -> list[int]:
    """Tokens that the random control may cut: after the shared prefix and before the answer, outside E_Q.

    Never the first token of the sequence: models use it as a sink for idle attention, and cutting it breaks everything.
    """
    start = max(item.prefix_length, 1)
    exact = set(item.question_tokens)
    return [index for index in range(start, item.sequence.answer_start) if index not in exact]


def _random_tokens(item: ItemTokens, rng: np.random.Generator) -> tuple[int, ...]:
    candidates = random_candidates(item)
    wanted = min(len(item.question_tokens), len(candidates))
    return tuple(sorted(int(index) for index in rng.choice(candidates, size=wanted, replace=False)))


def _nothing(item: ItemTokens, rng: np.random.Generator) -> tuple[int, ...]:
    return ()


RANDOM = Intervention(
    name="random",
    about="as many other tokens before the answer are cut",
    keys=_random_tokens,
    keeps_states=True,
    control=True,
)
NONE = Intervention(
    name="none",
    about="nothing is cut, in another batch order: the noise floor",
    keys=_nothing,
    changes=False,
    max_items=NOISE_ITEMS,
    control=True,
)
