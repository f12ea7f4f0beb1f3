"""Whether an answer used its passage: a probability that means what it says, with an interval, and which passage."""

import numpy as np
import pytest
from scipy.special import expit

from anchorscope.evidence.source_use import (
    FEWEST,
    calibrate_use,
    context_used,
    use_record,
)


def answers(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Drops of the log-probability, and answers that follow with the probability expit(2 · drop − 1.5)."""
    rng = np.random.default_rng(seed)
    drop = rng.exponential(1.0, n)
    followed = (rng.random(n) < expit(2 * drop - 1.5)).astype(float)
    return context_used(drop, np.zeros(n)), followed, np.arange(n) // 2


def test_the_probability_is_that_of_the_answers_and_the_interval_covers_it() -> None:
    grid = context_used(np.array([0.0, 0.5, 1.0, 3.0]), np.zeros(4))
    truth, covered = expit(2 * np.array([0.0, 0.5, 1.0, 3.0]) - 1.5), []
    for seed in range(30):
        calibration = calibrate_use(*answers(400, seed))
        assert calibration is not None
        probability, low, high = calibration.probability(grid)
        assert (low <= probability).all()
        assert (probability <= high).all()
        covered.append((low <= truth) & (truth <= high))
    assert np.mean(covered) >= 0.93
    large = calibrate_use(*answers(40_000))
    assert large is not None
    assert large.probability(grid)[0] == pytest.approx(truth, abs=0.02)
    used, followed, _ = answers(40_000)
    by_truth = expit(-2 * np.log1p(-used) - 1.5)
    assert large.brier == pytest.approx(((by_truth - followed) ** 2).mean(), abs=0.002)


def test_answers_that_are_told_apart_without_error_stay_finite_and_few_teach_nothing() -> (
    None
):
    followed = np.arange(200) % 2.0
    calibration = calibrate_use(0.9 * followed, followed, np.arange(200))
    assert calibration is not None
    (ignored, _, top), (used, bottom, _) = calibration.probability([0.0, 0.9]).T
    assert ignored < 0.05 < 0.95 < used
    assert top < bottom
    assert calibrate_use(0.9 * followed, followed, np.zeros(200, int)) is None
    few = 2 * FEWEST - 2
    assert calibrate_use(0.9 * followed[:few], followed[:few], np.arange(few)) is None


def test_the_passage_is_the_one_whose_cut_takes_most() -> None:
    assert use_record(0.5, [0.1, 0.4], None) == {
        "context_used": 0.5,
        "context_probability": None,
        "context_low": None,
        "context_high": None,
        "passage": 2,
    }
    assert (
        use_record(0.05, [0.01, 0.04], None)["passage"] is None
    )  # it ignored them all
    assert use_record(0.5, [], None)["passage"] is None  # one passage has no number
    assert set(use_record(np.nan, [], None).values()) == {None}
