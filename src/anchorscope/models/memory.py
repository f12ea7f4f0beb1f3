"""Memory of devices: how a lack of it shows; each has its own way to say so."""

import gc
import os
import resource
from pathlib import Path

import torch

from anchorscope.errors import UserError

_WORDS = ("not enough memory", "can't allocate memory", "out of memory")


def is_out_of_memory(error: BaseException) -> bool:
    """Whether memory did not suffice; torch tells it on the CPU with a plain RuntimeError."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return isinstance(error, RuntimeError) and any(words in str(error) for words in _WORDS)


def is_device_lost(error: BaseException) -> bool:
    """Whether a device has failed for good: nothing will run on it in this process any more."""
    return isinstance(error, torch.AcceleratorError) and not is_out_of_memory(error)


def refuse_too_large(needed: int, device: torch.device, on_all: bool, what: str) -> None:
    """Refuses what certainly cannot fit: more bytes than the device has, or than this process may take, in all."""
    if device.type == "cuda":
        devices = range(torch.cuda.device_count()) if on_all else [device.index or 0]
        free, total = (sum(both) for both in zip(*(torch.cuda.mem_get_info(one) for one in devices), strict=True))
    else:
        free, total = host_memory()
    if needed > total:
        raise UserError(
            f"{what} need {needed / 1e9:,.1f} GB of memory, and there are {total / 1e9:,.1f} GB ({free / 1e9:,.1f} GB "
            f"free); choose a smaller --dtype or model, or spread it over several GPUs with --device balanced."
        )


def host_memory() -> tuple[int, int]:
    """Free bytes of this machine, and all that this process may have: a container or a shell may allow less."""
    page = os.sysconf("SC_PAGE_SIZE")
    bounds = [page * os.sysconf("SC_PHYS_PAGES"), resource.getrlimit(resource.RLIMIT_AS)[0]]
    for file in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            bounds.append(int(Path(file).read_text()))
        except (OSError, ValueError):  # not in a container, or without a limit
            continue
    total = min(bound for bound in bounds if bound > 0)  # the shell's "no limit" is -1
    return min(total, page * os.sysconf("SC_AVPHYS_PAGES")), total


def free_memory() -> None:
    """Gives back what is held by nobody any more, to try again with less."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
