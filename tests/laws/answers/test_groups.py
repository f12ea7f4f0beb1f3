"""Groups: whatever shares a question or a subject, directly or through others, stays together."""

from collections.abc import Hashable, Sequence

from hypothesis import given
from hypothesis import strategies as st

from anchorscope.answers.label import group_items
from anchorscope.datasets.question import Question


def asked(question: str, subject: str | None = None) -> Question:
    return Question(dataset="d", item_id=question, question=question, answers=("x",), subject=subject)


def grouped(*questions: Question) -> list[int]:
    return group_items(questions, ["same"] * len(questions), "subject").tolist()


def slow_components(keys: Sequence[set[Hashable]]) -> list[set[int]]:
    """Sets of items, merged until no two share a key."""
    parts = [({index}, set(own)) for index, own in enumerate(keys)]
    merged = True
    while merged:
        merged = False
        for first in range(len(parts)):
            for second in range(first + 1, len(parts)):
                if parts[first][1] & parts[second][1]:
                    parts[first] = (parts[first][0] | parts[second][0], parts[first][1] | parts[second][1])
                    del parts[second]
                    merged = True
                    break
            if merged:
                break
    return [items for items, _ in parts]


def test_items_that_share_a_subject_are_one_group() -> None:
    groups = grouped(asked("Capital of Peru?", "Peru"), asked("Capital of Chad?", "Chad"), asked("Money?", "Peru"))
    assert groups[0] == groups[2] != groups[1]


def test_items_that_share_a_normalised_question_are_one_group() -> None:
    groups = grouped(asked("Who wrote Emma?"), asked("who wrote  EMMA"), asked("Who wrote Ulysses?"))
    assert groups[0] == groups[1] != groups[2]


def test_subjects_are_compared_as_words() -> None:
    groups = grouped(asked("a1", "The Beatles"), asked("b2", "beatles"), asked("c3", "Bogotá"), asked("d4", "Bogota."))
    assert groups == [groups[0], groups[0], groups[2], groups[2]]
    assert groups[0] != groups[2]


def test_a_chain_of_shared_keys_is_one_group() -> None:
    pairs = [("one", "Peru"), ("two", "Peru"), ("two", "Chad"), ("three", "Chad"), ("four", "Mali")]
    assert grouped(*(asked(question, subject) for question, subject in pairs)) == [0, 0, 0, 0, 1]


def test_a_question_is_not_confused_with_a_subject_of_the_same_words() -> None:
    assert grouped(asked("Peru", "Chad"), asked("Mali", "Peru")) == [0, 1]


def test_items_without_a_subject_are_not_tied_by_that() -> None:
    assert len(set(grouped(asked("a1"), asked("b2"), asked("c3", ""), asked("d4", "…"), asked("e5", "!")))) == 5


def test_no_items_have_no_groups() -> None:
    assert grouped() == []


def test_grouping_by_answer_ties_the_same_answer_and_nothing_else() -> None:
    questions = [asked("one", "Peru"), asked("two", "Peru"), asked("three"), asked("one")]
    groups = group_items(questions, ["Africa", "Asia", "the africa.", "Europe"], "answer").tolist()
    assert groups[0] == groups[2]
    assert len(set(groups)) == 3


@given(st.lists(st.tuples(st.integers(0, 6), st.none() | st.integers(0, 4)), max_size=14))
def test_groups_are_the_connected_components(items: list[tuple[int, int | None]]) -> None:
    questions = [asked(f"question{q}", None if s is None else f"subject{s}") for q, s in items]
    keys = [{("q", q), *([] if s is None else [("s", s)])} for q, s in items]
    groups = grouped(*questions)
    found = [{index for index, own in enumerate(groups) if own == group} for group in sorted(set(groups))]
    assert sorted(map(sorted, found)) == sorted(map(sorted, slow_components(keys)))
    assert sorted(set(groups)) == list(range(len(set(groups))))
