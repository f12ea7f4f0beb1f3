"""Which words of a question are its core, and who says so."""

from itertools import pairwise

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from anchorscope.datasets.question import Question
from anchorscope.datasets.text import located_words, words
from anchorscope.errors import UserError
from anchorscope.spans.question_spans import locate_question_words


def ask(
    text: str,
    subject: str | None = None,
    property_words: tuple[str, ...] = (),
    relation: str | None = None,
    exact_spans: tuple[tuple[int, int], ...] = (),
) -> Question:
    return Question("d", "q7", text, ("a",), subject, relation, property_words=property_words, exact_spans=exact_spans)


def found(question: Question) -> tuple[list[str], str]:
    located = locate_question_words(question)
    return [question.question[start:end] for start, end in located.spans], located.rule


METADATA = [
    (ask("What is the capital of France?", "France", ("capital",)), ["capital", "France"]),
    (ask("What is George Marlow's occupation?", "George Marlow", ("occupation",)), ["George Marlow", "occupation"]),
    (ask("What is George Marlow’s occupation?", "George Marlow", ("occupation",)), ["George Marlow", "occupation"]),
    (ask("Who was the director of The Circus?", "The Circus", ("director",)), ["director", "Circus"]),
    (ask("Who directed the circus?", "The Circus", ("directed",)), ["directed", "circus"]),
    (ask("What is the capital of Sao Tome?", "São Tomé", ("capital",)), ["capital", "Sao Tome"]),
    (ask("The capital of SA\u0303O TOME\u0301?", "São Tomé", ("capital",)), ["capital", "SA\u0303O TOME\u0301"]),
    (ask("In France, what is the capital of France?", "France", ("capital",)), ["France", "capital", "France"]),
    (ask("Who is the author of Story of the Eye?", "Story of the Eye", ("author",)), ["author", "Story of the Eye"]),
    (ask("In what city was Al Gore born?", "Al Gore", ("city", "born")), ["city", "Al Gore", "born"]),
    (ask("Who leads the capital of Peru?", "capital of Peru", ("capital", "leads")), ["leads", "capital of Peru"]),
    (ask("Who built the new capital of Peru?", "capital of Peru", ("new capital",)), ["new", "capital of Peru"]),
    (ask("What genre is What?", "What", ("genre",)), ["genre", "What"]),
    (ask("What genre is 9?", "9", ("genre",)), ["genre", "9"]),
    (ask("What genre is !!!?", "!!!", ("genre",)), ["genre", "!!!"]),
    (ask("Who was the composer of Frances in France?", "France", ("composer",)), ["composer", "France"]),
    (ask("What is the capital of France?", "France", relation="capital"), ["capital", "France"]),
]


@pytest.mark.parametrize(("question", "expected"), METADATA)
def test_what_the_dataset_says_comes_before_the_rules(question: Question, expected: list[str]) -> None:
    assert found(question) == (expected, "metadata")


RULES = [
    (ask("What is the capital of France?"), ["capital", "France"]),
    (ask("who wrote she isn't lonely she's my sister lyrics"), ["wrote", "lonely", "sister", "lyrics"]),
    (ask("How many US states are there in May?"), ["US", "states", "May"]),
    (ask("What is Oklahoma's biggest city?"), ["Oklahoma", "biggest", "city"]),
    (ask("Who is it?"), ["is", "it"]),
    (ask("What?"), ["What"]),
    (ask("the"), ["the"]),
    (ask("¿Dónde está «Bogotá»?"), ["Dónde", "está", "Bogotá"]),
    # Known in part, or not in the text: the rules add to what was found.
    (ask("What is the capital of France?", "Germany", ("capital",)), ["capital", "France"]),
    (ask("What is the capital of France?", "France", ("capital", "seat")), ["capital", "France"]),
    (ask("Who sang Let It Be?", "Let It Be"), ["sang", "Let It Be"]),
    (ask("In what city was Al Gore born?", "Al Gore", relation="place of birth"), ["city", "Al Gore", "born"]),
]


@pytest.mark.parametrize(("question", "expected"), RULES)
def test_the_rules_add_what_the_dataset_does_not_say(question: Question, expected: list[str]) -> None:
    assert found(question) == (expected, "rules")


def test_subject_and_property_come_from_where_they_are_known() -> None:
    located = locate_question_words(ask("In what city was Al Gore born?", "Al Gore", relation="place of birth"))
    assert (located.subject, located.property_spans) == (((17, 24),), ((8, 12), (25, 29)))
    located = locate_question_words(ask("In what city was Al Gore born?", property_words=("born",)))
    assert (located.subject, located.property_spans) == (((17, 24),), ((8, 12), (25, 29)))


def test_the_users_own_spans_win() -> None:
    text = "What is the capital of France?"
    located = locate_question_words(ask(text, "France", ("capital",), exact_spans=((5, 7), (23, 29), (23, 26))))
    assert (located.spans, located.rule) == (((5, 7), (23, 29)), "own")
    assert (located.subject, located.property_spans) == (located.spans, ())
    assert located.content == ((5, 7), (12, 19), (23, 29))


@pytest.mark.parametrize("span", [(0, 99), (-1, 3), (3, 3), (4, 5)])
def test_own_spans_outside_the_question_are_refused(span: tuple[int, int]) -> None:
    with pytest.raises(UserError, match=rf"question q7: the exact span \[{span[0]}, {span[1]}\)"):
        locate_question_words(ask("What is it?", exact_spans=(span,)))


def test_without_metadata_only_the_rules_speak() -> None:
    question = ask("Who was the mayor of Lima?", "mayor", ("Lima",), exact_spans=((0, 3),))
    located = locate_question_words(question, use_metadata=False)
    assert located.rule == "rules"
    assert (located.subject, located.property_spans) == (((21, 25),), ((12, 17),))


def test_a_question_without_words_has_no_core() -> None:
    assert found(ask("?!")) == ([], "rules")
    assert found(ask("")) == ([], "rules")


@given(st.text(), st.one_of(st.none(), st.text()), st.lists(st.text(), max_size=2).map(tuple), st.booleans())
def test_spans_are_sorted_apart_and_there_if_there_is_a_word(
    text: str, subject: str | None, property_words: tuple[str, ...], use_metadata: bool
) -> None:
    located = locate_question_words(ask(text, subject, property_words), use_metadata)
    for spans in (located.spans, located.subject, located.property_spans, located.content):
        assert all(0 <= start < end <= len(text) for start, end in spans)
        assert all(one[1] <= other[0] for one, other in pairwise(spans))
    assert located.spans or not words(text)
    assert located.subject or not located.spans
    assert tuple(sorted(located.subject + located.property_spans)) == located.spans
    covered = {at for start, end in located.content for at in range(start, end)}
    assert covered.issuperset(at for start, end in located.spans for at in range(start, end))


NAMES = st.text(st.characters(categories=["Lu", "Ll"], max_codepoint=0x17F), min_size=3)


@given(NAMES, st.sampled_from(["upper", "lower", "title"]))
def test_a_subject_is_found_in_any_case(name: str, case: str) -> None:
    assume(len(located_words(name)) == 1 and "ŉ" not in name)  # "Ŀ" and "ŉ" hold a mark beside their letter
    written = getattr(name, case)()
    before = "What is the capital of "
    spans = locate_question_words(ask(f"{before}{written}?", name, ("capital",))).spans
    assert (len(before), len(before) + len(written)) in spans
