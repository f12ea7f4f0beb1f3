"""The common shift: after it is taken away, as many items are called true as before the cut."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from anchorscope.evidence import delta_p as product
from anchorscope.evidence.draws import Draws
from evidence_synthetic import slow_shift

N = 9
SCORES = arrays(
    np.float64, N, elements=st.integers(-50_000, 50_000).map(lambda ticks: ticks / 1024)
)
ONES = np.ones((1, N))


def as_draws(weights: np.ndarray) -> Draws:
    return Draws(torch.from_numpy(np.ascontiguousarray(weights.T, dtype=np.float32)))


def matching_shift(
    before: np.ndarray, after: np.ndarray, weights: np.ndarray
) -> np.ndarray:
    """Of one layer, in each row of weights."""
    layer = [
        torch.from_numpy(np.ascontiguousarray(scores))[None]
        for scores in (before, after)
    ]
    return product.matching_shift(*layer, as_draws(weights))[0].numpy()


@given(SCORES, SCORES, st.integers(-20_000, 20_000))
def test_a_common_shift_is_found_and_nothing_else(
    before: np.ndarray, after: np.ndarray, ticks: int
) -> None:
    (own,) = matching_shift(before, after, ONES)
    (moved,) = matching_shift(before, after + ticks / 1024, ONES)
    assert moved - own == pytest.approx(ticks / 1024, abs=1e-9)


def test_every_layer_and_fold_has_its_own_shift() -> None:
    before = np.array([[1.0, -1.0, 1.0, -1.0], [1.0, -1.0, 1.0, -1.0]])
    after = np.array([[-2.0, -4.0, 9.0, 5.0], [100.0, 50.0, 1.0, -1.0]])
    found = product.shifts(
        before, after, np.array([0, 0, 2, 2]), 3, as_draws(np.ones((2, 4)))
    )
    assert found[:, 0].tolist() == [[-3.0, -3.0], [75.0, 75.0]]
    assert found[:, 2].tolist() == [[7.0, 7.0], [0.0, 0.0]]
    assert found[:, 1].isnan().all()  # a fold without items


@given(st.data(), st.integers(1, 60), st.integers(1, 4), st.integers(0, 2**32 - 1))
def test_shifts_are_those_of_repeated_items(
    data: st.DataObject, n: int, n_layers: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    ties = data.draw(st.booleans())
    before, after = (
        rng.integers(-9, 10, (2, n_layers, n))
        if ties
        else rng.normal(size=(2, n_layers, n))
    ) * 1.0
    if data.draw(st.booleans()):
        after = (
            before + rng.normal(0, 0.1, before.shape) - 3
        )  # nearly all items keep their rank
    # Whole blocks of items that a draw leaves out, too: then the place looked for is far from the sample's.
    weights = rng.poisson(1, (40, n)) * np.where(
        rng.random((40, n)).cumsum(axis=1) % 20 < 10, 1, rng.integers(0, 2)
    )
    weights[0] = 1
    found = product.matching_shift(
        torch.from_numpy(before), torch.from_numpy(after), as_draws(weights)
    )
    for layer in range(n_layers):
        assert found[layer].numpy() == pytest.approx(
            slow_shift(before[layer], after[layer], weights), nan_ok=True
        )


def test_a_draw_far_from_the_sample_is_found_all_the_same() -> None:
    # As many items as make the search begin near the sample's own place; one draw has only items far from it.
    n = 400
    before = np.linspace(1, -1, n)
    after = np.concatenate([before[:40], before[200:], before[40:200]])
    weights = np.ones((3, n))
    weights[1, : n // 2] = 0
    weights[2, 40 : n // 2] = 0
    assert matching_shift(before, after, weights) == pytest.approx(
        slow_shift(before, after, weights)
    )
