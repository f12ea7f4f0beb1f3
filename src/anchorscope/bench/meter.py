"""Seconds and peak memory of one piece of work, and the machine's measured matrix-multiply peak.

Peak memory of the host is sampled while the work runs (what the system keeps of a process's peak never falls again, so
that later work would inherit it); that of a GPU comes from torch.
"""

import ctypes
import gc
import os
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import torch

_SAMPLE_SECONDS = 0.01
_MATMUL_SIZE = {"cpu": 1536, "cuda": 8192}  # large enough that nothing but the multiplying counts
_MATMUL_REPEATS = 5


@dataclass(frozen=True)
class Measured:
    """What one repeat took."""

    seconds: float
    host_added_mb: float
    """What it took of the host's memory at most, beyond what the process held before."""
    device_added_mb: float | None
    """The same of the GPU's; None on the CPU."""


def measure(run: Callable[[], Any], device: torch.device) -> Measured:
    """Runs once and waits for the device."""
    _tidy(device)
    began_with, on_gpu = held_mb(device), device.type == "cuda"
    with _Sampler() as sampler:
        _wait(device)
        began = time.perf_counter()
        kept = run()
        _wait(device)
        seconds = time.perf_counter() - began
    del kept  # only here: what is handed back counts
    return Measured(
        seconds=seconds,
        host_added_mb=max(0.0, sampler.peak - began_with[0]),
        device_added_mb=torch.cuda.max_memory_allocated(device) / 2**20 - began_with[1] if on_gpu else None,
    )


def held_mb(device: torch.device) -> tuple[float, float]:
    """What this process holds now of the host's memory and of the GPU's."""
    return _resident_mb(), torch.cuda.memory_allocated(device) / 2**20 if device.type == "cuda" else 0.0


def matmul_peak(device: torch.device, dtype: torch.dtype) -> float:
    """Operations per second of large matrix products on this machine, the best of several."""
    size = _MATMUL_SIZE[device.type]
    a, b = (torch.randn(size, size, device=device).to(dtype) for _ in range(2))
    best = 0.0
    for _ in range(_MATMUL_REPEATS):
        _wait(device)
        began = time.perf_counter()
        torch.mm(a, b)
        _wait(device)
        best = max(best, 2 * size**3 / (time.perf_counter() - began))
    return best


def machine(device: torch.device) -> dict[str, Any]:
    """What the numbers were measured on."""
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "gpu": torch.cuda.get_device_name(device) if device.type == "cuda" else None,
        "python": sys.version.split()[0],
        "torch": torch.__version__,
    }


class _Sampler:
    """Watches the process's resident memory from a thread."""

    def __init__(self) -> None:
        self.peak = _resident_mb()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> "_Sampler":
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()
        self.peak = max(self.peak, _resident_mb())

    def _watch(self) -> None:
        while not self._over.wait(_SAMPLE_SECONDS):
            self.peak = max(self.peak, _resident_mb())


def _resident_mb() -> float:
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20
    except (OSError, ValueError):  # not Linux: the peak so far is all that the system tells
        import resource

        unit = 2**20 if sys.platform == "darwin" else 2**10
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit


def _tidy(device: torch.device) -> None:
    """Gives back what earlier work has freed, so that it is not counted as this one's."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)
    if sys.platform == "linux":
        try:
            ctypes.CDLL("libc.so.6").malloc_trim(0)
        except (OSError, AttributeError):  # another C library; the numbers are then a little larger
            return


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            named = [line.partition(":")[2].strip() for line in file if line.startswith(("model name", "CPU part"))]
        return named[0] if named else "unknown"
    except OSError:
        return "unknown"
