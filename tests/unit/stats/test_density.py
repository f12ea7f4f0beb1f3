"""The density is one: nowhere below zero, of area one, smooth, and where the values are."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm

from anchorscope.stats.modes import density_grid, gaussian_density, silverman_bandwidth

SAMPLES = st.lists(st.integers(-1000, 1000), min_size=2, max_size=60).filter(lambda some: len(set(some)) > 1)


@given(values=SAMPLES)
def test_it_is_nowhere_below_zero_and_its_area_is_one(values: list[int]) -> None:
    given_values = np.array(values, float)
    fine = max(256, int(20 * np.ptp(given_values) / silverman_bandwidth(given_values)))
    grid = density_grid(given_values, fine)
    found = gaussian_density(given_values, grid)
    assert (found >= 0).all()
    assert np.trapezoid(found, grid) == pytest.approx(1, abs=1e-3)


def test_it_finds_a_known_density() -> None:
    grid = np.linspace(-2, 2, 21)
    found = gaussian_density(np.random.default_rng(1).normal(size=50_000), grid)
    assert found == pytest.approx(norm.pdf(grid), abs=0.015)


def test_half_the_values_the_same_still_have_a_width() -> None:
    values = np.array([1.0] * 30 + [0.0, 5.0])  # no interquartile range
    assert silverman_bandwidth(values) > 0
    assert np.isfinite(gaussian_density(values, density_grid(values))).all()


@pytest.mark.parametrize("values", [[2.0], [2.0, 2.0, 2.0]])
def test_values_that_are_all_the_same_have_no_density(values: list[float]) -> None:
    given_values = np.array(values)
    assert silverman_bandwidth(given_values) == 0
    assert np.isnan(gaussian_density(given_values, density_grid(given_values))).all()
