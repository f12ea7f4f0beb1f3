"""The bootstrap's draws on the device that computes with them, and the sums, AUCs and intervals taken over them.

Everything under every resample is a tensor whose last axis runs over the draws: first the sample as it is, then the
resamples. What concerns one item is one contiguous row, and a value and its interval come out of one computation.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from anchorscope.models.process_settings import threads, true_float32
from anchorscope.probes.grid_search import weighted_auc
from anchorscope.stats.auc import auc
from anchorscope.stats.estimate import Estimate, percentile_interval

Floats = NDArray[np.floating]
Indices = NDArray[np.integer]

# numbers in one working tensor of a GPU: a handful of those stand at a time, in under 2 GB
_AT_ONCE = 1 << 26


@dataclass(frozen=True)
class Draws:
    """How often each item is in each draw."""

    counts: Tensor
    """[item, 1 + resample]; the first column is the sample itself, every item once."""

    @classmethod
    def of(cls, weights: Floats, device: str | torch.device = "cpu") -> "Draws":
        """From bootstrap weights [resample, item]."""
        counts = np.ones((weights.shape[1], 1 + len(weights)), np.float32)
        counts[:, 1:] = weights.T
        return cls(torch.from_numpy(counts).to(device))

    @property
    def device(self) -> torch.device:
        return self.counts.device

    def take(self, items: Indices | NDArray[np.bool_]) -> "Draws":
        if items.dtype != np.bool_ and np.array_equal(
            items, np.arange(len(self.counts))
        ):
            return self  # all of them: nothing to copy
        return Draws(self.counts[self.to_device(items)])

    def to_device(self, array: NDArray[np.generic]) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(array)).to(self.device)

    def numbers(self) -> Tensor:
        """How many items are in each draw, [draw]."""
        return total(self.counts)

    def sums(self, values: Floats | NDArray[np.bool_]) -> Tensor:
        """Sums of values [item, k] over every draw, [k, draw], in double precision."""
        return self.to_device(values.T.astype(np.float64)) @ self._double

    @cached_property
    def _double(self) -> Tensor:
        return self.counts.double()


@contextmanager
def resampling(device: torch.device) -> Iterator[None]:
    """Products in full single precision; on a CPU one thread, as tables that fit its cache are not divided."""
    with true_float32(), threads(1) if device.type == "cpu" else nullcontext():
        yield


def row_chunks(n_rows: int, n_items: int, counts: Tensor) -> Iterator[slice]:
    """Rows whose tables [item, draw] are worked on together: one fits a CPU's cache, many keep a GPU busy."""
    step = (
        1
        if counts.device.type == "cpu"
        else max(1, _AT_ONCE // max(1, n_items * counts.shape[1]))
    )
    return (slice(start, start + step) for start in range(0, n_rows, step))


def total(table: Tensor) -> Tensor:
    """Sums of whole numbers over the items of a table [item, draw], [draw], in double precision."""
    return (table.new_ones((1, len(table))) @ table)[
        0
    ].double()  # a product: torch's own sum is far slower


def ratio(part: Tensor, whole: Tensor) -> Tensor:
    """part / whole in double precision; NaN where the whole is empty."""
    return torch.where(whole > 0, part.double() / whole.double(), math.nan)


def estimates(samples: Tensor) -> tuple[Floats, Floats, Floats]:
    """Value and percentile interval of a statistic [..., draw]."""
    values = samples.cpu().numpy()
    return values[..., 0], *percentile_interval(values[..., 1:], axis=-1)


def estimate(samples: Tensor, n: int, method: str) -> Estimate:
    """The same of one statistic [draw]."""
    value, low, high = (float(number) for number in estimates(samples))
    return Estimate(value, low, high, n, method)


def areas(
    scores: Floats, labels: NDArray[np.bool_], strata: Indices, draws: Draws
) -> Tensor:
    """AUC of scores [row, item] in every draw, [row, draw], ties half, within strata; NaN where there is no pair."""
    if draws.device.type == "cpu":
        return torch.from_numpy(auc(scores, labels, strata, draws.counts.numpy()))
    return _areas_gpu(scores, labels, strata, draws)


def _areas_gpu(
    scores: Floats, labels: NDArray[np.bool_], strata: Indices, draws: Draws
) -> Tensor:
    """The same on a GPU: strata side by side, padded with items of no weight."""
    inside = strata == np.unique(strata)[:, None]
    items = np.argsort(~inside, axis=1, kind="stable")[:, : inside.sum(axis=1).max()]
    real = draws.to_device(np.take_along_axis(inside, items, axis=1))
    weights = (draws.counts[draws.to_device(items)] * real[..., None]).movedim(-1, 0)
    targets = draws.to_device(labels[items]).float()
    pairs = ((weights * targets).sum(-1) * (weights * (1 - targets)).sum(-1)).sum(-1)
    of_strata = draws.to_device(scores[:, items])[:, None]
    parts = [
        weighted_auc(of_strata[rows], weights, targets)
        for rows in row_chunks(len(scores), 4 * items.size, draws.counts)
    ]
    return torch.where(pairs > 0, torch.cat(parts), math.nan)
