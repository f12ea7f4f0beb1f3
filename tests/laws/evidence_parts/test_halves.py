"""Halves and folds: groups stay whole, strata even, and the same names give the same splits."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from anchorscope.evidence_parts.half_splits import RIDGE_FOLDS, make_halves


def items(n, seed):
    rng = np.random.default_rng(seed)
    groups = rng.integers(0, n // 2, n)
    strata = rng.integers(0, 6, n)
    return groups, strata, [f"item {one}" for one in range(n)]


@given(seed=st.integers(0, 100))
def test_groups_are_never_divided(seed):
    groups, strata, ids = items(120, seed)
    found = make_halves(groups, strata, seed, ids, 3)
    for split in range(3):
        for group in np.unique(groups):
            inside = groups == group
            assert len(set(found.first[split, inside])) == 1
            assert len(set(found.folds[split, inside])) == 1
            for side in range(2):
                assert len(set(found.inner[split, side, inside])) == 1


def test_strata_are_even_in_halves_and_folds():
    n = 400
    strata = np.arange(n) % 8
    found = make_halves(np.arange(n), strata, 0, [str(one) for one in range(n)], 4)
    for split in range(4):
        for stratum in range(8):
            inside = strata == stratum
            assert abs(found.first[split, inside].sum() - 25) <= 1
            for half in (True, False):
                here = inside & (found.first[split] == half)
                counts = np.bincount(found.folds[split, here], minlength=RIDGE_FOLDS)
                assert counts.max() - counts.min() <= 2


def test_splits_differ_and_are_repeated_by_name():
    groups, strata, ids = items(200, 2)
    found = make_halves(groups, strata, 5, ids, 3)
    assert not np.array_equal(found.first[0], found.first[1])
    again = make_halves(groups, strata, 5, ids, 3)
    assert np.array_equal(found.first, again.first)
    assert not np.array_equal(found.first, make_halves(groups, strata, 6, ids, 3).first)
