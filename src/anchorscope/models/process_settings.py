"""Settings of the whole process, held for a while and restored afterwards.

Threads share them: a setting is made by the first holder and restored by the last.
"""

import functools
import gc
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

_FEW_COLLECTIONS = 100_000  # new objects between two searches for garbage


def _shared(
    setting: Callable[[], Iterator[None]],
) -> Callable[[], AbstractContextManager[None]]:
    """A context manager that only the first of several holders enters and the last one leaves, in any thread."""
    lock, holders, make = threading.Lock(), 0, contextmanager(setting)
    made: AbstractContextManager[None] = make()

    @functools.wraps(setting)
    @contextmanager
    def hold() -> Iterator[None]:
        nonlocal holders, made
        with lock:
            if holders == 0:
                made = make()
                made.__enter__()
            holders += 1
        try:
            yield
        finally:
            with lock:
                holders -= 1
                if holders == 0:
                    made.__exit__(None, None, None)

    return hold


def _set(
    read: Callable[[], Any], write: Callable[[Any], object], value: Any
) -> Iterator[None]:
    before = read()
    write(value)
    try:
        yield
    finally:
        write(before)


@_shared
def true_float32() -> Iterator[None]:
    yield from _set(
        torch.get_float32_matmul_precision,
        torch.set_float32_matmul_precision,
        "highest",
    )


@_shared
def few_collections() -> Iterator[None]:
    """Less frequent garbage collection: a run holds millions of small records, each visited every time."""
    few = (_FEW_COLLECTIONS, *gc.get_threshold()[1:])
    yield from _set(
        gc.get_threshold, lambda threshold: gc.set_threshold(*threshold), few
    )


@_shared
def attention_kernels() -> Iterator[None]:
    """All fused attention kernels but cuDNN's, which plans for a tenth of a second per new shape."""
    with sdpa_kernel(
        [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
    ):
        yield


@_shared
def product_kernels() -> Iterator[None]:
    """Restores mkldnn: a bfloat16 product on a processor without it disables it, which would change later models'
    digits."""
    enabled = torch.backends.mkldnn.enabled
    yield from _set(lambda: enabled, torch.backends.mkldnn.set_flags, enabled)


@_shared
def quiet_transformers() -> Iterator[None]:
    from huggingface_hub.utils import logging as hub_logging
    from transformers.utils import logging

    hub_level = hub_logging.get_verbosity()
    hub_logging.set_verbosity_error()  # its client logs every retry
    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        hub_logging.set_verbosity(hub_level)
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()


@_shared
def without_hub() -> Iterator[None]:
    from huggingface_hub import constants

    yield from _set(
        lambda: constants.HF_HUB_OFFLINE,
        lambda offline: setattr(constants, "HF_HUB_OFFLINE", offline),
        True,
    )


_THREADS = threading.Lock()
_before: list[
    int
] = []  # the number of threads that each holder met, the first one's first


@contextmanager
def threads(number: int | None) -> Iterator[None]:
    """Products of this thread, and of threads that start meanwhile, use this many cores; None changes nothing.

    torch keeps a number per thread and one for new threads, and sets both together: every holder restores its own
    thread's number, the last one also that of new threads.
    """
    if number is None:
        yield
        return
    with _THREADS:
        own = torch.get_num_threads()
        _before.append(own)
    try:
        torch.set_num_threads(number)
        yield
    finally:
        with _THREADS:
            newest = _before.pop()
            # the first one's stays until the list is empty
            torch.set_num_threads(own if _before else newest)


@contextmanager
def workers_of_one_thread(workers: int) -> Iterator[ThreadPoolExecutor]:
    """Workers with one core each, for matrices too small to share."""
    with (
        threads(torch.get_num_threads()),
        ThreadPoolExecutor(
            workers, initializer=torch.set_num_threads, initargs=(1,)
        ) as pool,
    ):
        yield pool
