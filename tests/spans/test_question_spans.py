"""Which words of a question are its core."""

from itertools import pairwise

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from anchorscope.datasets.question import Question
from anchorscope.datasets.text import located_words, words
from anchorscope.spans.question_spans import exact_question_spans, locate_question_words


def ask(
    text: str, subject: str | None = None, property_words: tuple[str, ...] = (), relation: str | None = None
) -> Question:
    return Question("d", "1", text, ("a",), subject=subject, relation=relation, property_words=property_words)


def found(question: Question) -> tuple[list[str], str]:
    located = locate_question_words(question)
    return [question.question[start:end] for start, end in located.spans], located.rule


METADATA = [
    (ask("What is the capital of France?", "France", ("capital",)), ["capital", "France"]),
    (ask("What is George Rankin's occupation?", "George Rankin", ("occupation",)), ["George Rankin", "occupation"]),
    (ask("What is George Rankin’s occupation?", "George Rankin", ("occupation",)), ["George Rankin", "occupation"]),
    (ask("Who was the director of The Circus?", "The Circus", ("director",)), ["director", "Circus"]),
    (ask("Who directed the circus?", "The Circus", ("directed",)), ["directed", "circus"]),
    (ask("What is the capital of Sao Tome?", "São Tomé", ("capital",)), ["capital", "Sao Tome"]),
    (ask("The capital of SA\u0303O TOME\u0301?", "São Tomé", ("capital",)), ["capital", "SA\u0303O TOME\u0301"]),
    (ask("In France, what is the capital of France?", "France", ("capital",)), ["France", "capital", "France"]),
    (ask("Who is the author of Story of the Eye?", "Story of the Eye", ("author",)), ["author", "Story of the Eye"]),
    (ask("In what city was Al Gore born?", "Al Gore", ("city", "born")), ["city", "Al Gore", "born"]),
    (ask("Who leads the capital of Peru?", "capital of Peru", ("capital", "leads")), ["leads", "capital of Peru"]),
    (ask("What genre is What?", "What", ("genre",)), ["genre", "What"]),
    (ask("What genre is 9?", "9", ("genre",)), ["genre", "9"]),
    (ask("What genre is !!!?", "!!!", ("genre",)), ["genre", "!!!"]),
    (ask("Who was the composer of Frances in France?", "France", ("composer",)), ["composer", "France"]),
    (ask("What is the capital of France?", "France", relation="capital"), ["capital", "France"]),
]  # fmt: skip


@pytest.mark.parametrize(("question", "expected"), METADATA)
def test_what_the_dataset_says_comes_first(question: Question, expected: list[str]) -> None:
    assert found(question) == (expected, "metadata")


RULES = [
    (ask("What is the capital of France?"), ["capital", "France"]),
    (ask("who wrote he ain't heavy he's my brother lyrics"), ["wrote", "ain't", "heavy", "brother", "lyrics"]),
    (ask("How many US states are there in May?"), ["US", "states", "May"]),
    (ask("What is Oklahoma's biggest city?"), ["Oklahoma", "biggest", "city"]),
    (ask("Who is it?"), ["is", "it"]),
    (ask("What?"), ["What"]),
    (ask("the"), ["the"]),
    (ask("¿Dónde está «Bogotá»?"), ["Dónde", "está", "Bogotá"]),
    # Known in part, or not in the text: the rule adds to what was found.
    (ask("What is the capital of France?", "Germany", ("capital",)), ["capital", "France"]),
    (ask("What is the capital of France?", "France", ("capital", "seat")), ["capital", "France"]),
    (ask("Who sang Let It Be?", "Let It Be"), ["sang", "Let It Be"]),
    (ask("In what city was Al Gore born?", "Al Gore", relation="place of birth"), ["city", "Al Gore", "born"]),
]


@pytest.mark.parametrize(("question", "expected"), RULES)
def test_content_words_are_the_rule(question: Question, expected: list[str]) -> None:
    assert found(question) == (expected, "rules")


def test_a_question_without_words_has_no_core() -> None:
    assert found(ask("?!")) == ([], "rules")
    assert found(ask("")) == ([], "rules")


@given(st.text(), st.one_of(st.none(), st.text()), st.lists(st.text(), max_size=2).map(tuple))
def test_spans_are_sorted_apart_and_there_if_there_is_a_word(
    text: str, subject: str | None, property_words: tuple[str, ...]
) -> None:
    spans = exact_question_spans(ask(text, subject, property_words))
    assert all(0 <= start < end <= len(text) for start, end in spans)
    assert all(one[1] <= other[0] for one, other in pairwise(spans))
    assert spans or not words(text)


NAMES = st.text(st.characters(categories=["Lu", "Ll"], max_codepoint=0x17F), min_size=3)


@given(NAMES, st.sampled_from(["upper", "lower", "title"]))
def test_a_subject_is_found_in_any_case(name: str, case: str) -> None:
    assume(len(located_words(name)) == 1 and "ŉ" not in name)  # "Ŀ" and "ŉ" hold a mark beside their letter
    written = getattr(name, case)()
    before = "What is the capital of "
    spans = exact_question_spans(ask(f"{before}{written}?", name, ("capital",)))
    assert (len(before), len(before) + len(written)) in spans
