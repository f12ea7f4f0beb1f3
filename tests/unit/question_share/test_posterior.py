"""Single items: the posterior of their shares, and calls that are made only where two groups show."""

import numpy as np
import pytest

from anchorscope.question_share.posterior import (
    ANSWER,
    LEAST_GAIN,
    QUESTION,
    UNDETERMINED,
    Line,
    calls,
    fit_line,
    held_out_mixture,
    item_shares,
    may_call,
)
from anchorscope.stats.streams import stream

UNDER_RANDOM = Line(0.0, 0.9, 0.4)


def measured(shares, seed=0, spread=0.4):
    """Log-odds of items, and what the cut states explain of them, for given shares."""
    rng = stream(seed, "posterior test")
    z = 2.5 * rng.standard_normal(len(shares))
    return z, 0.9 * (1 - shares) * z + spread * rng.standard_normal(len(shares))


def test_a_line_is_least_squares_and_its_slope_can_be_held_up():
    z = np.array([-1.0, 0.0, 1.0, 2.0])
    assert fit_line(z, 3 + 0.5 * z).slope == pytest.approx(0.5)
    assert fit_line(z, 3 + 0.5 * z).level == pytest.approx(3)
    assert fit_line(z, 3 + 0.5 * z, least_slope=0.8).slope == 0.8


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_an_items_interval_holds_its_share(share):
    z, explained = measured(np.full(400, share))
    found = item_shares(z, explained, UNDER_RANDOM)
    assert ((found.low <= share) & (share <= found.high)).mean() > 0.95
    assert found.distribution.sum() == pytest.approx(1)


def test_items_that_keep_less_are_given_more():
    shares = np.repeat([0.0, 1.0], 300)
    z, explained = measured(shares)
    found = item_shares(z, explained, UNDER_RANDOM)
    sure = np.abs(z) > 2
    assert found.mean[sure & (shares == 1)].mean() > 0.2 + found.mean[sure & (shares == 0)].mean()
    z[0], explained[0] = 0.0, 0.0  # no evidence, nothing to learn
    found = item_shares(z, explained, UNDER_RANDOM)
    assert found.low[0] < 0.05
    assert found.high[0] > 0.95


@pytest.mark.parametrize("share", [0.2, 0.6, 0.9])
def test_items_agree_with_the_share_of_all(share):
    z, explained = measured(stream(1, "shares").random(300))
    had = np.abs(z)
    found = item_shares(z, explained, UNDER_RANDOM, had, share)
    assert had @ found.mean / had.sum() == pytest.approx(share, abs=0.01)
    assert (found.low <= found.mean + 0.02).all()
    assert (found.mean <= found.high + 0.02).all()


def test_two_groups_beat_one_regression_where_there_are_two_and_not_where_there_is_one():
    rng = stream(0, "folds")
    kind = rng.random(600) < 0.5
    folds = rng.integers(5, size=600)
    predicted = kind + 0.5 * rng.standard_normal(600)
    two = held_out_mixture(*measured(kind.astype(float)), predicted, folds, UNDER_RANDOM)
    one = held_out_mixture(*measured(np.full(600, 0.5)), predicted, folds, UNDER_RANDOM)
    assert two.gain.mean() > 5 * LEAST_GAIN
    assert one.gain.mean() < LEAST_GAIN
    sure = (two.probability > 0.9) | (two.probability < 0.1)
    assert sure.mean() > 0.3
    assert ((two.probability > 0.5) == kind)[sure].mean() > 0.95


def test_nobody_is_called_where_the_gate_is_shut_or_the_posterior_unsure():
    probability = np.array([0.95, 0.5, 0.005, 0.9, 0.1])
    assert calls(probability, allowed=True) == [QUESTION, UNDETERMINED, ANSWER, UNDETERMINED, UNDETERMINED]
    assert set(calls(probability, allowed=False)) == {UNDETERMINED}


@pytest.mark.parametrize(
    ("p_value", "thirds_low", "gain", "allowed"),
    [(0.01, 0.1, 0.02, True), (0.2, 0.1, 0.02, False), (0.01, -0.1, 0.02, False), (0.01, 0.1, 0.005, False)],
)
def test_the_gate_needs_all_three(p_value, thirds_low, gain, allowed):
    assert may_call(p_value, thirds_low, gain) is allowed
