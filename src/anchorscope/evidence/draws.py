"""The bootstrap's draws on the device that computes with them, the sample itself among them.

Everything under every resample is a tensor whose last axis runs over the draws: first the sample as it is, then the
resamples. What concerns one item is then one contiguous row, and a value and its interval come out of one computation.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from anchorscope.models.process_settings import one_thread, true_float32
from anchorscope.stats.estimate import percentile_interval

Floats = NDArray[np.floating]
Items = NDArray[np.integer] | NDArray[np.bool_]

_AT_ONCE = 1 << 26  # numbers in one working tensor of a GPU: a handful of those stand at a time, in under 2 GB


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
        """Where the computing is done."""
        return self.counts.device

    def take(self, items: Items) -> "Draws":
        """The same for some of the items."""
        return Draws(self.counts[self.put(items)])

    def put(self, array: NDArray[np.generic]) -> Tensor:
        """An array on the device."""
        return torch.from_numpy(np.ascontiguousarray(array)).to(self.device)

    def numbers(self) -> Tensor:
        """How many items are in each draw, [draw]."""
        return total(self.counts)

    def sums(self, values: Floats | NDArray[np.bool_]) -> Tensor:
        """Sums of values [item, k] over every draw, [k, draw], in double precision."""
        return self.put(values.T.astype(np.float64)) @ self.counts.double()


@contextmanager
def resampling(device: torch.device) -> Iterator[None]:
    """Products in full single precision; on a processor one thread, as tables that fit its cache are not divided."""
    with true_float32(), one_thread() if device.type == "cpu" else nullcontext():
        yield


def portions(n_rows: int, n_items: int, counts: Tensor) -> Iterator[slice]:
    """Rows whose tables [item, draw] are worked on together: one fits a processor's cache, many keep a GPU busy."""
    step = 1 if counts.device.type == "cpu" else max(1, _AT_ONCE // max(1, n_items * counts.shape[1]))
    return (slice(start, start + step) for start in range(0, n_rows, step))


def total(table: Tensor) -> Tensor:
    """Sums of whole numbers over the items of a table [item, draw], [draw], in double precision."""
    return (table.new_ones((1, len(table))) @ table)[0].double()  # a product: torch's own sum is far slower


def ratio(part: Tensor, whole: Tensor) -> Tensor:
    """part / whole in double precision; NaN where the whole is empty."""
    found = part.double() / whole.double()
    return torch.where(whole > 0, found, math.nan)


def estimates(samples: Tensor) -> tuple[Floats, Floats, Floats]:
    """Value and interval of a statistic [..., draw]."""
    found = samples.cpu().numpy()
    low, high = percentile_interval(found[..., 1:], axis=-1)
    return found[..., 0], low, high
