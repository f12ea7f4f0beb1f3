"""Our AUC against counting pairs, with ties and strata; test_detection_metrics.py compares it with scikit-learn."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anchorscope.stats.auc import auc


@given(st.integers(0, 2**32 - 1), st.integers(1, 30), st.integers(1, 4))
def test_counts_the_pairs_of_one_stratum(seed: int, n: int, n_strata: int) -> None:
    rng = np.random.default_rng(seed)
    scores, labels, strata = (
        rng.integers(0, 5, n) / 2,
        rng.random(n) < 0.5,
        rng.integers(0, n_strata, n),
    )
    compared = labels[:, None] & ~labels & (strata[:, None] == strata)
    won = (scores[:, None] > scores) + 0.5 * (scores[:, None] == scores)
    wanted = won[compared].mean() if compared.any() else np.nan
    assert auc(scores, labels, strata) == pytest.approx(wanted, nan_ok=True)


def test_every_row_may_have_labels_of_its_own() -> None:
    rng = np.random.default_rng(1)
    scores, labels, strata = (
        rng.normal(size=(6, 25)),
        rng.random((6, 25)) < 0.5,
        rng.integers(0, 2, 25),
    )
    labels[3] = True  # no pair
    together = auc(scores, labels, strata)
    assert np.isnan(together).tolist() == [False, False, False, True, False, False]
    one_by_one = [float(auc(*row, strata)) for row in zip(scores, labels, strict=True)]
    assert together.tolist() == pytest.approx(one_by_one, nan_ok=True)
