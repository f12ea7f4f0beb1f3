"""Balance: as many true as false answers within every relation, drawn without favour, weighted back."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anchorscope.answers.label import Drawn, draw
from anchorscope.catalogue import BALANCE
from anchorscope.stats.streams import unnamed

RELATIONS = st.sampled_from(["capital", "author", "symbol", None])
ITEMS = st.lists(st.tuples(st.booleans(), RELATIONS), min_size=1, max_size=60)


def drawn(items: list[tuple[bool, str | None]], balance: str, most: int, seed: int = 0) -> Drawn:
    labels = np.array([label for label, _ in items], dtype=bool)
    return draw(labels, [relation for _, relation in items], balance, most, unnamed(seed, "test", len(labels)))


def cells(items: list[tuple[bool, str | None]], result: Drawn) -> dict[str | None, tuple[Counter, Counter]]:
    """Per relation: how many true and false items there are, and how many of them were drawn."""
    found: dict[str | None, tuple[Counter, Counter]] = {}
    for (label, relation), used in zip(items, result.used, strict=True):
        there, taken = found.setdefault(relation, (Counter(), Counter()))
        there[label] += 1
        taken[label] += int(used)
    return found


@given(ITEMS, st.integers(1, 12), st.integers(0, 5))
def test_every_relation_gives_as_many_true_as_false(items: list, most: int, seed: int) -> None:
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
def test_without_balance_only_the_most_of_each_class_are_taken(items: list, most: int) -> None:
    result = drawn(items, "none", most)
    labels = np.array([label for label, _ in items], dtype=bool)
    assert result.used[labels].sum() == min(labels.sum(), most)
    assert result.used[~labels].sum() == min((~labels).sum(), most)


@given(ITEMS, st.integers(1, 12), st.sampled_from(BALANCE))
def test_weights_sum_to_the_size_of_what_was_drawn_from(items: list, most: int, balance: str) -> None:
    result = drawn(items, balance, most)
    assert ((result.weight > 0) == result.used).all()
    relations = np.array([relation or "" for _, relation in items]) if balance == "relation" else np.zeros(len(items))
    labels = np.array([label for label, _ in items])
    for relation in np.unique(relations):
        for label in (True, False):
            cell = (relations == relation) & (labels == label)
            if result.used[cell].any():
                assert result.weight[cell].sum() == pytest.approx(cell.sum())
                assert len(set(result.weight[cell & result.used])) == 1


def test_nothing_is_drawn_from_a_relation_with_one_kind_of_answer() -> None:
    items = [(True, "capital")] * 5 + [(False, "capital")] * 3 + [(False, "director")] * 9 + [(True, "symbol")] * 2
    result = drawn(items, "relation", 100)
    assert result.used[:8].sum() == 6
    assert not result.used[8:].any()
    assert result.weight[:5].max() == pytest.approx(5 / 3)
    assert result.weight[5:8].tolist() == [1, 1, 1]


def test_items_without_a_relation_are_balanced_among_themselves() -> None:
    items = [(True, None)] * 4 + [(False, "capital")] * 4 + [(False, None)] * 2
    result = drawn(items, "relation", 100)
    assert result.used.tolist() == [*result.used[:4].tolist(), *[False] * 4, True, True]
    assert result.used[:4].sum() == 2


def test_the_same_seed_draws_the_same_and_another_seed_another_sample() -> None:
    items = [(index % 4 == 0, "capital") for index in range(80)]
    first, again, other = (drawn(items, "relation", 100, seed).used for seed in (1, 1, 2))
    assert (first == again).all()
    assert (first != other).any()


@pytest.mark.parametrize("most", [100, 6])
def test_a_weight_is_the_inverse_of_the_chance_to_be_drawn(most: int) -> None:
    items = [(True, "capital")] * 4 + [(False, "capital")] * 10 + [(True, "author")] * 9 + [(False, "author")] * 5
    weights = np.mean([drawn(items, "relation", most, seed).weight for seed in range(3000)], axis=0)
    # Weights estimate counts without bias: every item stands for one, however rarely it is drawn.
    assert weights == pytest.approx(1, abs=0.15)
