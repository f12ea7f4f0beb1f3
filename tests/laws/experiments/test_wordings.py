"""Reliability: SciPy's rank correlation on the sample and on resamples drawn by hand, and the formula of the whole."""

import numpy as np
import pytest
import torch
from scipy.stats import pearsonr, rankdata, spearmanr

from anchorscope.evidence.draws import Draws
from anchorscope.experiments.wordings import rank_correlation, spearman_brown
from anchorscope.stats.estimate import group_weights


def test_the_sample_has_scipys_correlation_and_draws_that_of_repeated_items() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=60)
    y = np.exp(x + rng.normal(size=60))
    weights = group_weights(np.arange(60) // 2, 40, rng)
    found = rank_correlation(x, y, Draws.of(weights)).numpy()
    assert found[0] == pytest.approx(spearmanr(x, y).statistic)
    for draw in (0, 17):
        repeated = np.repeat(np.arange(60), weights[draw].astype(int))
        assert found[1 + draw] == pytest.approx(pearsonr(rankdata(x)[repeated], rankdata(y)[repeated]).statistic)


def test_what_does_not_vary_has_no_correlation() -> None:
    assert rank_correlation(np.ones(5), np.arange(5.0), Draws.of(np.ones((1, 5)))).isnan().all()


def test_the_reliability_of_a_whole_from_its_halves() -> None:
    """Items with variance 1, wordings with noise of variance v: halves of k / 2 wordings, a whole of k."""
    v, k = 3.0, 8
    half = 1 / (1 + v / (k / 2))
    assert spearman_brown(torch.tensor([half])).item() == pytest.approx(1 / (1 + v / k))
    assert spearman_brown(torch.tensor([0.0, 1.0])).tolist() == [0.0, 1.0]
