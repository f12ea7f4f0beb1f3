"""Curves made by hand, whose trough and noise are known, are read as what they are, or not decided at all."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anchorscope.stats import curves as shape
from anchorscope.stats.curves import FEWEST_DRAWS, SampledCurve

LAYERS = st.integers(6, 40)
DEPTHS = st.floats(20.0, 90.0)


def drawn(values, noise=0.0, *, draws=300, seed=0):
    """A curve with independent noise in every layer, in the draws only: the sample has its true values."""
    values = np.asarray(values, float)
    samples = values + noise * np.random.default_rng(seed).normal(
        size=(draws, len(values))
    )
    return SampledCurve(values, samples, 100)


def measured(truth, rng, items=150, draws=200):
    """What a bootstrap over items gives; items scatter about the true curve, partly in all layers alike."""
    own, common = rng.normal(size=(items, len(truth))), rng.normal(size=(items, 1))
    scatter = (
        12
        * (math.sqrt(0.4) * common + math.sqrt(0.6) * own)
        * np.linspace(0.2, 1.2, len(truth))
    )
    values = truth + scatter
    weights = rng.multinomial(items, np.full(items, 1 / items), size=draws) / items
    return SampledCurve(values.mean(axis=0), weights @ values, items)


def holds(found, truth):
    return found.ci_low - 1e-9 <= truth <= found.ci_high + 1e-9


def v_shape(layers, place, depth, end):
    """Straight down from zero to the trough, and straight up to the end."""
    return np.interp(np.arange(layers), [0, place, layers - 1], [0.0, -depth, end])


@given(LAYERS, st.data(), DEPTHS, st.integers(0, 50))
def test_a_deep_trough_is_found_where_it_is(layers, data, depth, seed):
    place = data.draw(st.integers(2, layers - 2))
    end = -depth * data.draw(st.floats(0.0, 0.6))
    curve = drawn(v_shape(layers, place, depth, end), depth / layers / 50, seed=seed)
    found = shape.trough(curve)
    assert (found.layer.value, found.layer.ci_low, found.layer.ci_high) == (
        place,
        place,
        place,
    )
    assert found.relative.value == pytest.approx(place / (layers - 1))
    assert found.depth.value == pytest.approx(-depth)
    assert holds(found.depth, -depth)
    assert holds(shape.recovery(curve), depth + end)
    assert shape.first(curve).value == pytest.approx(0.0, abs=1e-9)
    assert holds(shape.last(curve), end)
    assert shape.range_within(curve).value == pytest.approx(depth)


def test_a_layer_of_rounding_does_not_widen_the_others():
    values = np.array([0.0, -10.0, -20.0])
    samples = values + np.random.default_rng(0).normal(size=(500, 3)) * [0.0, 1.0, 1.0]
    samples[:, 0] = 1e-9  # not the sample's own zero, and always the same
    low, high = SampledCurve(values, samples, 10).band
    assert high[1] - low[1] < 6
    assert low[0] == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize(
    ("whole", "decided"), [(FEWEST_DRAWS, True), (FEWEST_DRAWS - 1, False)]
)
def test_draws_without_the_group_are_left_out_and_few_draws_decide_nothing(
    whole, decided
):
    curve = drawn(v_shape(12, 5, 40.0, -10.0), 0.5, draws=200)
    broken = curve.samples.copy()
    broken[whole:, 3] = np.nan
    some = SampledCurve(curve.value, broken, curve.n)
    assert some.whole.shape == (whole, 12)
    found = [
        shape.trough(some).depth,
        shape.trough(some).layer,
        shape.recovery(some),
        shape.first(some),
        shape.last(some),
        shape.range_within(some),
    ]
    for one in found:
        assert math.isnan(one.ci_low) != decided
        assert math.isnan(one.ci_high) != decided
        assert not math.isnan(one.value)


def test_what_is_drawn_together_is_compared_draw_by_draw():
    rng = np.random.default_rng(3)
    shared = 20 * rng.normal(size=(400, 8))
    lower = SampledCurve(
        np.full(8, -3.0), -3.0 + shared + 0.1 * rng.normal(size=(400, 8)), 50
    )
    upper = SampledCurve(np.zeros(8), shared, 60)
    # both move together: the gap is known well
    assert shape.last(lower - upper).ci_high < 0
    assert (lower - upper).n == 50
    mixed = SampledCurve(upper.value, np.roll(upper.samples, 1, axis=0), upper.n)
    # as if each had seen questions of its own
    assert shape.last(lower - mixed).ci_high > 0


X = np.arange(20)
TRUTHS = {
    "trough": -40 * np.exp(-(((X - 9) / 4.0) ** 2)) - 10 * (X > 12),
    "flat bottom": np.where(X < 8, -5.0 * X, -40 + 0.3 * np.abs(X - 13)),
    "nothing": np.zeros(20),
    "two troughs": -30 * np.exp(-(((X - 5) / 1.5) ** 2))
    - 30.5 * np.exp(-(((X - 14) / 1.5) ** 2)),
    "falls to the end": -2.0 * X,
}


@pytest.mark.parametrize("name", TRUTHS)
def test_intervals_cover_the_truth(name):
    """60 samples each; a coverage of 95 % gives 52 or more in 99 of 100 tries."""
    truth, rng = TRUTHS[name], np.random.default_rng(5)
    exact = drawn(truth)
    quantities = {
        "depth": lambda c: shape.trough(c).depth,
        "layer": lambda c: shape.trough(c).layer,
        "recovery": shape.recovery,
        "size": shape.range_within,
        "last": shape.last,
    }
    known = {quantity: find(exact).value for quantity, find in quantities.items()}
    covered = dict.fromkeys([*quantities, "band"], 0)
    for _ in range(60):
        curve = measured(truth, rng)
        low, high = curve.band
        covered["band"] += bool(((low <= truth) & (truth <= high)).all())
        for quantity, find in quantities.items():
            covered[quantity] += holds(find(curve), known[quantity])
    assert {quantity: times for quantity, times in covered.items() if times < 52} == {}
