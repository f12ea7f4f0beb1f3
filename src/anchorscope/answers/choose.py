"""Which questions are asked: none that the prompt's own examples answer, and at most as many as wanted, at random."""

from dataclasses import dataclass

import numpy as np

from anchorscope.answers.prompt import in_few_shot
from anchorscope.datasets.catalog import Loaded
from anchorscope.datasets.question import Question
from anchorscope.datasets.text import words
from anchorscope.errors import UserError


@dataclass(frozen=True)
class Asked:
    """The questions of one dataset, and what became of the others."""

    questions: list[Question]
    read: int
    bad: int
    """Rows that could not be used; a question without any word has no key words to cut."""
    repeated: int
    """Rows whose question was there already."""
    few_shot: int
    """Questions left out because the prompt's examples speak of them."""


def choose_questions(loaded: Loaded, limit: int | None, seed: int) -> Asked:
    """Draws the questions to ask; they keep their order."""
    worded = [question for question in loaded.questions if words(question.question)]
    allowed = [question for question in worded if not in_few_shot(question)]
    if not allowed:
        raise UserError("The dataset has no question to ask; check that the file is the right one.")
    chosen = np.arange(len(allowed))
    if limit is not None and limit < len(allowed):
        chosen = np.sort(np.random.default_rng([seed, 1]).choice(len(allowed), size=limit, replace=False))
    return Asked(
        questions=[allowed[index] for index in chosen],
        read=loaded.read,
        bad=len(loaded.bad_rows) + len(loaded.questions) - len(worded),
        repeated=loaded.repeated,
        few_shot=len(worded) - len(allowed),
    )
