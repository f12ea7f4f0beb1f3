"""Labels, groups and the balanced draw."""

from collections import Counter
from collections.abc import Hashable, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anchorscope.answers.generate import Answer
from anchorscope.answers.label import Label, group_items, label_answers
from anchorscope.catalogue import BALANCE
from anchorscope.datasets.question import Question
from anchorscope.stats.streams import Drawn, draw_balanced, unnamed


def asked(
    index: int, truthful: bool | None = None, relation: str | None = "capital"
) -> Question:
    return Question(
        "d",
        str(index),
        f"Question {index}?",
        ("Paris",),
        f"s{index}",
        relation,
        truthful=truthful,
    )


def said(text: str, status: str = "answered") -> Answer:
    return Answer(text=text, ids=(1,), log_probs=None, status=status)


def labelled(
    questions: list[Question], answers: list[Answer], **options: object
) -> list[Label]:
    settings = {
        "balance": "relation",
        "group_by": "subject",
        "max_per_class": 100,
        "seed": 0,
        **options,
    }
    return label_answers(questions, answers, **settings)  # type: ignore[arg-type]


def test_a_label_that_is_given_wins_over_the_grade() -> None:
    labels = labelled(
        [asked(0, truthful=False), asked(1, truthful=True)],
        [said("Paris"), said("Rome")],
    )
    assert [label.truthful for label in labels] == [False, True]


def test_empty_and_truncated_answers_have_no_label_and_are_never_used() -> None:
    questions = [
        asked(0),
        asked(1),
        asked(2, truthful=True),
        asked(3, truthful=False),
        asked(4),
    ]
    answers = [
        said("Paris"),
        said("Rome"),
        said("Paris", "truncated"),
        said("", "empty"),
        said("Oslo", "truncated"),
    ]
    for balance in ("relation", "dataset", "none"):
        labels = labelled(questions, answers, balance=balance)
        assert [label.status for label in labels] == [
            "used",
            "used",
            "truncated",
            "empty",
            "truncated",
        ]
        assert [label.truthful for label in labels] == [True, False, None, None, None]
        assert [label.weight for label in labels] == [1, 1, 0, 0, 0]


def asked_about(question: str, subject: str | None = None) -> Question:
    return Question(
        dataset="d",
        item_id=question,
        question=question,
        answers=("x",),
        subject=subject,
    )


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
                    parts[first] = (
                        parts[first][0] | parts[second][0],
                        parts[first][1] | parts[second][1],
                    )
                    del parts[second]
                    merged = True
                    break
            if merged:
                break
    return [items for items, _ in parts]


def test_grouping_by_answer_ties_the_same_answer_and_nothing_else() -> None:
    questions = [
        asked_about("one", "Peru"),
        asked_about("two", "Peru"),
        asked_about("three"),
        asked_about("one"),
    ]
    groups = group_items(
        questions, ["Africa", "Asia", "the africa.", "Europe"], "answer"
    ).tolist()
    assert groups[0] == groups[2]
    assert len(set(groups)) == 3


@given(
    st.lists(st.tuples(st.integers(0, 6), st.none() | st.integers(0, 4)), max_size=14)
)
def test_groups_are_the_connected_components(
    items: list[tuple[int, int | None]],
) -> None:
    questions = [
        asked_about(f"question{q}", None if s is None else f"subject{s}")
        for q, s in items
    ]
    keys = [{("q", q), *([] if s is None else [("s", s)])} for q, s in items]
    groups = grouped(*questions)
    found = [
        {index for index, own in enumerate(groups) if own == group}
        for group in sorted(set(groups))
    ]
    assert sorted(map(sorted, found)) == sorted(map(sorted, slow_components(keys)))
    assert sorted(set(groups)) == list(range(len(set(groups))))


RELATIONS = st.sampled_from(["capital", "author", "symbol", None])
ITEMS = st.lists(st.tuples(st.booleans(), RELATIONS), min_size=1, max_size=60)


def drawn(
    items: list[tuple[bool, str | None]], balance: str, most: int, seed: int = 0
) -> Drawn:
    labels = np.array([label for label, _ in items], dtype=bool)
    return draw_balanced(
        labels,
        [relation for _, relation in items],
        balance,
        most,
        unnamed(seed, "test", len(labels)),
    )


def cells(
    items: list[tuple[bool, str | None]], result: Drawn
) -> dict[str | None, tuple[Counter, Counter]]:
    """Per relation: how many true and false items there are, and how many of them were drawn."""
    found: dict[str | None, tuple[Counter, Counter]] = {}
    for (label, relation), used in zip(items, result.used, strict=True):
        there, taken = found.setdefault(relation, (Counter(), Counter()))
        there[label] += 1
        taken[label] += int(used)
    return found


@given(ITEMS, st.integers(1, 12), st.integers(0, 5))
def test_every_relation_gives_as_many_true_as_false(
    items: list, most: int, seed: int
) -> None:
    result = drawn(items, "relation", most, seed)
    counted = cells(items, result)
    assert all(taken[True] == taken[False] for _, taken in counted.values())
    possible = sum(min(there[True], there[False]) for there, _ in counted.values())
    assert sum(taken[True] for _, taken in counted.values()) == min(possible, most)


@given(ITEMS, st.integers(1, 12))
def test_the_whole_dataset_gives_as_many_true_as_false(items: list, most: int) -> None:
    result = drawn(items, "dataset", most)
    labels = np.array([label for label, _ in items], dtype=bool)
    wanted = min(labels.sum(), (~labels).sum(), most)
    assert result.used[labels].sum() == result.used[~labels].sum() == wanted


@given(ITEMS, st.integers(1, 12))
def test_without_balance_only_the_most_of_each_class_are_taken(
    items: list, most: int
) -> None:
    result = drawn(items, "none", most)
    labels = np.array([label for label, _ in items], dtype=bool)
    assert result.used[labels].sum() == min(labels.sum(), most)
    assert result.used[~labels].sum() == min((~labels).sum(), most)


@given(ITEMS, st.integers(1, 12), st.sampled_from(BALANCE))
def test_weights_sum_to_the_size_of_what_was_drawn_from(
    items: list, most: int, balance: str
) -> None:
    result = drawn(items, balance, most)
    assert ((result.weight > 0) == result.used).all()
    relations = (
        np.array([relation or "" for _, relation in items])
        if balance == "relation"
        else np.zeros(len(items))
    )
    labels = np.array([label for label, _ in items])
    for relation in np.unique(relations):
        for label in (True, False):
            cell = (relations == relation) & (labels == label)
            if result.used[cell].any():
                assert result.weight[cell].sum() == pytest.approx(cell.sum())
                assert len(set(result.weight[cell & result.used])) == 1


@pytest.mark.parametrize("most", [100, 6])
def test_a_weight_is_the_inverse_of_the_chance_to_be_drawn(most: int) -> None:
    items = (
        [(True, "capital")] * 4
        + [(False, "capital")] * 10
        + [(True, "author")] * 9
        + [(False, "author")] * 5
    )
    weights = np.mean(
        [drawn(items, "relation", most, seed).weight for seed in range(1500)], axis=0
    )
    # Weights estimate counts without bias: every item stands for one, however rarely it is drawn.
    assert weights == pytest.approx(1, abs=0.2)
