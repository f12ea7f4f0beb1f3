"""The bootstrap keeps groups whole, is seeded, and covers what it should."""

import numpy as np
import pytest
from sklearn.metrics import cohen_kappa_score

from anchorscope.stats.agreement import kappa
from anchorscope.stats.bootstrap import group_weights, mean_with_interval, weighted_mean
from anchorscope.stats.estimate import percentile_interval


def test_groups_stay_whole_and_draws_are_seeded():
    groups = np.array([7, 7, 3, 3, 3, 9])
    weights = group_weights(groups, 50, np.random.default_rng(1))
    assert (weights[:, 0] == weights[:, 1]).all()
    assert (weights[:, 2] == weights[:, 4]).all()
    assert (weights[:, [0, 2, 5]].sum(axis=1) == 3).all()
    assert (weights == group_weights(groups, 50, np.random.default_rng(1))).all()


def test_interval_covers_the_true_mean_about_95_times_in_100():
    rng = np.random.default_rng(2)
    covered = 0
    for _ in range(300):
        values = rng.normal(size=60)
        _, low, high = mean_with_interval(values, group_weights(np.arange(60), 400, rng))
        covered += bool(low <= 0 <= high)
    assert 0.90 <= covered / 300 <= 0.98


def test_intervals_over_groups_are_wider_than_over_items_when_groups_agree():
    values = np.repeat(np.random.default_rng(3).normal(size=20), 10)
    groups = np.repeat(np.arange(20), 10)
    _, low, high = mean_with_interval(values, group_weights(groups, 500, np.random.default_rng(4)))
    _, low_items, high_items = mean_with_interval(values, group_weights(np.arange(200), 500, np.random.default_rng(4)))
    assert high - low > 2 * (high_items - low_items)


def test_undefined_resamples_are_left_out_and_wholly_undefined_stays_undefined():
    samples = np.array([[1.0, np.nan], [3.0, np.nan]])
    low, high = percentile_interval(samples)
    assert low[0] == pytest.approx(1.05)
    assert np.isnan(low[1])
    assert np.isnan(high[1])
    assert np.isnan(weighted_mean(np.ones(2), np.zeros((1, 2)))[0])


def test_kappa_equals_scikit_learn():
    rng = np.random.default_rng(5)
    first, second = rng.random(50) < 0.4, rng.random(50) < 0.6
    assert kappa(first, second, np.ones((1, 50)))[0] == pytest.approx(cohen_kappa_score(first, second))
    assert np.isnan(kappa(np.ones(4, bool), np.ones(4, bool), np.ones((1, 4)))[0])
