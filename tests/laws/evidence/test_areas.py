"""AUC in every draw, by sorting once, against the plain AUC of every resample's repeated items."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from anchorscope.evidence import areas as product
from anchorscope.evidence.areas import areas
from anchorscope.evidence.draws import Draws
from anchorscope.stats.auc import auc


def made(n: int, n_strata: int, seed: int, ties: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Scores of three rows, labels, strata, weights of some resamples."""
    rng = np.random.default_rng(seed)
    scores = rng.integers(-3, 4, (3, n)).astype(np.float32) if ties else rng.normal(size=(3, n)).astype(np.float32)
    return scores, rng.random(n) < 0.5, rng.integers(0, n_strata, n), rng.poisson(1, (8, n)).astype(np.float32)


def auc_of_repeated(scores: np.ndarray, labels: np.ndarray, strata: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The plain AUC in every resample, its items as often as it holds them, [row, resample]."""
    repeated = [np.repeat(np.arange(len(labels)), row.astype(int)) for row in weights]
    return np.stack([auc(scores[:, items], labels[items], strata[items]) for items in repeated], axis=1)


@given(st.integers(1, 50), st.integers(1, 12), st.integers(0, 2**32 - 1), st.booleans())
def test_equals_the_auc_of_every_resample(n: int, n_strata: int, seed: int, ties: bool) -> None:
    scores, labels, strata, weights = made(n, n_strata, seed, ties)
    wanted = auc_of_repeated(scores, labels, strata, np.concatenate([np.ones((1, n)), weights]))
    found = areas(scores, labels, strata, Draws.of(weights))
    np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-12)


def test_strata_of_any_size_are_taken_together_or_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    scores, labels, strata, weights = made(900, 7, 1, ties=False)
    strata = strata * 1000 % 7  # any numbers serve
    whole = areas(scores, labels, strata, Draws.of(weights))
    np.testing.assert_allclose(whole.numpy()[:, 1:], auc_of_repeated(scores, labels, strata, weights), rtol=1e-12)
    for at_once in (1, 300, 5000):
        monkeypatch.setitem(product._ITEMS_AT_ONCE, "cpu", at_once)
        assert torch.equal(areas(scores, labels, strata, Draws.of(weights)), whole)


def test_one_row_with_ties_among_rows_without() -> None:
    scores, labels, strata, weights = made(60, 2, 2, ties=False)
    scores[1] = np.round(scores[1])
    wanted = auc_of_repeated(scores, labels, strata, weights)
    found = areas(scores, labels, strata, Draws.of(weights))
    np.testing.assert_allclose(found.numpy()[:, 1:], wanted, rtol=1e-12)
