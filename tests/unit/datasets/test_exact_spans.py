"""The user's own exact words: pieces or places of the written question become places in the question as it is asked."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anchorscope.datasets.rows import Unusable, spans_of
from sample_files import json_lines, read, table, write

QUESTION = "Who wrote Dracula, and who filmed Dracula?"


def pieces(written: str, marked: list[object]) -> list[str]:
    text = " ".join(written.split())
    return [text[start:end] for start, end in spans_of(written, marked)]


def test_pieces_are_marked_wherever_they_stand() -> None:
    assert spans_of(QUESTION, ["Dracula", "wrote"]) == ((4, 9), (10, 17), (34, 41))
    assert pieces(QUESTION, ["who"]) == ["who"]


def test_pairs_are_places_of_the_text_as_it_is_written() -> None:
    assert spans_of(QUESTION, [[34, 41], [4, 9]]) == ((4, 9), (34, 41))
    assert pieces("  Who\n wrote  the \t Dracula? ", [[7, 12], [14, 27]]) == ["wrote", "the Dracula"]


def test_marks_that_overlap_become_one_and_neighbours_stay_two() -> None:
    assert pieces(QUESTION, ["Dracula", [4, 12]]) == ["wrote Dracula", "Dracula"]
    assert spans_of("abcd", [[0, 2], [2, 4]]) == ((0, 2), (2, 4))


def test_the_white_space_of_a_piece_does_not_matter() -> None:
    assert pieces("Who wrote   The\nRaven?", ["The  Raven"]) == ["The Raven"]


@pytest.mark.parametrize(
    ("marked", "reason"),
    [
        (["dracula"], "'dracula' does not stand in the question"),
        ([" "], "holds an empty string"),
        ([[4, 4]], "[4, 4] is no [start, end) in a question of 42 characters"),
        ([[-1, 4]], "is no [start, end)"),
        ([[4, 43]], "is no [start, end)"),
        ([[3, 4]], "marks nothing but white space"),
        ([[1, 2, 3]], "must hold pieces of the question or [start, end] pairs, not [1, 2, 3]"),
        ([[True, 2]], "must hold pieces"),
        ([5], "must hold pieces"),
        ([None], "must hold pieces"),
        ([["a", "b"]], "must hold pieces"),
    ],
)
def test_marks_that_cannot_be_meant(marked: list[object], reason: str) -> None:
    with pytest.raises(Unusable) as caught:
        spans_of(QUESTION, marked)
    assert reason in str(caught.value)


@given(st.text(alphabet="ab \n\té", min_size=1, max_size=30), st.data())
def test_a_pair_marks_the_words_that_stand_there(written: str, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(written) - 1))
    end = data.draw(st.integers(start + 1, len(written)))
    if not written[start:end].strip():
        with pytest.raises(Unusable, match="nothing but white space"):
            spans_of(written, [[start, end]])
        return
    text = " ".join(written.split())
    ((first, after),) = spans_of(written, [[start, end]])
    assert text[first:after] == " ".join(written[start:end].split())
    assert text[:first].replace(" ", "") == "".join(written[:start].split())


def test_files_with_exact_words(tmp_path: Path) -> None:
    row = {"question": QUESTION, "answers": ["Bram Stoker"]}
    marks = [["wrote"], [[4, 9]], "wrote", "wrote|Dracula", json.dumps([[4, 9]]), "['wrote']", [], None, ""]
    expected = [("wrote",), ("wrote",), ("wrote",), ("wrote", "Dracula", "Dracula"), ("wrote",), ("wrote",), (), (), ()]
    questions = read(write(tmp_path, json_lines([row | {"exact_question": mark} for mark in marks]))).questions
    found = [tuple(QUESTION[start:end] for start, end in question.exact_spans) for question in questions]
    assert found == expected
    as_csv = table([row | {"exact_question": "[[10, 17]]"}], ",")
    assert read(write(tmp_path, as_csv)).questions[0].exact_spans == ((10, 17),)
    assert read(write(tmp_path, json_lines([row]))).questions[0].exact_spans == ()
