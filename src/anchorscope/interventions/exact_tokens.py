"""The knockout with other choices of exact tokens: how much of the chart hangs on what was cut?

The subject alone, the property alone, and every content word of the question; the knockout itself cuts subject and
property, and the random control as many other tokens. Groups stay those of the knockout, so that the curves compare the
same items. An item whose question does not say such words is not run.
"""

import numpy as np

from anchorscope.interventions.intervention import Intervention, ItemTokens

EVIDENCE = "exact-tokens"


def _subject(item: ItemTokens, rng: np.random.Generator) -> tuple[int, ...]:
    return item.parts.subject


def _property(item: ItemTokens, rng: np.random.Generator) -> tuple[int, ...]:
    return item.parts.property


def _content(item: ItemTokens, rng: np.random.Generator) -> tuple[int, ...]:
    return item.parts.content


SUBJECT = Intervention("subject", "the subject alone is cut", _subject, needs="subject", evidence=EVIDENCE)
PROPERTY = Intervention("property", "the property alone is cut", _property, needs="property", evidence=EVIDENCE)
CONTENT = Intervention("content", "every content word is cut", _content, needs="content", evidence=EVIDENCE)
