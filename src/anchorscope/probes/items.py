"""States of many items as a matrix to multiply with, held on the device or, where they outnumber it, streamed to it."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

_IN_CACHE = 2**17  # numbers that are held in float64 at once: on a CPU what its cache holds,
_ON_DEVICE = 2**25  # elsewhere enough to keep the device busy


def in_parts(states: Tensor, device: torch.device) -> Iterator[Tensor]:
    """The states [problem, item, d_model] in parts small enough to hold in float64, in order of the items."""
    values = _IN_CACHE if device.type == "cpu" else _ON_DEVICE
    yield from states.split(max(1, values // (len(states) * states.shape[2])), dim=1)


@dataclass(frozen=True)
class Frame:
    """Where zero is and how long one is, per feature, float64 [problem, 1, d_model]."""

    center: Tensor
    spread: Tensor

    def of(self, states: Tensor) -> Tensor:
        """States in this frame, float32, on its device."""
        device = self.center.device
        found = torch.empty(states.shape, device=device)
        start = 0
        for part in in_parts(states, device):
            exact = (part.to(device).double() - self.center).div_(self.spread)
            found[:, start : start + part.shape[1]] = exact
            start += part.shape[1]
        return found


class Items(Protocol):
    """Items of several problems as rows, with the scalings' means as last rows."""

    def times(self, weight: Tensor) -> Tensor:
        """[problem, column, row] for weights [problem, column, d_model]."""

    def gathered(self, error: Tensor) -> Tensor:
        """[problem, column, d_model] for numbers per row, [problem, column, row]."""


class HeldItems:
    """Items that stay on the device."""

    def __init__(self, rows: Tensor) -> None:
        self._rows = rows
        # A CPU multiplies few columns up to twice as fast if both operands lie in memory order; a GPU does not mind.
        across = rows.transpose(1, 2)
        self._across = across.contiguous() if rows.device.type == "cpu" else across

    def times(self, weight: Tensor) -> Tensor:
        """As in `Items`."""
        return torch.bmm(weight, self._across)

    def gathered(self, error: Tensor) -> Tensor:
        """As in `Items`."""
        return torch.bmm(error, self._rows)


class StreamedItems:
    """Items that outnumber the device's memory: every product brings them over anew, some at a time."""

    def __init__(self, states: Tensor, frame: Frame, means: Tensor, at_once: int) -> None:
        self._states, self._frame, self._means, self._at_once = states, frame, means, at_once

    def times(self, weight: Tensor) -> Tensor:
        """As in `Items`."""
        return torch.cat([torch.bmm(weight, part.transpose(1, 2)) for part in self._parts()], dim=2)

    def gathered(self, error: Tensor) -> Tensor:
        """As in `Items`."""
        total = torch.zeros(*error.shape[:2], self._means.shape[2], device=error.device)
        start = 0
        for part in self._parts():
            total.baddbmm_(error[:, :, start : start + part.shape[1]], part)
            start += part.shape[1]
        return total

    def _parts(self) -> Iterator[Tensor]:
        for part in self._states.split(self._at_once, dim=1):
            yield self._frame.of(part)
        yield self._means
