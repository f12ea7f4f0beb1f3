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


def test_whether_curves_close():
    curves = many([VALLEY * size for size in (1.0, 1.4, 1.8)])
    assert order.closing(curves, MIDDLE).ci_low > 5
    apart = order.closing(many([np.zeros(LAYERS), 2.0 * X]), MIDDLE)
    assert apart.ci_high < -10


def test_equal_seeds_do_not_make_curves_move_together():
    together = order.closing([drawn(VALLEY * size, 5.0, seed=1) for size in (1.0, 1.5)], MIDDLE)
    apart = order.closing([drawn(VALLEY * size, 5.0, seed=seed) for seed, size in enumerate((1.0, 1.5))], MIDDLE)
    assert together.ci_high - together.ci_low > (apart.ci_high - apart.ci_low) / 2  # else it would have no spread


@pytest.mark.parametrize("draws", [0, 30])
def test_few_draws_decide_nothing(draws):
    curves = [drawn(VALLEY, draws=draws), drawn(VALLEY - 9, draws=30, seed=1)]
    closing = order.closing(curves, MIDDLE)
    assert math.isnan(closing.ci_low)
    assert math.isnan(closing.ci_high)
    assert not math.isnan(closing.value)


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
    known, covered = order.closing(exact, MIDDLE).value, 0
    for _ in range(40):
        curves = []
        for truth in shapes:
            items = truth + 12 * rng.normal(size=(120, LAYERS)) * np.linspace(0.2, 1.2, LAYERS)
            weights = rng.multinomial(120, np.full(120, 1 / 120), size=200) / 120
            curves.append(SampledCurve(items.mean(axis=0), weights @ items, 120))
        closing = order.closing(curves, MIDDLE)
        covered += closing.ci_low - 1e-9 <= known <= closing.ci_high + 1e-9
    assert covered >= 33
