"""Platt scaling against scikit-learn's optimum and planted slopes; the other prevalence against data that have it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit, logit
from sklearn.linear_model import LogisticRegression

from anchorscope.stats.calibration import Calibration, at_prevalence, fit_platt
from anchorscope.stats.reliability import ece


def _drawn(seed: int, n: int, slope: float, intercept: float):
    rng = np.random.default_rng(seed)
    log_odds = rng.normal(0.5, 2, n)
    return log_odds, rng.random(n) < expit(slope * log_odds + intercept)


@given(seed=st.integers(0, 200), slope=st.floats(0.3, 2), intercept=st.floats(-1, 1))
def test_equals_scikit_learn_and_a_weight_counts_items(seed, slope, intercept):
    log_odds, truthful = _drawn(seed, 300, slope, intercept)
    found = fit_platt(log_odds, truthful)
    wanted = LogisticRegression(C=np.inf, tol=1e-10, max_iter=1000).fit(log_odds[:, None], truthful)
    assert found.slope == pytest.approx(wanted.coef_[0, 0], rel=1e-3)
    assert found.intercept == pytest.approx(wanted.intercept_[0], abs=1e-3)
    weights = np.random.default_rng(seed).integers(0, 3, 300)
    twice = fit_platt(np.repeat(log_odds, weights), np.repeat(truthful, weights))
    weighted = fit_platt(log_odds, truthful, weights)
    assert (weighted.slope, weighted.intercept) == pytest.approx((twice.slope, twice.intercept), abs=1e-6)
    assert weighted.prevalence == pytest.approx(np.repeat(truthful, weights).mean())


@given(seed=st.integers(0, 200), scale=st.floats(0.01, 100), shift=st.floats(-50, 50))
def test_the_unit_of_the_log_odds_does_not_matter(seed, scale, shift):
    log_odds, truthful = _drawn(seed, 200, 1, 0)
    one, other = fit_platt(log_odds, truthful), fit_platt(log_odds * scale + shift, truthful)
    assert other.probability(log_odds * scale + shift) == pytest.approx(one.probability(log_odds), abs=1e-6)


def test_mean_probability_is_the_prevalence_and_overconfidence_goes():
    log_odds, truthful = _drawn(0, 20_000, 0.4, -0.5)
    assert ece(expit(log_odds), truthful) > 0.15
    found = fit_platt(log_odds, truthful)
    said = found.probability(log_odds)
    assert said.mean() == pytest.approx(truthful.mean(), abs=1e-9)
    assert ece(said, truthful) < 0.015


@pytest.mark.parametrize("n", [2, 40, 3000])
def test_separable_answers_stay_finite(n):
    log_odds = np.linspace(-3, 3, n)
    found = fit_platt(log_odds, log_odds > 0)
    assert np.isfinite([found.slope, found.intercept]).all()
    said = found.probability(log_odds)
    assert np.all((said > 0.5) == (log_odds > 0))
    assert said[-1] > 0.99
    assert said[0] < 0.01


def test_a_slope_is_never_negative():
    log_odds, truthful = _drawn(1, 500, 1, 0)
    found = fit_platt(-log_odds, truthful)
    assert found.slope == 0
    assert found.probability([-3.0, 3.0]) == pytest.approx(truthful.mean())
    assert fit_platt(np.zeros(4), [True, False, False, False]).probability(0.0) == pytest.approx(0.25)


def test_another_prevalence_by_bayes_rule():
    rng = np.random.default_rng(2)
    natural = rng.random(60_000) < 0.08
    log_odds = rng.normal(np.where(natural, 1.0, -1.0), 1.5)
    kept = natural | (rng.random(len(natural)) < 0.08 / 0.92)  # balanced
    found = fit_platt(log_odds[kept], natural[kept])
    assert ece(found.probability(log_odds), natural) > 0.1
    assert ece(found.probability(log_odds, prevalence=0.08), natural) < 0.01
    assert at_prevalence(logit(0.3), 0.5, 0.5) == pytest.approx(logit(0.3))
    there = at_prevalence(0.7, 0.2, 0.9)
    assert at_prevalence(there, 0.9, 0.2) == pytest.approx(0.7)


def test_stored_and_read_again():
    found = Calibration(1.25, -0.5, 0.4)
    assert Calibration.from_dict(found.to_dict()) == found


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda: fit_platt([0.0, 1.0], [True, True]), "both kinds"),
        (lambda: fit_platt([0.0, 1.0], [True, False], [1.0, 0.0]), "both kinds"),
        (lambda: fit_platt([np.inf, 1.0], [True, False]), "finite"),
        (lambda: at_prevalence(0.0, 0.5, 1.0), "prevalence"),
    ],
)
def test_what_cannot_be_calibrated_is_refused(call, told):
    with pytest.raises(ValueError, match=told):
        call()
