"""Whether questions can be enough is decided as a run would: by the best labels that the open answers could get."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anchorscope.answers.choose import FOR_A_CHART, NEEDED, PER_CLASS, LabelCounter, Outlook
from anchorscope.datasets.question import Question
from anchorscope.stats.streams import draw_balanced, priorities


def question(
    number: int, relation: str | None = None, truthful: bool | None = None, said: str | None = None
) -> Question:
    answer = "so" if truthful is not None and said is None else said
    return Question(
        "d", str(number), f"Who is {number}?", ("Ann",), None, relation, model_answer=answer, truthful=truthful
    )


ROWS = st.tuples(st.sampled_from(["a", "b", None]), st.sampled_from([True, False, None]))


@settings(max_examples=60, deadline=None)
@given(st.lists(ROWS, min_size=1, max_size=9), st.sampled_from(["relation", "dataset", "none"]))
def test_no_labels_of_open_answers_would_give_more(rows: list[tuple[str | None, bool | None]], balance: str) -> None:
    found = LabelCounter(question(number, *row) for number, row in enumerate(rows)).outlook(balance)
    order = priorities(0, "balance", [str(number) for number in range(len(rows))])
    best = 0
    for labels in product(*([row[1]] if row[1] is not None else [True, False] for row in rows)):
        used = draw_balanced(np.array(labels), [row[0] for row in rows], balance, 100, order).used
        true = int(np.array(labels)[used].sum())
        best = max(best, min(true, int(used.sum()) - true))
    assert found.pairs == best


def outlook(n_true: int, n_false: int, n_open: int, relation: str | None = None) -> Outlook:
    labels = [True] * n_true + [False] * n_false + [None] * n_open
    return LabelCounter(question(number, relation, label) for number, label in enumerate(labels)).outlook()


@pytest.mark.parametrize(
    ("counts", "enough"),
    [((0, 0, 60), True), ((0, 0, 59), False), ((30, 30, 0), True), ((29, 400, 1), True), ((31, 0, 29), False)],
)
def test_thirty_of_each_kind_are_needed(counts: tuple[int, int, int], enough: bool) -> None:
    assert (PER_CLASS, NEEDED) == (30, 60)
    found = outlook(*counts)
    assert found.is_enough == enough
    assert ("too few for a run" in found.sentence) != enough
    assert (found.sentence == "") == (sum(counts) >= FOR_A_CHART and enough)
