"""Scores and what they are compared with: baselines out of fold, AUCs with intervals, differences in the same draws."""

import numpy as np
import pytest
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import brier_score_loss, log_loss

from anchorscope.datasets.text import words
from anchorscope.evidence.draws import Draws
from anchorscope.evidence.scores import (
    Scored,
    beyond_baselines,
    beyond_permuted,
    join,
    layer_scores,
    relation_only,
    words_only,
)
from anchorscope.stats.auc import auc
from anchorscope.stats.estimate import group_weights
from evidence_synthetic import random_measured, sigmoid


def test_the_relations_share_comes_from_the_other_folds_by_hand() -> None:
    relations = ["capital"] * 4 + ["author"] * 3 + [None, None]
    labels = np.array([True, True, False, True, False, False, True, True, False])
    folds = np.array([0, 1, 1, 1, 0, 1, 1, 1, 0])
    scores = relation_only(relations, labels, folds)
    one = lambda true, false: np.log((true + 1) / (false + 1))  # noqa: E731
    wanted = [
        one(2, 1),  # capital in fold 0, seen in fold 1: true, false, true
        *[one(1, 0)] * 3,  # capital in fold 1, seen in fold 0: true
        one(1, 1),  # author in fold 0, seen in fold 1: false, true
        *[one(0, 1)] * 2,
        one(0, 1),  # no relation in fold 1, seen in fold 0: false
        one(1, 0),
    ]
    assert scores == pytest.approx(wanted)


def test_an_items_own_fold_is_never_used() -> None:
    rng = np.random.default_rng(0)
    relations = rng.choice(["a", "b", "c"], 60).tolist()
    labels, folds = rng.random(60) < 0.5, rng.integers(0, 3, 60)
    questions, answers = (
        [f"what {w}" for w in rng.choice(["x", "y"], 60)],
        [f"{w}" for w in rng.choice(["p", "q"], 60)],
    )
    flipped = np.where(folds == 1, ~labels, labels)
    for first, second in (
        (
            relation_only(relations, labels, folds),
            relation_only(relations, flipped, folds),
        ),
        (
            words_only(questions, answers, labels, folds),
            words_only(questions, answers, flipped, folds),
        ),
    ):
        assert first[folds == 1] == pytest.approx(second[folds == 1])
        assert first[folds != 1] != pytest.approx(second[folds != 1])


def test_words_scores_are_those_of_scikit_learn_at_its_optimum() -> None:
    rng = np.random.default_rng(2)
    n, vocabulary = 240, np.array([f"word{index}" for index in range(300)])
    questions = [" ".join(rng.choice(vocabulary, 7)) for _ in range(n)]
    answers = [" ".join(rng.choice(vocabulary, 2)) for _ in range(n)]
    labels, folds = rng.random(n) < 0.5, rng.integers(0, 4, n)
    documents = [
        [f"q {word}" for word in words(question)]
        + [f"a {word}" for word in words(answer)]
        for question, answer in zip(questions, answers, strict=True)
    ]
    present = CountVectorizer(analyzer=list, binary=True).fit_transform(documents)
    wanted = np.empty(n)
    for fold in range(4):
        inside = folds == fold
        model = LogisticRegression(max_iter=10_000, tol=1e-9).fit(
            present[~inside], labels[~inside]
        )
        wanted[inside] = model.decision_function(present[inside])
    assert words_only(questions, answers, labels, folds) == pytest.approx(
        wanted, abs=1e-4
    )
    assert np.abs(wanted).max() > 0.5


MEASURED = random_measured(seed=11)
MEASURED_DRAWS = Draws.of(group_weights(MEASURED.groups, 200, np.random.default_rng(0)))
MEASURED_SCORED = Scored(
    MEASURED.labels, MEASURED.groups, MEASURED.folds, MEASURED_DRAWS
)
LOGITS = MEASURED.before


def test_scores_are_those_of_scikit_learn_within_folds() -> None:
    found = layer_scores("clean", "transfer", LOGITS, MEASURED_SCORED)
    assert [score.layer for score in found] == [0, 1, 2, 3]
    for score, logits in zip(found, LOGITS, strict=True):
        assert (score.intervention, score.kind) == ("clean", "transfer")
        assert score.auc == pytest.approx(
            float(auc(logits, MEASURED.labels, MEASURED.folds))
        )
        assert score.log_loss == pytest.approx(
            log_loss(MEASURED.labels, sigmoid(logits))
        )
        assert score.brier == pytest.approx(
            brier_score_loss(MEASURED.labels, sigmoid(logits))
        )
        assert score.ci_low < score.auc < score.ci_high
        assert (score.n, score.n_groups) == (
            len(MEASURED.labels),
            len(set(MEASURED.groups.tolist())),
        )


def test_extreme_log_odds_keep_the_loss_finite() -> None:
    sure = np.where(MEASURED.labels, -900.0, 900.0)[None]
    (score,) = layer_scores("clean", "transfer", sure, MEASURED_SCORED)
    assert score.log_loss == pytest.approx(900)
    assert (score.auc, score.brier) == (0.0, 1.0)


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


def found(
    nested: np.ndarray, **simpler: np.ndarray
) -> dict[tuple[str, str | None], tuple[float, float, float]]:
    named = {kind.replace("_", "-"): values for kind, values in simpler.items()}
    _, rows = beyond_baselines(nested, named, SCORED)
    assert all((row.intervention, row.estimate.n) == ("clean", N) for row in rows)
    assert all(
        row.estimate.method.startswith("paired bootstrap over groups") for row in rows
    )
    return {
        (row.quantity, row.group): (
            row.estimate.value,
            row.estimate.ci_low,
            row.estimate.ci_high,
        )
        for row in rows
    }


def test_differences_are_those_of_every_resample() -> None:
    value, low, high = found(PROBE, words=OWN)["auc_difference", "words"]

    def within(scores: np.ndarray, weights: np.ndarray) -> float:
        here = np.repeat(np.arange(N), weights.astype(int))
        return float(auc(scores[here], LABELS[here], FOLDS[here]))

    wanted = [
        within(PROBE, row) - within(OWN, row)
        for row in np.concatenate([np.ones((1, N)), WEIGHTS])
    ]
    assert value == pytest.approx(wanted[0])
    assert (low, high) == pytest.approx(tuple(np.percentile(wanted[1:], [2.5, 97.5])))


def test_a_probe_that_is_no_better_than_confidence_may_still_add_to_it() -> None:
    rows = found(PROBE, words=OWN, confidence_mean=CONFIDENCE)
    _, low, high = rows["auc_difference", "confidence-mean"]
    assert low < 0 < high
    value, low, _ = rows["auc_beyond_confidence", "nested"]
    assert low > 0.02
    assert value == pytest.approx(
        auc(join(PROBE, CONFIDENCE, LABELS, FOLDS), LABELS, FOLDS)
        - auc(CONFIDENCE, LABELS, FOLDS)
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
        model = LogisticRegression(tol=1e-10, max_iter=1000).fit(
            both[~inside], LABELS[~inside]
        )
        assert scores[inside] == pytest.approx(
            model.decision_function(both[inside]), abs=1e-4
        )
    flipped = np.where(FOLDS == 1, ~LABELS, LABELS)
    again = join(PROBE, CONFIDENCE, flipped, FOLDS)
    assert again[FOLDS == 1] == pytest.approx(scores[FOLDS == 1])
    assert again[FOLDS != 1] != pytest.approx(scores[FOLDS != 1])


def test_a_constant_score_is_joined_without_a_crash() -> None:
    scores = join(PROBE, np.ones(N), LABELS, FOLDS)
    assert auc(scores, LABELS, FOLDS) == pytest.approx(auc(PROBE, LABELS, FOLDS))


def test_beyond_permuted_is_above_zero_where_hardly_any_permutation_comes_as_far() -> (
    None
):
    null = np.linspace(0.4, 0.6, 201)
    real = float(auc(PROBE, LABELS, FOLDS))
    chance, beyond = (
        row.estimate for row in beyond_permuted("knockout", PROBE, null, SCORED)
    )
    assert (chance.value, chance.ci_low, chance.ci_high) == pytest.approx(
        (0.5, 0.405, 0.595)
    )
    assert (beyond.value, beyond.ci_low, beyond.ci_high) == pytest.approx(
        (real - 0.5, real - 0.595, real - 0.405)
    )
    assert beyond.ci_low > 0
    assert "201 permutations" in beyond.method
    _, nothing = (
        row.estimate for row in beyond_permuted("knockout", np.zeros(N), null, SCORED)
    )
    assert nothing.ci_low < 0 < nothing.ci_high
