"""The bootstrap keeps groups whole, is seeded, and covers what it should; kappa and Holm's correction."""

import math

import numpy as np
import pytest
from sklearn.metrics import cohen_kappa_score

from anchorscope.stats.estimate import group_weights, holm, kappa, percentile_interval


def interval_of_the_mean(values, weights):
    return percentile_interval(weights @ values / weights.sum(axis=1))


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
    for _ in range(200):
        values = rng.normal(size=60)
        low, high = interval_of_the_mean(values, group_weights(np.arange(60), 400, rng))
        covered += bool(low <= 0 <= high)
    assert 0.90 <= covered / 200 <= 0.99


@pytest.mark.parametrize("n", [1, 2, 3, 20, 41, 500, 2000])
def test_intervals_of_any_number_of_samples_are_numpys_percentiles(n):
    samples = np.random.default_rng(n).normal(size=(n, 3))
    assert np.array(percentile_interval(samples)) == pytest.approx(
        np.percentile(samples, [2.5, 97.5], axis=0)
    )


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_intervals_are_numpys_percentiles_of_what_is_defined(axis):
    samples = np.random.default_rng(6).normal(size=(30, 31, 32))
    samples[:, :3, :2] = np.where(
        np.random.default_rng(7).random((30, 3, 2)) < 0.3, np.nan, samples[:, :3, :2]
    )
    samples[3, 4, 5] = np.nan
    wanted = np.nanpercentile(samples, [2.5, 97.5], axis=axis)
    assert np.array(percentile_interval(samples, axis)) == pytest.approx(wanted)
    assert percentile_interval(samples[0, 5].astype(np.float32)) == pytest.approx(
        np.percentile(samples[0, 5], [2.5, 97.5]), abs=1e-6
    )


def test_kappa_equals_scikit_learn():
    rng = np.random.default_rng(5)
    first, second = rng.random((2, 4, 50)) < 0.4
    numbers = np.array(
        [[(x & y).sum(axis=1) for y in (second, ~second)] for x in (first, ~first)]
    )
    for case in range(4):
        assert kappa(numbers)[case] == pytest.approx(
            cohen_kappa_score(first[case], second[case])
        )
    assert np.isnan(
        kappa(np.array([[[4.0, 0.0], [0.0, 0.0]], [[0.0, 0.0], [0.0, 0.0]]]))
    ).all()  # alike, and nobody


def test_by_hand():
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])


def test_none_is_above_one_and_a_missing_one_counts_for_nothing():
    corrected = holm([0.9, math.nan, 0.02])
    assert corrected[0] == pytest.approx(0.9)
    assert math.isnan(corrected[1])
    assert corrected[2] == pytest.approx(0.04)
    assert holm([0.6, 0.7]) == [1.0, 1.0]
    assert holm([]) == []
