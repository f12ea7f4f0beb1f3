"""Tensors on their way between host and device, so that neither waits for the other where it need not.

A plain copy to a GPU waits until the GPU has done all that it was told before. Copies from and to pinned memory do not.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

_WORD = torch.int64  # rows are copied in words of this size, where they can be


def to_device(found: Tensor | NDArray[Any], device: torch.device) -> Tensor:
    """A tensor on a device, without waiting for what the device has still to do."""
    tensor = torch.from_numpy(found) if isinstance(found, np.ndarray) else found
    if device.type == "cuda" and not tensor.is_cuda:
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)


class Fetched:
    """Tensors that come to the host: asked for now, waited for when they are needed, by any thread."""

    def __init__(self, tensors: Sequence[Tensor], device: torch.device) -> None:
        """`device` is where the work is done that they hang on."""
        self._there = [_copy(one) for one in tensors]
        self._event: torch.cuda.Event | None = None
        if device.type == "cuda":
            self._event = torch.cuda.Event()
            self._event.record(torch.cuda.current_stream(device))

    def wait(self) -> None:
        """Until all that the device was told before is done."""
        if self._event is not None:
            self._event.synchronize()

    def get(self) -> list[Tensor]:
        """The tensors, in host memory."""
        self.wait()
        return self._there


def _copy(tensor: Tensor) -> Tensor:
    if not tensor.is_cuda:
        return tensor
    return torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True).copy_(tensor, non_blocking=True)


class ToHost:
    """Hands over each batch's tensor in host memory, one batch late: by then its copy is done."""

    def __init__(self, receive: Callable[[Any, Tensor], None]) -> None:
        self.receive = receive
        self.waiting: tuple[Any, Fetched] | None = None

    def put(self, key: Any, states: Tensor) -> None:
        """Starts the copy; `key` comes back with it."""
        if states.is_cuda:
            fetched = Fetched([states], states.device)
            self.finish()
            self.waiting = key, fetched
        else:
            self.receive(key, states)

    def finish(self) -> None:
        """Waits for the copy under way and hands it over."""
        if self.waiting is not None:
            key, fetched = self.waiting
            self.receive(key, *fetched.get())
            self.waiting = None  # only now: what could not be received is not lost


def empty_on_host(shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    """Memory for much, which NumPy asks the system for in large pages: filling it takes a third of the time."""
    return torch.from_numpy(np.empty(tuple(shape), dtype=f"u{dtype.itemsize}")).view(dtype)


def copy_rows(
    into: Float[Tensor, "place layer item d_model"],
    items: Int[np.ndarray, " some"] | Sequence[int],
    rows: Float[Tensor, "place layer some d_model"],
) -> None:
    """Puts the rows of some items to their places, bit by bit."""
    at = torch.as_tensor(items, dtype=torch.long)
    if _is_whole_words(into) and _is_whole_words(rows):  # copying goes number by number: fewer, larger ones
        into, rows = into.view(_WORD), rows.view(_WORD)
    into.index_copy_(2, at, rows)


def _is_whole_words(rows: Tensor) -> bool:
    """Whether every row begins and ends where a word does."""
    places = (rows.storage_offset(), rows.shape[-1], *rows.stride()[:-1])
    return rows.stride(-1) == 1 and all(place * rows.itemsize % _WORD.itemsize == 0 for place in places)
