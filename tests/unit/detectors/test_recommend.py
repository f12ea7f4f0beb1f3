"""Which detector is recommended: alike ones hardly ever at a price, better ones nearly always, with honest numbers."""

from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anchorscope.catalogue import DETECTORS
from anchorscope.detectors.recommend import PRICE_OF_A_PASS, Recommendation, recommend
from anchorscope.stats.auc import auc
from anchorscope.stats.estimate import (
    Estimate,
    group_weights,
    percentile_interval,
    simultaneous,
)

CHEAPEST = "confidence"
DEARER = tuple(
    name
    for name, entry in DETECTORS.items()
    if entry.saved and not entry.baseline and entry.passes == 1
)
Z = NormalDist().inv_cdf(0.975)


@dataclass(frozen=True)
class Numbers:
    """Gains over the cheapest detector, by detector and place."""

    gains: dict[tuple[str, str], Estimate]

    @property
    def auroc(self) -> Estimate:
        return Estimate(0.8, 0.78, 0.82, 1000, "")

    def mean(self, name: str, place: str, against: str) -> Estimate | None:
        if not against:
            return self.auroc if place == "same" else None
        assert against == CHEAPEST
        return self.gains.get((name, place))

    def recommend(self) -> Recommendation:
        chosen = recommend((CHEAPEST, *DEARER), self.mean)
        assert chosen is not None
        return chosen


def normal(value: float, error: float) -> Estimate:
    return Estimate(value, value - Z * error, value + Z * error, 1000, "normal")


def drawn(
    rng: np.random.Generator, truth: float, error: float = 0.02, places=("same",)
) -> Numbers:
    """Measured gains that are all truly the same; half of each error is shared."""
    gains = {}
    for place in places:
        errors = rng.normal(size=len(DEARER)) + rng.normal()
        for name, wrong in zip(DEARER, errors, strict=True):
            gains[name, place] = normal(truth + error * wrong / 2**0.5, error)
    return Numbers(gains)


@pytest.mark.parametrize("places", [("same",), ("same", "other")])
def test_detectors_that_are_just_worth_their_passes_are_hardly_ever_recommended(places):
    """Gains equal to their price are the hardest case of "no better"; each interval alone would often say yes."""
    rng, repeats = np.random.default_rng(0), 1500
    recommended, by_single_intervals = 0, 0
    for _ in range(repeats):
        numbers = drawn(rng, truth=PRICE_OF_A_PASS, places=places)
        recommended += numbers.recommend().detector != CHEAPEST
        by_single_intervals += any(
            gain.ci_low > PRICE_OF_A_PASS
            for (_, place), gain in numbers.gains.items()
            if place == "same"
        )
    assert recommended / repeats <= 0.025
    assert by_single_intervals / repeats > 0.06


def test_exchangeable_detectors_on_real_resamples():
    """Scores that know as much as one another, with AUROC and intervals as `detect` makes them."""
    rng, repeats, n = np.random.default_rng(1), 60, 160
    recommended = 0
    for _ in range(repeats):
        labels = np.arange(n) % 2 == 0
        weights = np.concatenate(
            [np.ones((1, n)), group_weights(np.arange(n) // 2, 150, rng)]
        )
        areas = {}
        for name in (CHEAPEST, *DEARER):
            scores = np.where(labels, 0.8, -0.8) + rng.normal(size=n)
            areas[name] = auc(scores, labels, np.zeros(n, int), weights.T)
        gains = {}
        for name in DEARER:
            gain = areas[name] - areas[CHEAPEST]
            low, high = percentile_interval(gain[1:])
            gains[name, "same"] = Estimate(gain[0], float(low), float(high), n, "")
        recommended += Numbers(gains).recommend().detector != CHEAPEST
    assert recommended / repeats <= 0.05


def test_what_is_quoted_of_the_winner_covers_the_truth():
    """The number of the best of many is too high; its interval knows that it was picked."""
    rng, repeats, truth = np.random.default_rng(2), 800, 0.1
    covered, covered_alone = 0, 0
    for _ in range(repeats):
        chosen = drawn(rng, truth).recommend()
        gain = chosen.decided_by
        assert gain is not None
        assert gain.detector == chosen.detector != CHEAPEST, "a gain of 5 errors"
        covered += gain.estimate.ci_low <= truth <= gain.estimate.ci_high
        covered_alone += abs(gain.estimate.value - truth) <= Z * 0.02
    assert covered / repeats >= 0.95
    assert covered_alone / repeats < 0.94


def test_of_several_that_gain_the_one_with_the_largest_least_gain_is_chosen():
    good, better, *_ = DEARER
    own = {(good, "same"): normal(0.1, 0.01), (better, "same"): normal(0.11, 0.01)}
    assert Numbers(own).recommend().detector == better
    unsure = own | {(better, "same"): normal(0.11, 0.02)}
    assert Numbers(unsure).recommend().detector == good
    away = own | {
        (good, "other"): normal(0.02, 0.01),
        (better, "other"): normal(-0.05, 0.01),
    }
    chosen = Numbers(away).recommend()
    assert chosen.detector == good
    assert chosen.elsewhere is not None
    assert (chosen.elsewhere.detector, chosen.comparisons) == (good, 4)
    only_elsewhere = {
        (good, "same"): normal(0.0, 0.01),
        (good, "other"): normal(0.2, 0.01),
    }
    assert Numbers(only_elsewhere).recommend().detector == CHEAPEST


def test_the_comparison_that_came_nearest_is_told_where_nothing_is_shown():
    far, near, *_ = DEARER
    chosen = Numbers(
        {(far, "same"): normal(-0.1, 0.02), (near, "same"): normal(0.056, 0.022)}
    ).recommend()
    gain = chosen.decided_by
    assert chosen.detector == CHEAPEST
    assert gain is not None
    assert (gain.detector, gain.needed) == (near, PRICE_OF_A_PASS)
    assert 0 < gain.estimate.ci_low <= PRICE_OF_A_PASS
    record = chosen.record()
    assert record["decided_by"]["estimate"][0] == 0.056
    assert record["elsewhere"] is None


def test_neither_a_control_nor_a_baseline_nor_what_cannot_be_saved_is_a_candidate():
    best = {name: normal(0.3, 0.001) for name in DETECTORS}
    others = [name for name in DETECTORS if name not in (*DEARER, CHEAPEST)]
    chosen = recommend(
        (CHEAPEST, *others),
        lambda name, place, against: best[name] if against else Numbers({}).auroc,
    )
    assert chosen is not None
    assert (chosen.detector, chosen.decided_by) == (CHEAPEST, None)
    assert recommend(others, lambda *about: Numbers({}).auroc) is None


@pytest.mark.parametrize("spread", [0.0, float("nan")])
def test_a_gain_without_a_spread_shows_nothing(spread):
    gain = Estimate(0.3, 0.3 - spread, 0.3 + spread, 80, "")
    assert Numbers({(DEARER[0], "same"): gain}).recommend().detector == CHEAPEST


@given(st.integers(1, 60), st.floats(-1, 1), st.floats(0, 1), st.floats(0, 1))
def test_intervals_for_more_comparisons_are_wider_and_one_is_left_as_it_is(
    n, value, below, above
):
    estimate = Estimate(value, value - below, value + above, 10, "")
    alone, all_of_them = simultaneous(estimate, 1), simultaneous(estimate, n)
    assert alone.ci_low == pytest.approx(estimate.ci_low)
    assert alone.ci_high == pytest.approx(estimate.ci_high)
    assert all_of_them.ci_low <= alone.ci_low + 1e-12
    assert all_of_them.ci_high >= alone.ci_high - 1e-12
    assert all_of_them.value == value
