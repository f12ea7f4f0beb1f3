"""Memory that runs out, and copies between host and device that don't wait for a GPU's earlier work (pinned memory)."""

import gc
import os
import resource
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from anchorscope.errors import UserError

_WORDS = ("not enough memory", "can't allocate memory", "out of memory")


def is_out_of_memory(error: BaseException) -> bool:
    """Whether memory ran out; on the CPU torch raises a plain RuntimeError."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return isinstance(error, RuntimeError) and any(
        words in str(error) for words in _WORDS
    )


def is_device_lost(error: BaseException) -> bool:
    """Whether a device has failed for good: nothing will run on it in this process any more."""
    return isinstance(error, torch.AcceleratorError) and not is_out_of_memory(error)


def refuse_too_large(
    needed: int, device: torch.device, on_all: bool, what: str
) -> None:
    """Refuses what can't fit: more bytes than the device has, or than this process may take."""
    if device.type == "cuda":
        devices = range(torch.cuda.device_count()) if on_all else [device.index or 0]
        free, total = (
            sum(both)
            for both in zip(
                *(torch.cuda.mem_get_info(gpu) for gpu in devices), strict=True
            )
        )
    else:
        free, total = host_memory()
    if needed > total:
        raise UserError(
            f"{what} need {needed / 1e9:,.1f} GB of memory, and there are {total / 1e9:,.1f} GB ({free / 1e9:,.1f} GB "
            f"free); choose a smaller --dtype or model, or spread it over several GPUs with --device balanced."
        )


def host_memory() -> tuple[int, int]:
    """Free bytes of this machine, and the most this process may take (container, ulimit)."""
    page = os.sysconf("SC_PAGE_SIZE")
    bounds = [
        page * os.sysconf("SC_PHYS_PAGES"),
        resource.getrlimit(resource.RLIMIT_AS)[0],
    ]
    for file in (
        "/sys/fs/cgroup/memory.max",
        "/sys/fs/cgroup/memory/memory.limit_in_bytes",
    ):
        try:
            bounds.append(int(Path(file).read_text()))
        except (OSError, ValueError):  # not in a container, or without a limit
            continue
    total = min(bound for bound in bounds if bound > 0)  # the shell's "no limit" is -1
    return min(total, page * os.sysconf("SC_AVPHYS_PAGES")), total


def free_memory() -> None:
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def to_device(values: Tensor | NDArray[Any], device: torch.device) -> Tensor:
    """A tensor on a device, without waiting for the device's queued work."""
    tensor = torch.from_numpy(values) if isinstance(values, np.ndarray) else values
    if device.type == "cuda" and not tensor.is_cuda:
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)


class Fetched:
    """Copies to the host: started now, waited for when needed, by any thread."""

    def __init__(self, tensors: Sequence[Tensor], device: torch.device) -> None:
        self._there = [
            torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True).copy_(
                tensor, non_blocking=True
            )
            if tensor.is_cuda
            else tensor
            for tensor in tensors
        ]
        self._done: torch.cuda.Event | None = None
        if device.type == "cuda":
            # who waits leaves its core to others
            self._done = torch.cuda.Event(blocking=True)
            self._done.record(torch.cuda.current_stream(device))

    def get(self) -> list[Tensor]:
        """The tensors in host memory; those of a GPU are pinned, so release them soon."""
        if self._done is not None:
            self._done.synchronize()
        return self._there


class ToHost:
    def __init__(self, receive: Callable[[Any, Tensor], None]) -> None:
        self.receive = receive
        self.waiting: tuple[Any, Fetched] | None = None

    def put(self, key: Any, states: Tensor) -> None:
        if states.is_cuda:
            fetched = Fetched([states], states.device)
            self.finish()
            self.waiting = key, fetched
        else:
            self.receive(key, states)

    def finish(self) -> None:
        if self.waiting is not None:
            key, fetched = self.waiting
            self.receive(key, *fetched.get())
            self.waiting = None  # only now: what could not be received is not lost


def empty_on_host(shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    """A large buffer: NumPy gets huge pages from the system, which fill in less than half the time."""
    return torch.from_numpy(np.empty(tuple(shape), dtype=f"u{dtype.itemsize}")).view(
        dtype
    )
