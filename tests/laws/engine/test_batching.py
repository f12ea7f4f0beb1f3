"""Batch plans: every item once, within the budget, equally long ones together."""

from hypothesis import given
from hypothesis import strategies as st

from anchorscope.engine.batching import plan_batches

LENGTHS = st.lists(st.integers(1, 40), max_size=30)
BUDGET = st.integers(1, 200)


@given(LENGTHS, BUDGET)
def test_every_item_runs_once_within_the_budget_with_the_longest_first(
    lengths: list[int], budget: int
) -> None:
    batches = plan_batches(lengths, budget)
    assert all(batches)
    order = [index for batch in batches for index in batch]
    assert sorted(order) == list(range(len(lengths)))
    # a lack of memory shows at once
    assert [lengths[index] for index in order] == sorted(lengths, reverse=True)
    for number, batch in enumerate(batches):
        longest = max(lengths[index] for index in batch)
        # an item longer than the budget runs alone
        assert len(batch) == 1 or longest * len(batch) <= budget
        if number + 1 < len(batches):
            # the next item would not have fitted
            assert longest * (len(batch) + 1) > budget


@given(
    st.lists(st.integers(1, 4), min_size=1, max_size=20),
    BUDGET,
    st.randoms(use_true_random=False),
)
def test_an_order_decides_among_equal_lengths(
    lengths: list[int], budget: int, random: object
) -> None:
    order = list(range(len(lengths)))
    random.shuffle(order)  # type: ignore[attr-defined]
    run = [index for batch in plan_batches(lengths, budget, order) for index in batch]
    for length in set(lengths):
        assert [index for index in run if lengths[index] == length] == [
            index for index in order if lengths[index] == length
        ]
