"""Differences of AUCs: in the same draws, what one score adds to another, and what permuted labels give."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from anchorscope.evidence.draws import Draws
from anchorscope.evidence.scores import Scored, beyond_baselines, beyond_permuted, join
from anchorscope.stats.auc import auc
from anchorscope.stats.estimate import group_weights

N = 400
RNG = np.random.default_rng(5)
LABELS = np.arange(N) % 2 == 0
FOLDS = np.arange(N) // 2 % 4
SIGN = np.where(LABELS, 1.0, -1.0)
SHARED, OWN = RNG.normal(size=N), RNG.normal(size=N)
CONFIDENCE = 0.8 * SIGN + SHARED
PROBE = 0.8 * SIGN + OWN
"""As good as confidence, and knows other things."""
WEIGHTS = group_weights(np.arange(N), 400, np.random.default_rng(0))
SCORED = Scored(LABELS, np.arange(N), FOLDS, Draws.of(WEIGHTS))


def found(nested: np.ndarray, **simpler: np.ndarray) -> dict[tuple[str, str | None], tuple[float, float, float]]:
    named = {kind.replace("_", "-"): values for kind, values in simpler.items()}
    _, rows = beyond_baselines(nested, named, SCORED)
    assert all((row.intervention, row.estimate.n) == ("clean", N) for row in rows)
    assert all(row.estimate.method.startswith("paired bootstrap over groups") for row in rows)
    return {(row.quantity, row.group): (row.estimate.value, row.estimate.ci_low, row.estimate.ci_high) for row in rows}


def test_differences_are_those_of_every_resample() -> None:
    value, low, high = found(PROBE, words=OWN)["auc_difference", "words"]

    def within(scores: np.ndarray, weights: np.ndarray) -> float:
        here = np.repeat(np.arange(N), weights.astype(int))
        return float(auc(scores[here], LABELS[here], FOLDS[here]))

    wanted = [within(PROBE, row) - within(OWN, row) for row in np.concatenate([np.ones((1, N)), WEIGHTS])]
    assert value == pytest.approx(wanted[0])
    assert (low, high) == pytest.approx(tuple(np.percentile(wanted[1:], [2.5, 97.5])))


def test_a_probe_that_is_no_better_than_confidence_may_still_add_to_it() -> None:
    rows = found(PROBE, words=OWN, confidence_mean=CONFIDENCE)
    _, low, high = rows["auc_difference", "confidence-mean"]
    assert low < 0 < high
    value, low, _ = rows["auc_beyond_confidence", "nested"]
    assert low > 0.02
    assert value == pytest.approx(
        auc(join(PROBE, CONFIDENCE, LABELS, FOLDS), LABELS, FOLDS) - auc(CONFIDENCE, LABELS, FOLDS)
    )
    _, low, high = rows["auc_beyond_confidence", "words"]  # noise adds nothing
    assert low < 0.01
    assert high < 0.03


def test_joined_scores_are_those_of_scikit_learn_and_out_of_fold() -> None:
    scores = join(PROBE, CONFIDENCE, LABELS, FOLDS)
    for fold in np.unique(FOLDS):
        inside = fold == FOLDS
        both = np.stack([PROBE, CONFIDENCE], axis=1)
        both = (both - both[~inside].mean(axis=0)) / both[~inside].std(axis=0)
        model = LogisticRegression(tol=1e-10, max_iter=1000).fit(both[~inside], LABELS[~inside])
        assert scores[inside] == pytest.approx(model.decision_function(both[inside]), abs=1e-4)
    flipped = np.where(FOLDS == 1, ~LABELS, LABELS)
    again = join(PROBE, CONFIDENCE, flipped, FOLDS)
    assert again[FOLDS == 1] == pytest.approx(scores[FOLDS == 1])
    assert again[FOLDS != 1] != pytest.approx(scores[FOLDS != 1])


def test_a_constant_score_is_joined_without_a_crash() -> None:
    scores = join(PROBE, np.ones(N), LABELS, FOLDS)
    assert auc(scores, LABELS, FOLDS) == pytest.approx(auc(PROBE, LABELS, FOLDS))


def test_beyond_permuted_is_above_zero_where_hardly_any_permutation_comes_as_far() -> None:
    null = np.linspace(0.4, 0.6, 201)
    real = float(auc(PROBE, LABELS, FOLDS))
    chance, beyond = (row.estimate for row in beyond_permuted("knockout", PROBE, null, SCORED))
    assert (chance.value, chance.ci_low, chance.ci_high) == pytest.approx((0.5, 0.405, 0.595))
    assert (beyond.value, beyond.ci_low, beyond.ci_high) == pytest.approx((real - 0.5, real - 0.595, real - 0.405))
    assert beyond.ci_low > 0
    assert "201 permutations" in beyond.method
    _, nothing = (row.estimate for row in beyond_permuted("knockout", np.zeros(N), null, SCORED))
    assert nothing.ci_low < 0 < nothing.ci_high
