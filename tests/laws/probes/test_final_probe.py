"""The probe fitted on all items: the strength and the minimum are scikit-learn's, groups stay whole, and the
cross-fitted probes do not notice it."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from anchorscope.errors import UserError
from anchorscope.probes.crossfit import FinalProbe, Splits, final_inner_folds, fit_final_probes, fit_probes
from anchorscope.probes.folds import truth_strata
from anchorscope.probes.grid_search import INNER_FOLDS
from anchorscope.stats.streams import unnamed

ITEMS, LAYERS, WIDTH = 150, 3, 10
SIGNAL = (0.0, 1.2, 0.5)
"""How strongly each layer tells true from false."""
NAMES = ["mlp/final", "residual/final"]
SEED = 5


def order(n: int) -> np.ndarray:
    return unnamed(SEED, "test", n)


@pytest.fixture(scope="module")
def labels() -> np.ndarray:
    return np.random.default_rng(2).random(ITEMS) < 0.5


@pytest.fixture(scope="module")
def groups() -> np.ndarray:
    return np.random.default_rng(3).integers(0, 70, size=ITEMS)


@pytest.fixture(scope="module")
def states(labels: np.ndarray) -> torch.Tensor:
    draw = np.random.default_rng(4)
    directions = draw.normal(size=(2, LAYERS, 1, WIDTH)) * np.array(SIGNAL)[:, None, None]
    found = draw.normal(size=(2, LAYERS, ITEMS, WIDTH)) + labels[:, None] * directions
    return torch.tensor(found, dtype=torch.float32)


@pytest.fixture(scope="module")
def fitted(states: torch.Tensor, labels: np.ndarray, groups: np.ndarray) -> list[FinalProbe]:
    return fit_final_probes(states, truth_strata(labels), groups, NAMES, order(len(labels)))


def test_it_is_the_cross_fitted_machinery_with_one_training_set_that_has_everything(
    states: torch.Tensor, labels: np.ndarray, groups: np.ndarray, fitted: list[FinalProbe]
) -> None:
    inner = final_inner_folds(truth_strata(labels), groups, order(len(labels)))
    no_folds, learns = np.zeros(ITEMS, dtype=int), np.ones((1, 1, ITEMS), dtype=bool)
    everything = Splits(labels, truth_strata(labels), no_folds, learns, inner[None, None], ("full",))
    for one, other in zip(fitted, fit_probes(states, everything, NAMES), strict=True):
        assert torch.equal(one.weight, other.weight[0, 0])
        assert torch.equal(one.bias, other.bias[0, 0])
        assert one.reference == other.reference[0, 0] == np.argmax(SIGNAL)
        assert one.unconverged == one.notes == ()


@given(st.integers(0, 10_000), st.integers(40, 200))
def test_inner_folds_keep_groups_whole_and_have_both_labels(seed: int, n_groups: int) -> None:
    draw = np.random.default_rng(seed)
    labels, groups = draw.random(ITEMS) < 0.5, draw.integers(0, n_groups, size=ITEMS)
    inner = final_inner_folds(truth_strata(labels), groups, unnamed(seed, "test", ITEMS))
    assert set(inner) == set(range(INNER_FOLDS))
    for group in set(groups):
        assert len(set(inner[groups == group])) == 1
    for fold in range(INNER_FOLDS):
        assert 0 < labels[inner == fold].sum() < (inner == fold).sum()


@pytest.mark.parametrize("groups", [np.zeros(80, dtype=int), np.arange(80) // 40], ids=["one group", "by label"])
def test_too_few_groups_are_refused(groups: np.ndarray) -> None:
    with pytest.raises(UserError, match=f"80 items fall into {len(set(groups))} groups"):
        final_inner_folds(truth_strata(np.arange(80) < 40), groups, order(80))
