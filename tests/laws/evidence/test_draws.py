"""Draws: the sample first, then the resamples; sums, ratios and intervals over them."""

import numpy as np
import pytest
import torch

from anchorscope.evidence.draws import Draws, _interval_by_sorting, total
from anchorscope.stats.estimate import percentile_interval

WEIGHTS = np.random.default_rng(0).poisson(1, (30, 8)).astype(np.float32)
DRAWS = Draws.of(WEIGHTS)


def test_the_first_draw_is_the_sample_itself() -> None:
    assert DRAWS.counts.shape == (8, 31)
    assert (DRAWS.counts[:, 0] == 1).all()
    assert (DRAWS.counts[:, 1:].numpy().T == WEIGHTS).all()
    some = np.array([5, 2])
    taken = DRAWS.take(some).counts[:, 1:].numpy().T
    assert (taken == WEIGHTS[:, some]).all()


def test_items_are_taken_by_number_or_by_mask() -> None:
    two = DRAWS.take(np.array([3, 4]))
    assert two.take(np.array([False, True])).counts.tolist() == [DRAWS.counts[4].tolist()]  # not the items 0 and 1
    assert two.take(np.array([1, 0])).counts.tolist() == DRAWS.counts[[4, 3]].tolist()
    assert two.take(np.arange(2)).counts.tolist() == DRAWS.counts[[3, 4]].tolist()
    assert two.take(np.arange(0)).counts.shape == (0, 31)


def test_sums_and_numbers_are_those_of_repeated_items() -> None:
    values = np.random.default_rng(1).normal(size=(8, 3))
    sums, numbers = DRAWS.sums(values), DRAWS.numbers()
    for draw, row in enumerate(WEIGHTS.astype(int), start=1):
        assert sums[:, draw].numpy() == pytest.approx(np.repeat(values, row, axis=0).sum(axis=0))
        assert numbers[draw] == row.sum()
    assert sums.dtype == numbers.dtype == torch.float64
    assert total(DRAWS.counts[:0]).tolist() == [0.0] * 31


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("n", [1, 2, 40, 41, 300])
def test_sorting_on_a_device_gives_the_same_interval_to_the_last_bit(dtype: torch.dtype, n: int) -> None:
    rng = np.random.default_rng(n)
    samples = torch.from_numpy(rng.normal(size=(3, 4, n))).to(dtype)
    samples[0, 1][rng.random(n) < 0.3] = torch.nan
    samples[1, 2] = torch.nan
    samples[2, 0, : n // 2] = torch.inf
    wanted = percentile_interval(samples.numpy(), axis=-1)
    for found, end in zip(_interval_by_sorting(samples), wanted, strict=True):
        assert found.dtype == np.float64
        np.testing.assert_array_equal(found, end)
    assert np.isnan(wanted[0][1, 2])
