"""Scores of probes: AUC within strata, log-loss and Brier score, with intervals."""

import numpy as np
import pytest
from sklearn.metrics import brier_score_loss, log_loss, roc_auc_score

from anchorscope.evidence.draws import Draws
from anchorscope.evidence.scores import Scored, baseline_score, layer_scores
from anchorscope.stats.estimate import group_weights
from evidence_synthetic import random_measured, sigmoid

MEASURED = random_measured(seed=11)
DRAWS = Draws.of(group_weights(MEASURED.groups, 200, np.random.default_rng(0)))
SCORED = Scored(MEASURED.labels, MEASURED.groups, MEASURED.folds, DRAWS)
LOGITS = MEASURED.before[0]


def within(scores: np.ndarray, scored: Scored) -> float:
    """Mean of the AUCs within strata by scikit-learn, weighted by their numbers of true–false pairs."""
    total, pairs = 0.0, 0
    for stratum in np.unique(scored.strata):
        inside = scored.strata == stratum
        true, false = int(scored.labels[inside].sum()), int((~scored.labels[inside]).sum())
        if true and false:
            total += true * false * roc_auc_score(scored.labels[inside], scores[inside])
            pairs += true * false
    return total / pairs


def test_scores_are_those_of_scikit_learn_within_folds() -> None:
    found = layer_scores("clean", "transfer", LOGITS, SCORED)
    assert [score.layer for score in found] == [0, 1, 2, 3]
    for score, logits in zip(found, LOGITS, strict=True):
        assert (score.intervention, score.kind) == ("clean", "transfer")
        assert score.auc == pytest.approx(within(logits, SCORED))
        assert score.log_loss == pytest.approx(log_loss(MEASURED.labels, sigmoid(logits)))
        assert score.brier == pytest.approx(brier_score_loss(MEASURED.labels, sigmoid(logits)))
        assert score.ci_low < score.auc < score.ci_high
        assert (score.n, score.n_groups) == (len(MEASURED.labels), len(set(MEASURED.groups.tolist())))


def test_extreme_log_odds_keep_the_loss_finite() -> None:
    sure = np.where(MEASURED.labels, -900.0, 900.0)[None]
    (score,) = layer_scores("clean", "transfer", sure, SCORED)
    assert score.log_loss == pytest.approx(900)
    assert (score.auc, score.brier) == (0.0, 1.0)


def test_a_baseline_has_no_layer_and_no_loss() -> None:
    score = baseline_score("words", LOGITS[0], SCORED)
    assert (score.intervention, score.kind, score.layer) == ("clean", "words", None)
    assert (score.log_loss, score.brier) == (None, None)
    assert score.auc == pytest.approx(within(LOGITS[0], SCORED))
    assert score.ci_low < score.auc < score.ci_high
