"""Scores of probes: AUC within strata, log-loss and Brier score, with intervals."""

import numpy as np
import pytest
from sklearn.metrics import brier_score_loss, log_loss

from anchorscope.evidence.draws import Draws
from anchorscope.evidence.scores import Scored, layer_scores
from anchorscope.stats.auc import auc
from anchorscope.stats.estimate import group_weights
from evidence_synthetic import random_measured, sigmoid

MEASURED = random_measured(seed=11)
DRAWS = Draws.of(group_weights(MEASURED.groups, 200, np.random.default_rng(0)))
SCORED = Scored(MEASURED.labels, MEASURED.groups, MEASURED.folds, DRAWS)
LOGITS = MEASURED.before[0]


def test_scores_are_those_of_scikit_learn_within_folds() -> None:
    found = layer_scores("clean", "transfer", LOGITS, SCORED)
    assert [score.layer for score in found] == [0, 1, 2, 3]
    for score, logits in zip(found, LOGITS, strict=True):
        assert (score.intervention, score.kind) == ("clean", "transfer")
        assert score.auc == pytest.approx(float(auc(logits, MEASURED.labels, MEASURED.folds)))
        assert score.log_loss == pytest.approx(log_loss(MEASURED.labels, sigmoid(logits)))
        assert score.brier == pytest.approx(brier_score_loss(MEASURED.labels, sigmoid(logits)))
        assert score.ci_low < score.auc < score.ci_high
        assert (score.n, score.n_groups) == (len(MEASURED.labels), len(set(MEASURED.groups.tolist())))


def test_extreme_log_odds_keep_the_loss_finite() -> None:
    sure = np.where(MEASURED.labels, -900.0, 900.0)[None]
    (score,) = layer_scores("clean", "transfer", sure, SCORED)
    assert score.log_loss == pytest.approx(900)
    assert (score.auc, score.brier) == (0.0, 1.0)
