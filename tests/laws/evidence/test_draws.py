"""Draws: the sample first, then the resamples; sums, ratios and intervals over them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anchorscope.evidence import draws as product
from anchorscope.evidence.draws import Draws
from anchorscope.stats.auc import auc


@pytest.mark.parametrize("way", [product.areas, product._areas_gpu])
@given(st.integers(1, 50), st.integers(1, 12), st.integers(0, 2**32 - 1), st.booleans())
def test_equals_the_auc_of_every_resample(
    way: object, n: int, n_strata: int, seed: int, ties: bool
) -> None:
    rng = np.random.default_rng(seed)
    scores = rng.normal(size=(3, n)).astype(np.float32)
    scores = np.round(scores) if ties else scores
    scores[1] = np.round(scores[1])  # a row with ties among rows without
    labels, strata = rng.random(n) < 0.5, 1000 * rng.integers(0, n_strata, n)
    weights = rng.poisson(1, (8, n)).astype(np.float32)
    repeated = [
        np.repeat(np.arange(n), row.astype(int))
        for row in np.concatenate([np.ones((1, n)), weights])
    ]
    wanted = np.stack(
        [auc(scores[:, items], labels[items], strata[items]) for items in repeated],
        axis=1,
    )
    found = way(scores, labels, strata, Draws.of(weights))  # type: ignore[operator]
    np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-12)
