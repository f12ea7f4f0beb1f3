"""Cumulative sums: what a CPU does row by row and a GPU at once, against each other and a plain reading."""

import numpy as np
import pytest
import torch

from anchorscope.evidence import cumulative, draws

RNG = np.random.default_rng(0)
N, ROWS, DRAWS = 600, 3, 40  # more items than a byte can count
COUNTS = torch.from_numpy(RNG.poisson(1, (N, DRAWS)).astype(np.float32))
ORDER = torch.from_numpy(np.stack([RNG.permutation(N)[:500] for _ in range(ROWS)]))


def slow_sums() -> np.ndarray:
    """[row, 1 + item, draw]."""
    sums = np.cumsum(COUNTS.numpy()[ORDER.numpy()], axis=1)
    return np.concatenate([np.zeros((ROWS, 1, DRAWS)), sums], axis=1)


@pytest.fixture(autouse=True, params=[1, 1 << 30])
def _at_once(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(draws, "_AT_ONCE", request.param)


@pytest.mark.parametrize("way", ["number_until", "_number_until_gpu", "_number_until_cpu"])
def test_the_number_of_items_until_a_limit(way: str) -> None:
    limits = torch.from_numpy(RNG.integers(-2, 520, (2, ROWS, DRAWS)).astype(np.float32))
    found = getattr(cumulative, way)(COUNTS, ORDER, limits)
    assert found.dtype == torch.int64
    wanted = (slow_sums()[None, :, 1:] < limits.numpy()[:, :, None]).sum(axis=2)
    assert (found.numpy() == wanted).all()
    assert wanted.min() == 0
    assert wanted.max() == 500


@pytest.mark.parametrize("way", ["weighted_sums", "_weighted_sums_gpu", "_weighted_sums_cpu"])
@pytest.mark.parametrize("n_stops", [1, 2])
def test_weighted_sums_at_some_places(way: str, n_stops: int) -> None:
    stops = [torch.from_numpy(RNG.integers(0, 501, (ROWS, 70))) for _ in range(n_stops)]
    weights = torch.from_numpy(RNG.poisson(1, (70, DRAWS)).astype(np.float32))
    found = getattr(cumulative, way)(COUNTS, ORDER, stops, weights)
    sums = slow_sums()
    wanted = np.mean(
        [[(sums[row, stop[row].numpy()] * weights.numpy()).sum(axis=0) for row in range(ROWS)] for stop in stops],
        axis=0,
    )
    assert found.numpy() == pytest.approx(wanted)


def test_chunks_hold_every_row_once_and_no_more_numbers_than_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere = torch.empty((5, 10), device="meta")  # any device that is no processor
    monkeypatch.setattr(draws, "_AT_ONCE", 4 * 5 * 10)
    rows = np.arange(11)
    found = [rows[part] for part in draws.row_chunks(11, 5, elsewhere)]
    assert [len(part) for part in found] == [4, 4, 3]
    assert np.concatenate(found).tolist() == rows.tolist()
    assert [part.stop - part.start for part in draws.row_chunks(3, 1000, elsewhere)] == [1, 1, 1]
    assert [part.stop - part.start for part in draws.row_chunks(3, 5, COUNTS)] == [1, 1, 1]
