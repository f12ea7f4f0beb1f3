"""The density is one: nowhere below zero, of area one, smooth, and where the values are."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import gaussian_kde, norm

from anchorscope.stats import modes
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


@given(values=SAMPLES, shift=st.integers(-100, 100), scale=st.floats(0.1, 10))
def test_it_moves_and_stretches_with_the_values(values: list[int], shift: int, scale: float) -> None:
    given_values = np.array(values, float)
    grid = density_grid(given_values, 40)
    moved = gaussian_density(given_values * scale + shift, grid * scale + shift)
    assert moved == pytest.approx(gaussian_density(given_values, grid) / scale, rel=1e-4, abs=1e-9 / scale)


def test_it_is_what_scipy_gives_with_this_bandwidth() -> None:
    values = np.random.default_rng(0).normal(size=70)
    width, grid = silverman_bandwidth(values), np.linspace(-4, 4, 33)
    reference = gaussian_kde(values, bw_method=width / np.std(values, ddof=1))(grid)
    assert gaussian_density(values, grid) == pytest.approx(reference, rel=1e-9)
    assert gaussian_density(values, grid, bandwidth=0.1) != pytest.approx(reference, rel=1e-2)


def test_it_finds_a_known_density() -> None:
    grid = np.linspace(-2, 2, 21)
    found = gaussian_density(np.random.default_rng(1).normal(size=50_000), grid)
    assert found == pytest.approx(norm.pdf(grid), abs=0.015)


def test_portions_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    values, grid = np.random.default_rng(2).normal(size=101), np.linspace(-3, 3, 11)
    whole = gaussian_density(values, grid)
    monkeypatch.setattr(modes, "_PAIRS_AT_ONCE", 70)
    assert gaussian_density(values, grid) == pytest.approx(whole, rel=1e-12)


def test_half_the_values_the_same_still_have_a_width() -> None:
    values = np.array([1.0] * 30 + [0.0, 5.0])  # no interquartile range
    assert silverman_bandwidth(values) > 0
    assert np.isfinite(gaussian_density(values, density_grid(values))).all()


@pytest.mark.parametrize("values", [[2.0], [2.0, 2.0, 2.0]])
def test_values_that_are_all_the_same_have_no_density(values: list[float]) -> None:
    given_values = np.array(values)
    assert silverman_bandwidth(given_values) == 0
    assert np.isnan(gaussian_density(given_values, density_grid(given_values))).all()


def test_values_that_are_no_numbers_are_refused() -> None:
    with pytest.raises(ValueError, match="not finite"):
        gaussian_density(np.array([0.0, np.inf]), np.arange(3.0))
