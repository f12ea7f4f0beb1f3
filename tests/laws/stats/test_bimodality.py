"""The dip against its definition as a linear programme, and the test's size and power."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.optimize import linprog

from anchorscope.stats.modes import dip, dip_p_value, dips, null_dips

DIFFERENT = st.lists(st.integers(0, 200), min_size=2, max_size=10, unique=True)
REPEATED = st.lists(st.integers(0, 6), min_size=1, max_size=12)


def defined_dip(values: list[float]) -> float:
    """The least distance to a distribution function that is convex up to a mode and concave from there on.

    One linear programme per mode. Unknowns are the function just below every point up to the mode, the function at
    every point from the mode on (there it may jump, and nowhere else), and the distance.
    """
    x, counts = np.unique(values, return_counts=True)
    after = np.cumsum(counts) / len(values)
    before = after - counts / len(values)
    return min(_distance(x, before, after, mode) for mode in range(len(x)))


def _distance(x: NDArray, before: NDArray, after: NDArray, mode: int) -> float:
    n = len(x)
    rows: list[NDArray] = []
    limits: list[float] = []

    def at_most(limit: float, *terms: tuple[int, float]) -> None:
        row = np.zeros(n + 2)
        for place, factor in terms:
            row[place] += factor
        rows.append(row)
        limits.append(limit)

    for k in range(n + 1):  # k ≤ mode: just below point k; k > mode: at point k - 1
        point = k if k <= mode else k - 1
        at_jump = k in (mode, mode + 1)
        lowest = (before if k == mode else after)[point] if at_jump else after[point]
        highest = (before if k == mode else after)[point] if at_jump else before[point]
        at_most(highest, (k, 1), (n + 1, -1))
        at_most(-lowest, (k, -1), (n + 1, -1))
        if k:
            at_most(0, (k - 1, 1), (k, -1))
    for k in range(1, mode):
        _bend(at_most, x[k - 1 : k + 2], k, 1)
    for k in range(mode + 2, n):
        _bend(at_most, x[k - 2 : k + 1], k, -1)
    found = linprog(np.eye(n + 2)[-1], A_ub=np.array(rows), b_ub=limits, bounds=[(0, 1)] * (n + 2))
    return float(found.fun)


def _bend(at_most, x: NDArray, k: int, sign: int) -> None:
    left, right = x[1] - x[0], x[2] - x[1]
    at_most(0, (k, sign * (1 / left + 1 / right)), (k - 1, -sign / left), (k + 1, -sign / right))


@given(values=DIFFERENT)
@settings(max_examples=60)
def test_the_dip_is_what_its_definition_says(values: list[int]) -> None:
    found = dip(np.array(values, float))
    assert found == pytest.approx(defined_dip(values), abs=1e-7)
    assert 1 / (2 * len(values)) - 1e-12 <= found <= 0.25 + 1e-12


@given(values=REPEATED)
@settings(max_examples=60)
def test_the_dip_is_what_its_definition_says_where_values_repeat(values: list[int]) -> None:
    assert dip(np.array(values, float)) == pytest.approx(defined_dip(values), abs=1e-7)


def test_known_dips() -> None:
    assert dip(np.array([3.0, 3.0, 3.0])) == 0
    assert dip(np.array([0.0, 1.0])) == pytest.approx(1 / 4)
    assert dip(np.arange(20.0)) == pytest.approx(1 / 40), "evenly spaced: as small as it can be"
    far = np.concatenate([np.arange(50) * 1e-6, 1 + np.arange(50) * 1e-6])
    assert dip(far) == pytest.approx(0.25, abs=0.01), "two far points: as large as it can be"


@given(values=DIFFERENT, scale=st.floats(0.1, 10), shift=st.integers(-50, 50), seed=st.integers(0, 99))
def test_order_unit_origin_and_direction_do_not_matter(values: list[int], scale: float, shift: int, seed: int) -> None:
    given_values = np.array(values, float)
    other = np.random.default_rng(seed).permutation(given_values) * scale + shift
    assert dip(other) == pytest.approx(dip(given_values), abs=1e-9)
    assert dip(-given_values) == pytest.approx(dip(given_values), abs=1e-9)


def test_resamples_are_what_their_items_written_out_are() -> None:
    rng = np.random.default_rng(0)
    values = rng.normal(size=80)
    counts = rng.multinomial(80, np.full(80, 1 / 80), size=30)
    counts[3] = 0
    found = dips(values, counts)
    assert np.isnan(found[3])
    for row in (0, 7, 29):
        assert found[row] == pytest.approx(dip(np.repeat(values, counts[row])), abs=1e-12)


def test_values_that_are_no_numbers_are_refused() -> None:
    with pytest.raises(ValueError, match="not finite"):
        dip(np.array([0.0, np.nan]))


def test_quantiles_of_uniform_samples_are_those_of_the_published_table() -> None:
    """Of `qDiptab` (Maechler, a million samples per size): the median and the 95 % point."""
    for n, median, high in ((10, 0.0978, 0.1396), (20, 0.0733, 0.1051), (50, 0.0489, 0.0703), (200, 0.0256, 0.0368)):
        assert np.quantile(null_dips(n, 0), [0.5, 0.95]) == pytest.approx([median, high], rel=0.03), n


def test_the_test_holds_its_size_and_finds_two_modes() -> None:
    rng = np.random.default_rng(1)
    uniform = [dip_p_value(dip(rng.random(100)), 100, 0) for _ in range(300)]
    assert 0.02 <= np.mean(np.array(uniform) < 0.05) <= 0.09
    normal = [dip_p_value(dip(rng.normal(size=100)), 100, 0) for _ in range(100)]
    assert np.mean(np.array(normal) < 0.05) <= 0.03, "one hump is safer than the uniform"
    two = np.concatenate([rng.normal(-2, 0.7, 50), rng.normal(2, 0.7, 50)])
    assert dip_p_value(dip(two), 100, 0) < 0.01


def test_p_values_are_seeded_and_never_zero() -> None:
    assert dip_p_value(0.25, 40, 3, 99) == pytest.approx(0.01)
    assert dip_p_value(0.0, 40, 3, 99) == 1
    assert (null_dips(30, 1, 50) == null_dips.__wrapped__(30, 1, 50)).all()
    assert not (null_dips(30, 1, 50) == null_dips(30, 2, 50)).all()
