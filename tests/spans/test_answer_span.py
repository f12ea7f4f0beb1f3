"""Where the entity is in an answer."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from anchorscope.answers.grade import grade
from anchorscope.datasets.text import normalise
from anchorscope.spans.answer_span import exact_answer_span

RIGHT = [
    ("Paris", ["Paris"], "Paris"),
    (" Paris.", ["Paris"], "Paris"),
    ("The capital of France is the city of PARIS, of course.", ["Paris"], "PARIS"),
    ("It is Bogota\u0301.", ["Bogota"], "Bogota\u0301"),
    ("It is Bogotá!", ["bogota"], "Bogotá"),
    ("in the U.S.A. today", ["USA"], "U.S.A."),
    ("New York City", ["York", "New York"], "New York"),
    ("New York, or York", ["York", "New York"], "New York"),
    ("York, or New York", ["York"], "York"),
    ("the Lord of the Rings", ["The Lord of the Rings"], "Lord of the Rings"),
    ("about twenty thousand men", ["20,000"], "twenty thousand"),
    ("Straße des 17. Juni", ["strasse"], "Straße"),
    ("The C.", ["C"], "C"),
    ("“Au”", ["Au"], "Au"),
    ("O’Brien did", ["OBrien"], "O’Brien"),
]

WRONG = [
    ("Lyon", "Lyon"),
    ("The Lord of the Rings", "Lord of the Rings"),
    (" “The Great Gatsby”. ", "Great Gatsby"),
    ("Lyon, France", "Lyon, France"),
    ("Lyon, which is a city in France", "Lyon"),
    ("Lyon (a large city in eastern France)", "Lyon"),
    ("Lyon. It is a city in France.", "Lyon"),
    ("St. Louis. It is a city in Missouri.", "St. Louis"),
    ("J. R. R. Tolkien. He wrote it in 1937.", "J. R. R. Tolkien"),
    ("1,000,000 people live in the city today", "1,000,000 people live in the city today"),
    ("calcium", "calcium"),
    ("C++", "C++"),
    ("the", "the"),
    ("A", "A"),
    ("🤔!", "🤔"),
    (" ?! ", "?!"),
    ("   ", "   "),
    ("", ""),
]


@pytest.mark.parametrize(("answer", "accepted", "entity"), RIGHT)
def test_the_longest_accepted_answer_is_the_entity(answer: str, accepted: list[str], entity: str) -> None:
    start, end = exact_answer_span(answer, accepted)
    assert answer[start:end] == entity


@pytest.mark.parametrize(("answer", "entity"), WRONG)
def test_a_wrong_answer_is_trimmed(answer: str, entity: str) -> None:
    start, end = exact_answer_span(answer, ["Ca", "something else"])
    assert answer[start:end] == entity


@given(st.text(min_size=1), st.lists(st.text()))
def test_never_empty(answer: str, accepted: list[str]) -> None:
    start, end = exact_answer_span(answer, accepted)
    assert 0 <= start < end <= len(answer)
    if answer.strip():
        assert answer[start:end].strip()


@given(st.text(), st.sampled_from(["", "It is ", "“"]), st.sampled_from(["", ".", " of course", "”, they say"]))
def test_the_entity_of_a_right_answer_is_right_by_itself(alias: str, before: str, after: str) -> None:
    assume(normalise(alias))
    answer = before + alias + after
    assume(grade(answer, [alias]))  # a period can make initials of the last letters: "A. B" and "A. B." differ
    start, end = exact_answer_span(answer, [alias])
    assert grade(answer[start:end], [alias])
