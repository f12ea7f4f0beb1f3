"""Our AUC against scikit-learn's, with ties, weights and strata."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from anchorscope.stats.auc import auc, resampled_auc


@given(st.lists(st.tuples(st.integers(0, 4), st.booleans(), st.integers(1, 3)), min_size=2, max_size=40))
def test_equals_scikit_learn_with_ties_and_weights(rows):
    scores = np.array([float(row[0]) for row in rows])
    labels = np.array([row[1] for row in rows])
    weights = np.array([[float(row[2]) for row in rows]])
    ours = resampled_auc(scores, labels, weights)[0]
    if labels.all() or not labels.any():
        assert np.isnan(ours)
    else:
        assert ours == pytest.approx(roc_auc_score(labels, scores, sample_weight=weights[0]))


def test_strata_are_weighted_by_their_pairs():
    scores = np.array([1.0, 0.0, 0.0, 1.0, 1.0])
    labels = np.array([True, False, True, False, False])
    strata = np.array([0, 0, 1, 1, 1])
    assert auc(scores, labels, strata) == pytest.approx((1 * 1.0 + 2 * 0.0) / 3)  # 1 pair won, 2 pairs lost


def test_many_rows_at_once_equal_one_by_one():
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(3, 4, 30))
    labels = rng.random(30) < 0.5
    strata = rng.integers(0, 3, 30)
    together = auc(scores, labels, strata)
    assert together.shape == (3, 4)
    assert together[2, 1] == pytest.approx(auc(scores[2, 1], labels, strata))
