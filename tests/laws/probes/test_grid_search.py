"""What inner folds say, against plain loops: ties, folds of unequal size, items outside the training set."""

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from anchorscope.probes.grid_search import weighted_auc

SETS, INNER, STRENGTHS, ITEMS = 3, 3, 4, 40


@given(st.integers(0, 10_000))
def test_a_weighted_auc_counts_ties_half_whatever_the_order_of_the_items(seed: int) -> None:
    rng = np.random.default_rng(seed)
    scores = rng.integers(0, 5, ITEMS).astype(np.float32)  # most items tie with others
    weights = rng.integers(0, 4, (2, ITEMS)).astype(np.float32) / 2
    targets = (np.arange(ITEMS) % 2).astype(np.float32)
    weights[:, :4] = 1
    wanted = [roc_auc_score(targets, scores, sample_weight=row) for row in weights]
    shuffled = rng.permutation(ITEMS)
    for order in (slice(None), shuffled):
        given = (torch.tensor(one[..., order]) for one in (scores[None, None], weights[:, None], targets[None, None]))
        np.testing.assert_allclose(weighted_auc(*given).numpy(), wanted, atol=1e-9)
