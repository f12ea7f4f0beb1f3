"""Cuts the last content word of the question: is the end of a question what the answer rests on?"""

import numpy as np

from anchorscope.catalogue import InterventionEntry
from anchorscope.interventions.intervention import Intervention
from anchorscope.items import Item


def last_token(item: Item, rng: np.random.Generator, mass: object) -> tuple[int, ...]:
    """The position whose attention is cut."""
    return item.located.parts.content[-1:]


LAST_WORD = Intervention(
    InterventionEntry("last-word", "last word cut", experiment="last-word"), last_token, part="content"
)
