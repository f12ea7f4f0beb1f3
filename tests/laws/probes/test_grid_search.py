"""What inner folds say, against plain loops: ties, folds of unequal size, items outside the training set."""

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import log_loss, roc_auc_score

from anchorscope.probes.grid_search import held_out_tables, select_strength, weighted_auc
from anchorscope.stats.auc import auc

SETS, INNER, STRENGTHS, ITEMS = 3, 3, 4, 40


@settings(max_examples=25)
@given(st.integers(0, 10_000), st.sampled_from([0.25, 1e-9]))
def test_strength_and_auc_are_those_of_plain_loops(seed: int, step: float) -> None:
    rng = np.random.default_rng(seed)
    labels = np.arange(ITEMS) % 2 == 0
    inner = rng.integers(-1, INNER, size=(SETS, ITEMS))
    inner[:, :6] = np.repeat(np.arange(INNER), 2)  # every fold has a true and a false item
    logits = rng.normal(size=(2, SETS, INNER, STRENGTHS, ITEMS)) + 0.5 * labels
    logits = np.round(logits / step) * step  # coarse steps make ties
    tables = held_out_tables(inner, labels, INNER, torch.device("cpu"))
    chosen, areas = select_strength(torch.tensor(logits), tables)
    for problem in range(2):
        for place in range(SETS):
            rows = np.flatnonzero(inner[place] >= 0)
            folds = inner[place, rows]
            own = logits[problem, place, folds, :, rows]  # [row, strength], each item by the fold that held it out
            losses = [
                log_loss(labels[rows], 1 / (1 + np.exp(-own[:, strength])), normalize=False)
                for strength in range(STRENGTHS)
            ]
            best = int(chosen[problem, place])
            assert losses[best] <= min(losses) + 1e-9
            wanted = auc(own[:, best], labels[rows], folds)
            assert abs(float(areas[problem, place]) - float(wanted)) < 1e-12


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
