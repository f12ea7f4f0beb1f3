"""Our AUC against scikit-learn's and against counting pairs, with ties and strata."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from anchorscope.stats.auc import auc


@given(st.lists(st.tuples(st.integers(0, 4), st.booleans()), min_size=2, max_size=40))
def test_equals_scikit_learn_with_ties(rows: list[tuple[int, bool]]) -> None:
    scores = np.array([float(row[0]) for row in rows])
    labels = np.array([row[1] for row in rows])
    ours = auc(scores, labels)
    if labels.all() or not labels.any():
        assert np.isnan(ours)
    else:
        assert ours == pytest.approx(roc_auc_score(labels, scores))


@given(st.integers(0, 2**32 - 1), st.integers(1, 30), st.integers(1, 4))
def test_counts_the_pairs_of_one_stratum(seed: int, n: int, n_strata: int) -> None:
    rng = np.random.default_rng(seed)
    scores, labels, strata = rng.integers(0, 5, n) / 2, rng.random(n) < 0.5, rng.integers(0, n_strata, n)
    compared = labels[:, None] & ~labels & (strata[:, None] == strata)
    won = (scores[:, None] > scores) + 0.5 * (scores[:, None] == scores)
    wanted = won[compared].mean() if compared.any() else np.nan
    assert auc(scores, labels, strata) == pytest.approx(wanted, nan_ok=True)


def test_every_row_may_have_labels_of_its_own() -> None:
    rng = np.random.default_rng(1)
    scores, labels, strata = rng.normal(size=(6, 25)), rng.random((6, 25)) < 0.5, rng.integers(0, 2, 25)
    labels[3] = True  # no pair
    together = auc(scores, labels, strata)
    assert np.isnan(together).tolist() == [False, False, False, True, False, False]
    one_by_one = [float(auc(*row, strata)) for row in zip(scores, labels, strict=True)]
    assert together.tolist() == pytest.approx(one_by_one, nan_ok=True)
