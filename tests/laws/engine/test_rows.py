"""Positions and kinds of many rows at once: what a loop over single rows gives."""

from itertools import product

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from anchorscope.engine.capture import AnswerStats
from anchorscope.engine.forward import CutKinds
from anchorscope.engine.rows import all_between
from anchorscope.engine.sequences import EDGES, Cut

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


def test_kinds_of_cuts_are_each_cuts_own():
    keys, heads = [(), (3,), (3, 4)], [None, (0,), (1, 2)]
    cuts = [
        Cut(one, edges, how, some, alpha)
        for one, edges, how, some, alpha in product(keys, EDGES, ("mask", "zero"), heads, (-1.0, -0.5, 0.0, 1.0))
        if how == "mask" or alpha == -1
    ] * 2
    found = CutKinds.of(cuts)
    assert found.edges.tolist() == [EDGES.index(cut.edges) for cut in cuts]
    assert found.zeroing.tolist() == [cut.how == "zero" for cut in cuts]
    assert found.bias.tolist() == [np.float32(cut.bias) for cut in cuts]
    assert found.biasing.tolist() == [bool(cut.changes and cut.alpha != -1) for cut in cuts]
    assert found.by_head.tolist() == [cut.heads is not None for cut in cuts]
