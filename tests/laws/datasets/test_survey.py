"""The survey counts what is there: against plain counting, in one pass, in little memory."""

import gzip
import json
import statistics
import tracemalloc
from collections import Counter
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anchorscope.datasets import survey as survey_module
from anchorscope.datasets.question import Question
from anchorscope.datasets.survey import KINDS, question_kind, take_survey
from anchorscope.datasets.text import question_key
from repo import SHARED_DATA

SHARED = SHARED_DATA


def make(text: str, *answers: str, **fields: object) -> Question:
    return Question("mine", text, text, answers or ("x",), **fields)


@pytest.mark.parametrize(
    ("kind", "question", "answers"),
    [
        ("yes/no", "Is Oslo in Norway?", ["Yes."]),
        ("yes/no", "Is Oslo in Norway?", ["no", "No"]),
        ("yes/no", "Where both of them born in Norway?", ["yes"]),
        ("name", "What is the chemical symbol of nobelium?", ["No"]),
        ("name", "Is it No or Yes?", ["No", "Yes", "A Film"]),
        ("name", "Which river?", ["No Name Creek"]),
        ("date", "When did it open?", ["1984"]),
        ("date", "In which year did it open?", ["one thousand, nine hundred and eighty-four"]),
        ("number", "Which room is it?", ["1984"]),
        ("number", "How many years did it last?", ["1984"]),
        ("date", "When was the war?", ["1914-1918"]),
        ("date", "In which month?", ["May"]),
        ("date", "On what day?", ["Friday"]),
        ("name", "Who is the heroine?", ["May"]),
        ("name", "Who is the helper?", ["Friday"]),
        ("date", "Which festival?", ["4 July"]),
        ("date", "Which festival?", ["July 4th, 1776"]),
        ("date", "Which festival?", ["4th of July"]),
        ("date", "Which one?", ["1776-07-04"]),
        ("date", "Which one?", ["the 1980s"]),
        ("date", "Which one?", ["the late 12th Century"]),
        ("date", "Which one?", ["44 BC"]),
        ("number", "How many?", ["five"]),
        ("number", "How many?", ["Twenty-one"]),
        ("number", "How far?", ["1,000 km"]),
        ("number", "How much?", ["$5 million"]),
        ("number", "How much?", ["12.5 %"]),
        ("number", "Which place?", ["2nd"]),
        ("number", "How tall?", ["5 ft 11 in"]),
        ("name", "Which drink?", ["7 Up"]),
        ("name", "Which film?", ["12 Angry Men"]),
        ("name", "Who?", ["bell hooks", "Gloria Watkins", "Gloria Jean Watkins"]),
        ("name", "Who?", ['"Weird Al" Yankovic']),
        ("name", "Which city?", ["東京"]),
        ("other", "What is her occupation?", ["film director"]),
        ("other", "Which symbol?", ["→"]),
        ("number", "How many?", ["4", "Four TV"]),
        ("name", "How many?", ["Four TV", "4"]),
        ("name", "How many?", ["4", "Four TV", "Channel Four"]),
    ],
)
def test_kinds_of_answers(kind: str, question: str, answers: list[str]) -> None:
    assert question_kind(question, answers) == kind


@given(st.text(), st.lists(st.text(), min_size=1, max_size=4))
def test_every_question_has_a_kind(question: str, answers: list[str]) -> None:
    assert question_kind(question, answers) in KINDS


def test_counts() -> None:
    questions = [
        make("Who wrote Dracula?", "Bram Stoker", "Stoker", "Stoker (author)", subject="Dracula", relation="author"),
        make("who wrote  DRACULA", "somebody else", subject="x", relation="never counted"),
        make("How many legs has a fly?", "6", "six", relation="count", property_words=("legs",), metadata={"a": None}),
        make("???", "Au", "g", "→", exact_spans=((0, 1),), metadata={"a": 1, "b": "x"}),
        make("Who?", "Anna", model_answer="Anna", truthful=True, relation="author"),
        make("Where is it?", "Rome", model_answer="", truthful=False),
    ]
    survey = take_survey(iter(questions), examples=0)
    assert (survey.read, survey.questions, survey.repeated, survey.wordless) == (6, 5, 1, 1)
    assert survey.answers == 3 + 2 + 3 + 1 + 1
    assert survey.answers_per_question.mean == pytest.approx(2.0)
    assert (survey.answers_per_question.median, survey.answers_per_question.largest) == (2, 3)
    assert (survey.short_answers, survey.parenthesised_answers) == (4, 1)  # 6, Au, g and the arrow
    assert survey.answer_types == {"name": 3, "number": 1, "date": 0, "yes/no": 0, "other": 1}
    assert survey.filled == {
        "subject": 1,
        "relation": 3,
        "property_words": 1,
        "exact_question": 1,
        "model_answer": 2,
        "truthful": 2,
    }
    assert survey.labelled_true == 1
    assert list(survey.relations.items()) == [("author", 2), ("count", 1)]
    assert survey.metadata == {"a": 1, "b": 1}
    assert survey.words_per_question.largest == 6
    assert survey.examples == ()


def test_nothing_is_counted_as_nothing() -> None:
    survey = take_survey([])
    assert (survey.read, survey.questions, survey.answers_per_question.mean, survey.examples) == (0, 0, 0.0, ())


@given(st.lists(st.integers(1, 5), min_size=1, max_size=12))
def test_the_spread_is_that_of_the_numbers(sizes: list[int]) -> None:
    questions = [make(f"question {place} {'w ' * size}", *map(str, range(size))) for place, size in enumerate(sizes)]
    spread = take_survey(questions).answers_per_question
    assert spread.mean == pytest.approx(statistics.mean(sizes))
    assert (spread.median, spread.largest) == (statistics.median(sizes), max(sizes))


def test_examples_are_drawn_evenly_and_repeatably() -> None:
    questions = [make(f"question {number}") for number in range(10)]
    drawn: Counter[str] = Counter()
    for seed in range(2000):
        examples = take_survey(questions, examples=3, seed=seed).examples
        numbers = [int(one.question.split()[1]) for one in examples]
        assert numbers == sorted(set(numbers))
        assert len(numbers) == 3
        drawn.update(one.question for one in examples)
    assert len(drawn) == 10
    assert min(drawn.values()) > 500  # 600 are expected, with a spread of 20
    assert max(drawn.values()) < 700
    assert take_survey(questions, 3, 5).examples == take_survey(questions, 3, 5).examples
    assert take_survey(questions[:2], 3).examples == tuple(questions[:2])


def test_a_large_set_is_counted_in_little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(survey_module, "MOST_NAMES", 100)
    rows, length = 3_000, 20_000

    def stream() -> Iterator[Question]:
        for number in range(rows):
            named = {"relation": f"relation {number}", "metadata": {f"column {number}": 1}}
            yield make(f"question {number}", "x" * length, **named)

    tracemalloc.start()
    try:
        survey = take_survey(stream())
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (survey.questions, len(survey.relations), len(survey.metadata)) == (rows, 100, 100)
    assert peak < rows * length / 10


def test_the_whole_popqa_against_plain_counting() -> None:
    path = SHARED / "popqa.jsonl.gz"
    if not path.exists():
        pytest.skip("the shared question files are not beside the repository")
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    questions = [make(row["question"], *row["answers"], relation=row["relation"]) for row in rows]
    survey = take_survey(questions)
    first = {question_key(row["question"]): row for row in reversed(rows)}
    sizes = [len(row["answers"]) for row in first.values()]
    assert (survey.read, survey.questions) == (len(rows), len(first)) == (14_267, 12_895)
    assert survey.answers_per_question.mean == pytest.approx(statistics.mean(sizes))
    assert survey.answers_per_question.median == statistics.median(sizes)
    assert survey.relations == Counter(row["relation"] for row in first.values())
