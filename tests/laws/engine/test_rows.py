"""Positions and kinds of many rows at once: what a loop over single rows gives."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from anchorscope.engine.capture import AnswerStats
from anchorscope.engine.rows import all_between

RANGES = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 6)), max_size=12)


@given(RANGES)
def test_numbers_between_many_ends_are_those_between_each(ranges):
    first = np.array([start for start, _ in ranges], dtype=np.int64)
    stop = np.array([start + n for start, n in ranges], dtype=np.int64)
    wanted = [number for start, n in ranges for number in range(start, start + n)]
    found = all_between(first, stop)
    assert found.tolist() == wanted
    assert found.dtype == np.int64


@given(st.lists(st.integers(0, 4), min_size=1, max_size=8), st.data())
def test_statistics_of_chosen_items_are_each_ones_own(lengths, data):
    numbers = iter(range(1000))
    items = [np.array([[next(numbers) for _ in range(n)] for _ in range(3)], np.float32).reshape(3, n) for n in lengths]
    chosen = data.draw(st.lists(st.integers(0, len(lengths) - 1), max_size=10))
    whole = AnswerStats.of(items)
    found = whole.take(chosen)
    assert [one.tolist() for one in found.by_item()] == [items[item].tolist() for item in chosen]
    again = AnswerStats.join([found, whole])
    assert [one.tolist() for one in again.by_item()] == [items[item].tolist() for item in (*chosen, *range(len(items)))]
