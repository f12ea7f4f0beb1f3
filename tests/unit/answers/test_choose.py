"""Which questions are asked, each once and drawn by a seed; whether they can be enough; what a survey counts."""

import random
from collections import Counter
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anchorscope.answers.choose import (
    FOR_A_CHART,
    NEEDED,
    PER_CLASS,
    LabelCounter,
    Outlook,
    choose_questions,
    is_yes_no,
    take_survey,
    why_not_asked,
)
from anchorscope.datasets.catalog import BadRow, Reading
from anchorscope.datasets.question import Question
from anchorscope.datasets.relations import load_atlas
from anchorscope.datasets.text import question_key
from anchorscope.stats.streams import draw_balanced, priorities


def asked(
    text: str, subject: str | None = None, *answers: str, truthful: bool | None = None
) -> Question:
    return Question("d", text, text, answers or ("x",), subject, truthful=truthful)


def reading(*questions: Question | BadRow) -> Reading:
    return Reading("made up", iter(questions))


MANY = [asked(f"Question {index}?") for index in range(50)]


@pytest.mark.parametrize("subject", ["Japan", "japan", "ROMEO AND JULIET", "the Gold"])
def test_questions_about_the_examples_subjects_are_left_out(subject: str) -> None:
    chosen = choose_questions(
        reading(asked("On which continent is it?", subject), asked("Other?", "Peru")),
        None,
        0,
    )
    assert [question.subject for question in chosen.questions] == ["Peru"]
    assert chosen.few_shot == 1


def test_repeats_are_what_the_question_key_says() -> None:
    texts = [question.question for question in load_atlas()[:200]]
    again = [
        *texts,
        *(text.upper() for text in texts[::2]),
        *(f"  {text} " for text in texts[::3]),
    ]
    chosen = choose_questions(reading(*map(asked, again)), None, 0)
    assert len(chosen.questions) + chosen.few_shot == len(
        {question_key(text) for text in again}
    )
    assert chosen.repeated == len(again) - len({question_key(text) for text in again})


def test_a_question_without_any_word_is_bad_because_nothing_in_it_can_be_cut() -> None:
    chosen = choose_questions(
        reading(BadRow(1, "x"), asked("???"), asked("Who?"), asked("…!"), asked("???")),
        None,
        0,
    )
    assert [question.question for question in chosen.questions] == ["Who?"]
    assert (chosen.bad, chosen.repeated, chosen.few_shot) == (1 + 2, 1, 0)


YES_NO = [
    (("yes",), True),
    (("Yes", "no"), True),
    (("yes", "yeah"), False),
    (("no one",), False),
    (("yes", "Yes!"), True),
    (("Yes and no",), False),
]


@pytest.mark.parametrize(("answers", "expected"), YES_NO)
def test_yes_no_questions_are_left_out_and_counted(
    answers: tuple[str, ...], expected: bool
) -> None:
    question = asked("Is it?", None, *answers)
    assert is_yes_no(question) == expected
    chosen = choose_questions(reading(question, asked("Who?")), None, 0)
    assert (chosen.yes_no, len(chosen.questions)) == (int(expected), 2 - expected)
    kept = choose_questions(reading(question, asked("Who?")), None, 0, "keep")
    assert (kept.yes_no, len(kept.questions)) == (0, 2)


@pytest.mark.parametrize(
    "text", ["What is the symbol of nobelium?", "which is it", "Who's that?", "How so?"]
)
def test_a_question_word_asks_for_more_than_yes_or_no(text: str) -> None:
    assert not is_yes_no(asked(text, None, "No"))
    assert is_yes_no(asked(f"Is it known {text}", None, "No"))


def test_a_yes_no_question_with_a_label_of_its_own_stays() -> None:
    for label in (True, False):
        judged = asked("Is it?", None, "yes", truthful=label)
        assert choose_questions(reading(judged), None, 0).questions == [judged]


def test_a_limit_draws_so_many_in_the_files_order() -> None:
    chosen = choose_questions(reading(*MANY), 12, 0).questions
    places = [MANY.index(question) for question in chosen]
    assert len(set(places)) == 12
    assert places == sorted(places)
    assert places != list(range(12))


def test_every_question_is_as_likely_to_be_drawn() -> None:
    drawn = Counter(
        q.item_id
        for seed in range(400)
        for q in choose_questions(reading(*MANY), 10, seed).questions
    )
    # 400 draws of 10 of 50: 80 each, with a standard deviation of 8.
    assert len(drawn) == 50
    assert all(45 < count < 120 for count in drawn.values())
    assert sum((count - 80) ** 2 / 64 for count in drawn.values()) < 90


def test_the_draw_depends_on_neither_the_order_nor_the_other_rows() -> None:
    shuffled = random.Random(0).sample(
        [*MANY, *MANY[::2], BadRow(1, "x")], len(MANY) + 26
    )
    drawn = {
        question.item_id
        for question in choose_questions(reading(*MANY), 12, 3).questions
    }
    assert {
        question.item_id
        for question in choose_questions(reading(*shuffled), 12, 3).questions
    } == drawn
    fewer = {
        question.item_id
        for question in choose_questions(reading(*MANY), 5, 3).questions
    }
    assert fewer < drawn


def numbered(
    number: int,
    relation: str | None = None,
    truthful: bool | None = None,
    said: str | None = None,
) -> Question:
    answer = "so" if truthful is not None and said is None else said
    return Question(
        "d",
        str(number),
        f"Who is {number}?",
        ("Ann",),
        None,
        relation,
        model_answer=answer,
        truthful=truthful,
    )


ROWS = st.tuples(
    st.sampled_from(["a", "b", None]), st.sampled_from([True, False, None])
)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(ROWS, min_size=1, max_size=9),
    st.sampled_from(["relation", "dataset", "none"]),
)
def test_no_labels_of_open_answers_would_give_more(
    rows: list[tuple[str | None, bool | None]], balance: str
) -> None:
    found = LabelCounter(
        numbered(number, *row) for number, row in enumerate(rows)
    ).outlook(balance)
    order = priorities(0, "balance", [str(number) for number in range(len(rows))])
    best = 0
    for labels in product(
        *([row[1]] if row[1] is not None else [True, False] for row in rows)
    ):
        used = draw_balanced(
            np.array(labels), [row[0] for row in rows], balance, 100, order
        ).used
        true = int(np.array(labels)[used].sum())
        best = max(best, min(true, int(used.sum()) - true))
    assert found.pairs == best


def outlook(
    n_true: int, n_false: int, n_open: int, relation: str | None = None
) -> Outlook:
    labels = [True] * n_true + [False] * n_false + [None] * n_open
    return LabelCounter(
        numbered(number, relation, label) for number, label in enumerate(labels)
    ).outlook()


@pytest.mark.parametrize(
    ("counts", "enough"),
    [
        ((0, 0, 60), True),
        ((0, 0, 59), False),
        ((30, 30, 0), True),
        ((29, 400, 1), True),
        ((31, 0, 29), False),
    ],
)
def test_thirty_of_each_kind_are_needed(
    counts: tuple[int, int, int], enough: bool
) -> None:
    assert (PER_CLASS, NEEDED) == (30, 60)
    found = outlook(*counts)
    assert found.is_enough == enough
    assert ("too few for a run" in found.sentence) != enough
    assert (found.sentence == "") == (sum(counts) >= FOR_A_CHART and enough)


TEXTS = ["Who?", "who", "Is it?", "???", "!!!", "Who is the one?", "Who  is", "Oslo"]
SURVEYED = st.lists(
    st.builds(
        Question,
        st.just("mine"),
        st.just("1"),
        st.sampled_from(TEXTS),
        st.lists(st.sampled_from(["yes", "no", "Ann"]), min_size=1, max_size=4).map(
            tuple
        ),
        st.sampled_from([None, "Oslo"]),
        st.sampled_from([None, "capital", "sport"]),
        truthful=st.sampled_from([None, True, False]),
        metadata=st.sampled_from([{}, {"year": 1}, {"year": None, "x": "y"}]),
    )
)


@given(SURVEYED, st.integers(0, 4))
def test_counts_are_those_of_different_questions(
    questions: list[Question], examples: int
) -> None:
    first = {
        question_key(question.question): question for question in reversed(questions)
    }
    different = [
        question
        for question in questions
        if first[question_key(question.question)] is question
    ]
    record, outlook, shown = take_survey(questions, examples)
    left_out = sum(record[reason] for reason in ("wordless", "few_shot", "yes_no"))
    assert record["questions"] == left_out + outlook.questions
    assert shown == different[:examples]
    assert outlook.questions == sum(
        not why_not_asked(question) for question in different
    )
    assert (record["questions"], record["repeated"]) == (
        len(different),
        len(questions) - len(different),
    )
    assert record["answers"] == sum(len(question.answers) for question in different)
    assert record["yes_no"] == sum(
        why_not_asked(question) == "yes/no" for question in different
    )
    assert record["filled"]["subject"] == sum(
        question.subject is not None for question in different
    )
    assert record["labelled_true"] == sum(
        question.truthful is True for question in different
    )
    assert record["relations"] == Counter(
        question.relation for question in different if question.relation
    )
    assert record["metadata"].get("year", 0) == sum(
        question.metadata.get("year") is not None for question in different
    )
