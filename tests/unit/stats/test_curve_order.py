"""Several curves side by side: order, spread and convergence are what they were made to be, or stay open."""

import math

import numpy as np
import pytest

from anchorscope.stats import curves as order
from anchorscope.stats.curves import SampledCurve

LAYERS = 20
X = np.arange(LAYERS)
VALLEY = -40 * np.exp(-(((X - 9) / 5.0) ** 2)) - 10.0 * (X > 12)
MIDDLE = slice(6, 14)


def drawn(values, noise=0.3, seed=0, draws=300):
    values = np.asarray(values, float)
    return SampledCurve(values, values + noise * np.random.default_rng(seed).normal(size=(draws, len(values))), 80)


def many(shapes, noise=0.3):
    return [drawn(values, noise, seed) for seed, values in enumerate(shapes)]


def test_the_lowest_of_several_and_its_lead():
    place, lead = order.lowest_curve(many([VALLEY, VALLEY - 12, VALLEY - 5]), 6)
    assert place == 1
    assert lead.value == pytest.approx(7)
    assert 6 < lead.ci_low < 7 < lead.ci_high < 8
    _, open_lead = order.lowest_curve(many([VALLEY, VALLEY - 0.5], noise=8.0), 6)
    assert open_lead.ci_low < 0 < open_lead.ci_high


def test_parallel_curves_keep_their_order_and_crossing_ones_do_not():
    assert order.crossing(many([VALLEY, VALLEY - 10, VALLEY + 10]), 6).ci_high == 0
    crossed = order.crossing(many([2.0 * (X - 12), VALLEY, -1.0 * (X - 12)]), 6)
    assert crossed.value > 15
    assert crossed.ci_low > 12
    two = order.crossing(many([1.0 * (X - 12), np.zeros(LAYERS)]), 6)
    assert two.value == 6  # 6 below at layer 6, 7 above at the end: the smaller counts
    assert 4 < two.ci_low <= 6 <= two.ci_high < 8


def test_the_spread_and_whether_it_closes():
    curves = many([VALLEY * size for size in (1.0, 1.4, 1.8)])
    end = order.spread(curves, -1)
    assert end.value == pytest.approx(0.8 * -VALLEY[-1])
    assert end.ci_low <= end.value <= end.ci_high
    assert order.closing(curves, MIDDLE).ci_low > 5
    apart = order.closing(many([np.zeros(LAYERS), 2.0 * X]), MIDDLE)
    assert apart.ci_high < -10


def test_equal_seeds_do_not_make_curves_move_together():
    same = [drawn(VALLEY - 2 * step, 5.0, seed=1) for step in range(2)]
    _, lead = order.lowest_curve(same, 6)
    assert lead.ci_high - lead.ci_low > 2  # drawn together, their distance would have no spread at all


@pytest.mark.parametrize("draws", [0, 30])
def test_few_draws_decide_nothing(draws):
    curves = [drawn(VALLEY, draws=draws), drawn(VALLEY - 9, draws=30, seed=1)]
    found = [
        order.lowest_curve(curves, 6)[1],
        order.crossing(curves, 6),
        order.spread(curves, -1),
        order.closing(curves, MIDDLE),
    ]
    assert all(math.isnan(one.ci_low) and math.isnan(one.ci_high) for one in found)
    assert not any(math.isnan(one.value) for one in found)


SETS = {
    "apart": [VALLEY - 4 * step for step in range(4)],
    "one": [VALLEY] * 3,
    "crossing": [VALLEY + step * (X - 12) for step in range(3)],
    "two": [VALLEY, 1.5 * VALLEY],
}


@pytest.mark.parametrize("name", SETS)
def test_intervals_cover_the_truth(name):
    """40 samples each; a coverage of 95 % gives 33 or more in 999 of 1000 tries."""
    shapes, rng = SETS[name], np.random.default_rng(7)
    exact = many(shapes, 0.0)
    known = {
        "crossing": order.crossing(exact, 6).value,
        "spread": order.spread(exact, -1).value,
        "closing": order.closing(exact, MIDDLE).value,
    }
    covered = dict.fromkeys(known, 0)
    for _ in range(40):
        curves = []
        for truth in shapes:
            items = truth + 12 * rng.normal(size=(120, LAYERS)) * np.linspace(0.2, 1.2, LAYERS)
            weights = rng.multinomial(120, np.full(120, 1 / 120), size=200) / 120
            curves.append(SampledCurve(items.mean(axis=0), weights @ items, 120))
        found = {
            "crossing": order.crossing(curves, 6),
            "spread": order.spread(curves, -1),
            "closing": order.closing(curves, MIDDLE),
        }
        for quantity, estimate in found.items():
            covered[quantity] += estimate.ci_low - 1e-9 <= known[quantity] <= estimate.ci_high + 1e-9
    assert {quantity: times for quantity, times in covered.items() if times < 33} == {}
