"""Folds: groups stay whole, true and false answers spread evenly, the same seed gives the same folds."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from anchorscope.probes.folds import grouped_folds
from anchorscope.stats.streams import unnamed

ITEMS = st.lists(st.tuples(st.integers(0, 15), st.booleans()), min_size=1, max_size=60)


def columns(items: list[tuple[int, bool]]) -> tuple[np.ndarray, np.ndarray]:
    return np.array([group for group, _ in items]), np.array([label for _, label in items], dtype=bool)


@given(ITEMS, st.integers(2, 6), st.integers(0, 99))
def test_groups_are_never_torn(items: list[tuple[int, bool]], n_folds: int, seed: int) -> None:
    groups, labels = columns(items)
    folds = grouped_folds(groups, labels, n_folds, unnamed(seed, "test", len(labels)))
    assert folds.shape == groups.shape
    assert ((folds >= 0) & (folds < n_folds)).all()
    for group in set(groups):
        assert len(set(folds[groups == group])) == 1


@given(ITEMS, st.integers(2, 6), st.integers(0, 99))
def test_the_same_seed_gives_the_same_folds(items: list[tuple[int, bool]], n_folds: int, seed: int) -> None:
    groups, labels = columns(items)
    first, second = (grouped_folds(groups, labels, n_folds, unnamed(seed, "test", len(labels))) for _ in range(2))
    assert (first == second).all()


@given(ITEMS, st.integers(2, 6), st.integers(0, 99))
def test_the_names_of_groups_do_not_matter(items: list[tuple[int, bool]], n_folds: int, seed: int) -> None:
    groups, labels = columns(items)
    found = grouped_folds(groups, labels, n_folds, unnamed(seed, "test", len(labels)))
    renamed = grouped_folds(7 * groups - 40, labels, n_folds, unnamed(seed, "test", len(labels)))
    assert (found == renamed).all()


@given(st.lists(st.tuples(st.integers(1, 6), st.booleans()), min_size=1, max_size=25), st.integers(2, 6))
def test_true_and_false_spread_evenly_up_to_the_largest_group(sizes: list[tuple[int, bool]], n_folds: int) -> None:
    groups = np.repeat(np.arange(len(sizes)), [size for size, _ in sizes])
    labels = np.repeat([label for _, label in sizes], [size for size, _ in sizes])
    folds = grouped_folds(groups, labels, n_folds, unnamed(0, "test", len(labels)))
    for label in (True, False):
        counts = np.bincount(folds[labels == label], minlength=n_folds)
        largest = max((size for size, kind in sizes if kind == label), default=0)
        assert counts.max() - counts.min() <= largest


def test_large_groups_are_dealt_first_so_that_small_ones_can_even_them_out() -> None:
    groups = np.array([*[0] * 8, *range(1, 9)])
    for seed in range(5):
        folds = grouped_folds(groups, np.ones(16, dtype=bool), 2, unnamed(seed, "test", 16))
        assert list(np.bincount(folds)) == [8, 8]


def test_mixed_groups_spread_evenly_too() -> None:
    rng = np.random.default_rng(4)
    groups = rng.integers(0, 150, size=600)
    labels = rng.random(600) < 0.3
    folds = grouped_folds(groups, labels, 5, unnamed(0, "test", len(labels)))
    sizes = np.bincount(groups)
    for label in (True, False):
        counts = np.bincount(folds[labels == label], minlength=5)
        assert counts.max() - counts.min() <= sizes.max() // 2  # far better than chance, whose spread would be about 20


def test_another_seed_gives_other_folds() -> None:
    groups, labels = np.arange(60), np.arange(60) % 2 == 0
    first, second = (grouped_folds(groups, labels, 5, unnamed(seed, "test", len(labels))) for seed in (0, 1))
    assert (first != second).any()
