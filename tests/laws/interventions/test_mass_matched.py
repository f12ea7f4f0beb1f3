"""Tokens that receive as much attention: the nearest set there is, near in number too, and drawn by chance."""

from itertools import chain, combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anchorscope.engine.attention_mass import AttentionMass
from anchorscope.interventions.mass_matched import EXACT, as_much_attention


@given(st.lists(st.floats(0.01, 10), min_size=4, max_size=9), st.integers(1, 3), st.integers(0, 99))
def test_no_other_set_of_tokens_is_nearer_unless_both_are_near(received: list[float], n: int, seed: int) -> None:
    mass, exact = AttentionMass(3, tuple(received)), list(range(3, 3 + n))
    others = list(range(3 + n, 3 + len(received)))
    keys = as_much_attention(exact, others, mass, np.random.default_rng(seed))
    assert keys
    assert list(keys) == sorted(set(keys))
    assert set(keys) <= set(others)
    wanted = mass.of(exact)
    every = chain.from_iterable(combinations(others, size) for size in range(1, len(others) + 1))
    off = {keys: abs(mass.of(keys) - wanted) for keys in every}
    least = min(off.values())
    assert off[keys] <= max(least, 0.01 * wanted) + 1e-9
    as_near = [len(other) for other, gap in off.items() if gap <= max(least, 0.01 * wanted) - 1e-9]
    assert all(abs(len(keys) - n) <= abs(size - n) for size in as_near)


def test_of_sets_that_are_equally_good_each_is_drawn() -> None:
    mass = AttentionMass(0, (2.0, 2.0, 1.0, 1.0, 2.0, 2.0, 2.0))
    drawn = {as_much_attention([0, 1], [2, 3, 4, 5, 6], mass, np.random.default_rng(seed)) for seed in range(60)}
    assert drawn == {(4, 5), (4, 6), (5, 6)}  # two tokens, as E_Q has, though (2, 3, 4) receives as much


def test_without_other_tokens_there_is_nothing_to_cut_and_with_too_little_all_is() -> None:
    mass = AttentionMass(0, (9.0, 1.0, 1.0))
    assert as_much_attention([0], [], mass, np.random.default_rng(0)) == ()
    assert as_much_attention([0], [1, 2], mass, np.random.default_rng(0)) == (1, 2)
    assert as_much_attention([1], [0], mass, np.random.default_rng(0)) == (0,)  # too much, but never nothing
    silent = AttentionMass(0, (0.0, 0.0, 0.0))
    assert as_much_attention([0], [1, 2], silent, np.random.default_rng(0)) in {(1,), (2,)}


@pytest.mark.parametrize("share", [0.02, 0.3, 0.9])
def test_many_candidates_are_matched_as_well_and_none_is_left_out_for_ever(share: float) -> None:
    rng = np.random.default_rng(3)
    received = rng.gamma(1.0, size=5 * EXACT)
    exact, others = [0], list(range(1, 5 * EXACT))
    received[0] = share * received[1:].sum()
    mass = AttentionMass(0, tuple(received.tolist()))
    drawn = [as_much_attention(exact, others, mass, np.random.default_rng(seed)) for seed in range(150)]
    ratios = np.array([mass.of(keys) / mass.of(exact) for keys in drawn])
    assert np.median(np.abs(ratios - 1)) < 0.01
    if share > 0.1:
        assert np.abs(ratios - 1).max() < 0.1
        assert set(chain.from_iterable(drawn)) == set(others)
