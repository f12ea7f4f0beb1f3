"""One question with all its accepted answers: what every dataset becomes, and all that later rooms know of it."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from anchorscope.datasets.text import words
from anchorscope.errors import UserError


@dataclass(frozen=True)
class Question:
    """A short-answer question."""

    dataset: str
    """Name of the dataset, as it appears in every result."""
    item_id: str
    """Unique within the dataset."""
    question: str
    """The text that the model is asked; its white space is single spaces."""
    answers: tuple[str, ...]
    """Every accepted surface form; empty only where nothing is graded."""
    subject: str | None = None
    """The entity that is asked about, as it is written in the question; None where the dataset does not say."""
    relation: str | None = None
    """The kind of fact ("capital"), the unit within which true and false answers are balanced; None where unknown."""
    property_words: tuple[str, ...] = ()
    """The words of the question that name the property asked for ("capital"); empty where the dataset does not say."""
    exact_spans: tuple[tuple[int, int], ...] = ()
    """The user's own exact words, as characters [start, end) of `question`: sorted, not overlapping; empty if none."""
    model_answer: str | None = None
    """An answer given elsewhere, used instead of generating one."""
    truthful: bool | None = None
    """A label given elsewhere, used instead of grading."""
    metadata: Mapping[str, str | int | float | bool | None] = field(default_factory=dict)
    """Whatever else the dataset says of the item (popularity, ids); carried into the results as it is."""


_LONGEST_YES = 8  # characters, with quotes and stops: no longer answer needs to be looked at
# Not "where": questions that mean "were" begin with it.
_ASKS_OPENLY = re.compile(r"\W*(?:whats?|which|whos?|whom|whose|when|why|how)\b", re.IGNORECASE)


def asks_yes_no(question: str, answers: Sequence[str]) -> bool:
    """Whether the question can only be answered with yes or no, so that chance alone is right half of the time.

    Every accepted answer is "yes" or "no", and the question does not begin with "what", "which", "who" and the like:
    the chemical symbol "No" is a name.
    """
    answered = all(len(answer) <= _LONGEST_YES and words(answer) in (["yes"], ["no"]) for answer in answers)
    return answered and not _ASKS_OPENLY.match(question)


def asked(question: str, answer: str | None = None, number: int = 0) -> Question:
    """A question as it is put, with an answer that may be known."""
    for what, given in (("question", question), ("answer", answer or "")):
        if not isinstance(given, str):
            raise UserError(f"The {what} of item {number + 1} is {type(given).__name__}; give it as text.")
        if any("\ud800" <= letter <= "\udfff" for letter in given):
            raise UserError(f"The {what} of item {number + 1} is not valid UTF-8 text; write it in UTF-8.")
    text = " ".join(question.split())
    if not text:
        raise UserError(f"Question {number + 1} is empty; give a question to score.")
    return Question("score", str(number + 1), text, (), model_answer=answer)


POPULARITY = ("s_pop", "subject_popularity", "popularity", "pageviews", "page_views", "views")
"""Columns that say how well known a subject is, the first that is there; PopQA's own is `s_pop`."""


def log_popularity(question: Question) -> float:
    """log10 of the subject's popularity; NaN where nothing, or no number above 0, is said."""
    named = {str(name).strip().lower().replace(" ", "_"): value for name, value in question.metadata.items()}
    for name in POPULARITY:
        value = named.get(name)
        if isinstance(value, bool) or value is None:
            continue
        try:
            number = float(value)
        except ValueError:
            continue
        return math.log10(number) if 0 < number < math.inf else math.nan
    return math.nan
