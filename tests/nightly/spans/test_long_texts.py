"""The rules that read questions and answers take time that grows with the text, whatever the text is.

Texts of 5,000 characters that are made to be slow: a rule that looks at every pair of words would take seconds for
them, and a pattern that parts a row of marks in every way would never end. The limit is one of processor time, far
above what any of them takes.
"""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

import pytest

from anchorscope.answers.grade import grade
from anchorscope.answers.grade_names import forms
from anchorscope.datasets.question import Question
from anchorscope.datasets.text import located_words, words
from anchorscope.experiments.boundary import says_dont_know
from anchorscope.spans.answer_span import answer_entity
from anchorscope.spans.locate import tokens_in_spans
from anchorscope.spans.question_spans import locate_question_words

SIZE = 5_000
UNITS = [
    "a",
    "(",
    "'",
    " 'a",
    "1",
    "1,000,",
    " ",
    "Anna of the ",
    "Anna and Anna both ",
    "Anna's ",
    "a. ",
    "is, ",
    "the ",
    "a: ",
    "one hundred and ",
    "1/2 ",
    ", but ",
    "May 5, 1999, ",
    "name'''",
]
UNITS += [
    '"',
    '"a" ',
    "\u201ca\u201d",
    "\u201ca ",
    "e\u0301",
    "\u05e9\u05dc\u05d5\u05dd ",
]
UNITS += [
    "\u200b",
    "\U0001f469\u200d\U0001f467 ",
    "a \u2013 ",
    "Anna\n\nwrote ",
    "\u6771\u4eac",
    "\x00",
]
TEXTS = {
    **{unit: (unit * SIZE)[:SIZE] for unit in UNITS},
    "marks after what": "what" + "'" * SIZE,
    "one long name": "the " + "A" * SIZE + ",",
    "a long ordinal": "1" * SIZE + "th",
    "a long number": "1" * SIZE + " first",
    "a long gap": "Emma" + " " * SIZE + "x",
    "capitals, then not": "IS " * (SIZE // 3) + "a",
    "new at the end": "is, " * (SIZE // 4) + "Emma",
}
SHORT = "Who wrote the book Emma in 1815?"


def ask(text: str, subject: str | None = None) -> Question:
    return Question("d", "1", text, ("Emma",), subject=subject)


RULES: dict[str, Callable[[str], object]] = {
    "words": lambda text: (words(text), located_words(text)),
    "key words": lambda text: locate_question_words(ask(text)),
    "key words with a subject": lambda text: locate_question_words(ask(text, "Anna")),
    "entity": lambda text: answer_entity(text, SHORT),
    "entity, long question": lambda text: (
        answer_entity(text, text),
        answer_entity("It is Anna, I think", text),
    ),
    "grade": lambda text: (
        grade(text, ["Emma Woodhouse"], SHORT),
        grade(text, ["1815"], "How many?"),
    ),
    "grade, long accepted answer": lambda text: grade("Emma", [text], SHORT),
    "grade, long question": lambda text: grade("It is Emma", ["Emma"], text),
    "forms": lambda text: forms(text[:1000]),
    "don't know": says_dont_know,
    "tokens": lambda text: tokens_in_spans(
        [(at, at + 3) for at in range(0, SIZE, 3)],
        [(at, at + 2) for at in range(0, SIZE, 7)],
        text,
    ),
}


@contextmanager
def processor_seconds(most: float) -> Iterator[None]:
    """Ends what is inside after so much processor time: other programs on the machine do not count."""

    def too_long(number: int, frame: FrameType | None) -> None:
        raise TimeoutError(f"more than {most:g} s of processor time")

    before = signal.signal(signal.SIGVTALRM, too_long)
    signal.setitimer(signal.ITIMER_VIRTUAL, most)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_ends_soon_on_every_long_text(rule: str) -> None:
    for name, text in TEXTS.items():
        with processor_seconds(1.25):
            try:
                RULES[rule](text)
            except TimeoutError as error:
                pytest.fail(f"{name!r}: {error}")
