"""Folds: groups stay whole, every relation's true and false answers spread evenly, a seed always gives the same."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from anchorscope.probes.folds import grouped_folds, truth_strata
from anchorscope.stats.streams import priorities, unnamed

RELATIONS = st.sampled_from(["capital", "author", "colour", None])
ITEMS = st.lists(
    st.tuples(st.integers(0, 15), st.booleans(), RELATIONS), min_size=1, max_size=60
)


def columns(items: list[tuple[int, bool, str | None]]) -> tuple[np.ndarray, np.ndarray]:
    labels = np.array([label for _, label, _ in items], dtype=bool)
    return np.array([group for group, _, _ in items]), truth_strata(
        labels, [name for _, _, name in items]
    )


def dealt(
    groups: np.ndarray, strata: np.ndarray, n_folds: int, seed: int = 0
) -> np.ndarray:
    return grouped_folds(groups, strata, n_folds, unnamed(seed, "test", len(groups)))


def spread(folds: np.ndarray, n_folds: int) -> int:
    """How many items the fullest fold has more than the emptiest."""
    return int(np.ptp(np.bincount(folds, minlength=n_folds)))


@given(ITEMS, st.integers(2, 6), st.integers(0, 99))
def test_groups_are_never_torn(
    items: list[tuple[int, bool, str | None]], n_folds: int, seed: int
) -> None:
    groups, strata = columns(items)
    folds = dealt(groups, strata, n_folds, seed)
    assert folds.shape == groups.shape
    assert ((folds >= 0) & (folds < n_folds)).all()
    for group in set(groups):
        assert len(set(folds[groups == group])) == 1


@given(ITEMS, st.integers(2, 6), st.integers(0, 99))
def test_names_of_groups_and_relations_do_not_matter(
    items: list[tuple[int, bool, str | None]], n_folds: int, seed: int
) -> None:
    groups, strata = columns(items)
    found = dealt(groups, strata, n_folds, seed)
    assert (found == dealt(groups, strata, n_folds, seed)).all()
    assert (found == dealt(7 * groups - 40, strata, n_folds, seed)).all()
    backwards = 2 * (9 - strata // 2) + strata % 2
    assert (found == dealt(groups, backwards, n_folds, seed)).all()


@given(ITEMS, st.integers(2, 6), st.randoms(use_true_random=False))
def test_the_order_of_items_does_not_matter(
    items: list[tuple[int, bool, str | None]], n_folds: int, draw: np.random.Generator
) -> None:
    places = list(range(len(items)))
    draw.shuffle(places)
    found, moved = (
        grouped_folds(
            *columns([items[place] for place in some]),
            n_folds,
            priorities(0, "test", list(map(str, some))),
        )
        for some in (range(len(items)), places)
    )
    assert (found[places] == moved).all()


@given(
    st.lists(st.tuples(st.integers(1, 6), st.booleans()), min_size=1, max_size=25),
    st.integers(2, 6),
)
def test_true_and_false_spread_evenly_up_to_the_largest_group(
    sizes: list[tuple[int, bool]], n_folds: int
) -> None:
    groups = np.repeat(np.arange(len(sizes)), [size for size, _ in sizes])
    labels = np.repeat([label for _, label in sizes], [size for size, _ in sizes])
    folds = dealt(groups, truth_strata(labels), n_folds)
    for label in (True, False):
        largest = max((size for size, kind in sizes if kind == label), default=0)
        assert spread(folds[labels == label], n_folds) <= largest


@given(
    st.lists(st.integers(1, 12), min_size=2, max_size=15),
    st.integers(2, 6),
    st.integers(0, 99),
)
def test_items_balanced_within_relations_are_so_in_every_fold(
    pairs: list[int], n_folds: int, seed: int
) -> None:
    relation = np.repeat(np.arange(len(pairs)), 2 * np.array(pairs))
    labels = np.concatenate([np.arange(2 * n) % 2 == 0 for n in pairs])
    folds = dealt(np.arange(len(labels)), 2 * relation + labels, n_folds, seed)
    assert spread(folds[labels], n_folds) <= 2
    for name in range(len(pairs)):
        true, false = (
            np.bincount(folds[(relation == name) & (labels == t)], minlength=n_folds)
            for t in (True, False)
        )
        assert (true == false).all()
        assert np.ptp(true) <= 2


@given(
    st.lists(st.tuples(st.integers(0, 30), st.booleans()), min_size=1, max_size=80),
    st.integers(2, 5),
)
def test_rare_relations_make_no_fold_uneven(
    items: list[tuple[int, bool]], n_folds: int
) -> None:
    labels = np.array([label for _, label in items])
    strata = truth_strata(labels, [str(name) for name, _ in items])
    folds = dealt(np.arange(len(items)), strata, n_folds)
    assert spread(folds, n_folds) <= 4
    assert max(spread(folds[labels == truth], n_folds) for truth in (True, False)) <= 4
    assert max(spread(folds[strata == cell], n_folds) for cell in strata) <= 3
