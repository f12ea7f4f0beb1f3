"""The rule: among the items called right, those whose call flips by more than noise are Q-Anchored."""

import numpy as np
import pytest

from anchorscope.evidence.delta_p import (
    assign,
    at_reference,
    noise_at_reference,
    permuted_flip_share,
)
from evidence_synthetic import random_measured

Q, A, WRONG = "Q-Anchored", "A-Anchored", "misclassified"


@pytest.mark.parametrize(
    ("before", "after", "label", "pathway"),
    [
        (2.0, -1.0, True, Q),
        (2.0, 1.0, True, A),
        (2.0, 9.0, True, A),
        (-2.0, 1.0, False, Q),
        (-2.0, -1.0, False, A),
        (-2.0, 1.0, True, WRONG),
        (-2.0, -1.0, True, WRONG),
        (2.0, -1.0, False, WRONG),
        (2.0, 0.0, True, Q),  # log-odds of 0 are no call for "true"
        (0.0, 1.0, False, Q),
        (0.0, -1.0, True, WRONG),
    ],
)
def test_the_rule_item_by_item(
    before: float, after: float, label: bool, pathway: str
) -> None:
    calls = assign(np.array([before]), np.array([after]), np.array([label]), noise=0.0)
    assert calls.names() == [pathway]
    assert calls.members(Q).tolist() == [pathway == Q]
    assert calls.members(A).tolist() == [pathway == A]


@pytest.mark.parametrize(
    ("change", "pathway"), [(0.3, A), (0.5, A), (0.500001, Q), (2.0, Q)]
)
def test_a_flip_counts_only_beyond_the_noise(change: float, pathway: str) -> None:
    for sign, label in ((1, True), (-1, False)):
        before = np.array([sign * change / 2])
        assert assign(
            before, before - sign * change, np.array([label]), noise=0.5
        ).names() == [pathway]


def test_scores_are_taken_at_the_reference_layer_of_each_items_fold() -> None:
    logits = np.arange(12.0).reshape(3, 4)  # [layer, item]
    folds, reference = np.array([0, 1, 1, 0]), np.array([2, 0])
    assert at_reference(logits, reference, folds).tolist() == [8, 1, 2, 11]
    assert at_reference(logits, reference, folds, move=1).tolist() == [
        8,
        5,
        6,
        11,
    ]  # never beyond the last layer
    assert at_reference(logits, reference, folds, move=-1).tolist() == [4, 1, 2, 7]


def test_the_noise_is_read_at_the_reference_layer_of_the_items_that_the_control_ran() -> (
    None
):
    measured = random_measured(seed=3)
    folds, ran = measured.folds, measured.ran["none"]
    changes = []
    for place, item in enumerate(ran):
        layer = measured.reference[folds[item]]
        change = measured.after["none"][layer, place] - measured.before[layer, item]
        changes.append(abs(change))
    assert noise_at_reference(measured) == pytest.approx(np.percentile(changes, 99))


@pytest.mark.parametrize("seed", range(4))
def test_the_permuted_share_is_what_many_permutations_give(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = 40
    folds, labels = rng.integers(0, 3, n), rng.random(n) < 0.5
    before, after = rng.normal(0.3, 1, n), rng.normal(-0.7, 1, n)
    shares = []
    for _ in range(4000):
        dealt = after.copy()
        for fold in range(3):
            inside = np.flatnonzero(folds == fold)
            dealt[inside] = after[rng.permutation(inside)]
        calls = assign(before, dealt, labels, 0.0)
        shares.append(calls.members(Q).sum() / calls.correct.sum())
    assert permuted_flip_share(before, after, labels, folds) == pytest.approx(
        np.mean(shares), abs=0.006
    )
