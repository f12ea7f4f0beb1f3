"""Batch plans: every item once, within the budget, equally long ones together."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from anchorscope.engine.batching import plan_batches

LENGTHS = st.lists(st.integers(1, 40), max_size=30)
BUDGET = st.integers(1, 200)


@given(LENGTHS, BUDGET)
def test_every_item_is_in_exactly_one_batch(lengths: list[int], budget: int) -> None:
    batches = plan_batches(lengths, budget)
    assert sorted(index for batch in batches for index in batch) == list(range(len(lengths)))
    assert all(batches)


@given(LENGTHS, BUDGET)
def test_the_budget_is_kept_and_used(lengths: list[int], budget: int) -> None:
    batches = plan_batches(lengths, budget)
    for place, batch in enumerate(batches):
        longest = max(lengths[index] for index in batch)
        assert len(batch) == 1 or longest * len(batch) <= budget  # an item longer than the budget runs alone
        if place + 1 < len(batches):
            assert longest * (len(batch) + 1) > budget  # the next item would not have fitted


@given(LENGTHS, BUDGET)
def test_the_longest_run_first_so_that_lack_of_memory_shows_at_once(lengths: list[int], budget: int) -> None:
    run = [lengths[index] for batch in plan_batches(lengths, budget) for index in batch]
    assert run == sorted(lengths, reverse=True)


@given(st.lists(st.integers(1, 4), min_size=1, max_size=20), BUDGET, st.randoms(use_true_random=False))
def test_an_order_decides_among_equal_lengths(lengths: list[int], budget: int, random: object) -> None:
    order = list(range(len(lengths)))
    random.shuffle(order)  # type: ignore[attr-defined]
    run = [index for batch in plan_batches(lengths, budget, order) for index in batch]
    for length in set(lengths):
        assert [index for index in run if lengths[index] == length] == [
            index for index in order if lengths[index] == length
        ]


@given(st.lists(st.integers(1, 40), min_size=2, max_size=30), BUDGET)
def test_no_item_runs_with_longer_ones_than_it_must(lengths: list[int], budget: int) -> None:
    batches = plan_batches(lengths, budget)
    for one, following in itertools.pairwise(batches):
        assert min(lengths[index] for index in one) >= max(lengths[index] for index in following)
