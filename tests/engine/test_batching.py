"""Batch plans: every item once, within the budget, with little padding."""

from hypothesis import given
from hypothesis import strategies as st

from anchorscope.engine.batching import padding_share, plan_batches

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


@given(LENGTHS, BUDGET)
def test_the_padding_share_counts_the_tokens_that_are_run_in_vain(lengths: list[int], budget: int) -> None:
    batches = plan_batches(lengths, budget)
    run = real = 0
    for batch in batches:
        for index in batch:
            real += lengths[index]
            run += max(lengths[other] for other in batch)
    share = padding_share(lengths, batches)
    assert share == (1 - real / run if run else 0)
    assert 0 <= share < 1


def test_sorting_by_length_leaves_little_padding() -> None:
    lengths = [10, 40] * 50
    assert padding_share(lengths, plan_batches(lengths, 400)) == 0
    assert padding_share(lengths, [range(start, start + 10) for start in range(0, 100, 10)]) == 0.375
