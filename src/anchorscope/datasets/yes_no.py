"""Which questions can only be answered with yes or no, so that chance alone is right half of the time.

Every accepted answer is "yes" or "no", and the question does not begin with "what", "which", "who" and the like: the
chemical symbol "No" is a name.
"""

import re
from collections.abc import Sequence

from anchorscope.datasets.text import words

_LONGEST_YES = 8  # characters, with quotes and stops: no longer answer needs to be looked at
# Not "where": questions that mean "were" begin with it.
_ASKS_OPENLY = re.compile(r"\W*(?:whats?|which|whos?|whom|whose|when|why|how)\b", re.IGNORECASE)


def asks_yes_no(question: str, answers: Sequence[str]) -> bool:
    """Whether yes and no are the only answers."""
    answered = all(len(answer) <= _LONGEST_YES and words(answer) in (["yes"], ["no"]) for answer in answers)
    return answered and not _ASKS_OPENLY.match(question)
