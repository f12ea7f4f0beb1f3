"""A control of the knockout: as many tokens of the template cut, from the text that is the same for all questions.

If cutting the examples' tokens did the same, what matters would be that something is cut and not what. The shared
prefix is not run again elsewhere; here it has to be, because its own later tokens feel the cut.
"""

import numpy as np

from anchorscope.interventions.intervention import Intervention, ItemTokens


def template_candidates(item: ItemTokens) -> list[int]:
    """Tokens of the shared prefix, without the first one, which models use as a sink for idle attention."""
    return list(range(1, item.prefix_length))


def _template_tokens(item: ItemTokens, rng: np.random.Generator) -> tuple[int, ...]:
    candidates = template_candidates(item)
    wanted = min(len(item.question_tokens), len(candidates))
    return tuple(sorted(int(index) for index in rng.choice(candidates, size=wanted, replace=False)))


TEMPLATE = Intervention(
    name="template",
    about="as many tokens of the shared template are cut",
    keys=_template_tokens,
    evidence="template",
    whole=True,
    control=True,
    many_passes=True,
)
