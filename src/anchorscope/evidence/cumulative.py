"""Cumulative sums over items in the order of their scores, in all draws of the bootstrap: AUCs and shifts need them.

This is where the time of resampling goes. An order is that of one row of scores (a layer's), the same for all draws; so
items are added one by one, each a vector over the draws. A GPU does that for many rows at once. On a CPU torch would
walk down such a table column by column, many times slower: there NumPy adds one vector to the next, in a table that is
small enough to stay in the cache and serves row after row.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from anchorscope.evidence.draws import row_chunks


def number_until(counts: Tensor, order: Tensor, limits: Tensor) -> Tensor:
    """How many items come before their cumulative sum reaches a limit, [limit, row, draw].

    Counts are [item, draw], orders [row, item], limits [limit, row, draw].
    """
    return (_number_until_cpu if counts.device.type == "cpu" else _number_until_gpu)(counts, order, limits)


def weighted_sums(counts: Tensor, order: Tensor, stops: Sequence[Tensor], weights: Tensor) -> Tensor:
    """Sums over i of weights [i, draw] × the sum of the first so many counts, averaged over the stops, [row, draw].

    Counts are [item, draw], orders [row, item], stops [row, i].
    """
    return (_weighted_sums_cpu if counts.device.type == "cpu" else _weighted_sums_gpu)(counts, order, stops, weights)


def _number_until_gpu(counts: Tensor, order: Tensor, limits: Tensor) -> Tensor:
    found = torch.empty(limits.shape, dtype=torch.int64, device=counts.device)
    for rows in row_chunks(len(order), order.shape[1], counts):
        cumulative = counts[order[rows]].cumsum(dim=1)
        for which, limit in enumerate(limits):
            found[which, rows] = (cumulative < limit[rows, None]).sum(dim=1)
    return found


def _number_until_cpu(counts: Tensor, order: Tensor, limits: Tensor) -> Tensor:
    found = np.zeros(limits.shape, np.int64)
    for row, cumulative in enumerate(_cumulative_tables(counts, order)):
        for limit, number in zip(limits[:, row].numpy(), found[:, row], strict=True):
            for start in range(1, len(cumulative), 255):  # as many as a byte can count
                below = np.less(cumulative[start : start + 255], limit).view(np.uint8)
                number += np.add.reduce(below, axis=0, dtype=np.uint8)
    return torch.from_numpy(found)


def _weighted_sums_gpu(counts: Tensor, order: Tensor, stops: Sequence[Tensor], weights: Tensor) -> Tensor:
    found = counts.new_zeros((len(order), counts.shape[1]))
    for rows in row_chunks(len(order), len(counts) + len(weights), counts):
        cumulative = torch.nn.functional.pad(counts[order[rows]].cumsum(dim=1), (0, 0, 1, 0))
        row = torch.arange(len(cumulative), device=cumulative.device)[:, None]
        for stop in stops:
            found[rows] += (cumulative[row, stop[rows]] * weights).sum(dim=1) / len(stops)
    return found


def _weighted_sums_cpu(counts: Tensor, order: Tensor, stops: Sequence[Tensor], weights: Tensor) -> Tensor:
    found = np.zeros((len(order), counts.shape[1]), np.float32)
    taken = np.empty(weights.shape, np.float32)
    for row, cumulative in enumerate(_cumulative_tables(counts, order)):
        for stop in stops:
            np.take(cumulative, stop[row].numpy(), axis=0, out=taken, mode="clip")  # else NumPy makes a copy of its own
            found[row] += np.einsum("id,id->d", taken, weights.numpy())
    return torch.from_numpy(found / len(stops))


def _cumulative_tables(counts: Tensor, order: Tensor) -> Iterator[NDArray[np.float32]]:
    """Cumulative sums of each row, [1 + item, draw], the first of them nothing; all rows in the same memory."""
    of_item = list(counts.numpy())
    table = np.zeros((1 + order.shape[1], counts.shape[1]), np.float32)
    nothing, *sums = table
    for items in order.tolist():
        before = nothing
        for item, after in zip(items, sums, strict=True):
            np.add(before, of_item[item], after)
            before = after
        yield table
