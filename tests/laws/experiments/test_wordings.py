"""Reliability: SciPy's rank correlation on the sample and on resamples drawn by hand."""

import numpy as np
import pytest
from scipy.stats import pearsonr, rankdata, spearmanr

from anchorscope.evidence.draws import Draws
from anchorscope.experiments.wordings import rank_correlation
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
