"""Settings of the whole process, each owned here: who needs one holds it for a while, and it comes back afterwards.

Threads share these settings. If each saved and restored by itself, the second would save what the first had set, and
leave that behind. So a setting is made by the first who holds it and put back by the last who lets go.
"""

import gc
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

_FEW_COLLECTIONS = 100_000  # new objects between two looks for garbage


class _Shared:
    """One setting: made by the first holder, put back by the last, whichever threads they are in."""

    def __init__(self, setting: Callable[[], AbstractContextManager[None]]) -> None:
        self._setting = setting
        self._lock = threading.Lock()
        self._holders = 0
        self._made: AbstractContextManager[None] | None = None

    @contextmanager
    def __call__(self) -> Iterator[None]:
        with self._lock:
            if self._holders == 0:
                self._made = self._setting()
                self._made.__enter__()
            self._holders += 1
        try:
            yield
        finally:
            with self._lock:
                self._holders -= 1
                if self._holders == 0 and self._made is not None:
                    made, self._made = self._made, None
                    made.__exit__(None, None, None)


@contextmanager
def _highest_precision() -> Iterator[None]:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


@contextmanager
def _rare_collections() -> Iterator[None]:
    before = gc.get_threshold()
    gc.set_threshold(_FEW_COLLECTIONS, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


@contextmanager
def _kernels_without_planning() -> Iterator[None]:
    with sdpa_kernel([SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]):
        yield


@contextmanager
def _product_kernels() -> Iterator[None]:
    before = torch.backends.mkldnn.enabled
    try:
        yield
    finally:
        torch.backends.mkldnn.set_flags(before)


@contextmanager
def _silent_transformers() -> Iterator[None]:
    from huggingface_hub.utils import logging as hub_logging
    from transformers import modeling_gguf_pytorch_utils as gguf_reader
    from transformers.utils import logging

    hub_level = hub_logging.get_verbosity()
    hub_logging.set_verbosity_error()  # its client tells every retry
    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    bar_maker = gguf_reader.tqdm  # the GGUF reader draws its own bar, which the switch above does not reach
    gguf_reader.tqdm = lambda items, **_: items
    try:
        yield
    finally:
        gguf_reader.tqdm = bar_maker
        hub_logging.set_verbosity(hub_level)
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()


@contextmanager
def _hub_switched_off() -> Iterator[None]:
    from huggingface_hub import constants

    before = constants.HF_HUB_OFFLINE
    constants.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = before


_precision = _Shared(_highest_precision)
_collections = _Shared(_rare_collections)
_kernels = _Shared(_kernels_without_planning)
_products = _Shared(_product_kernels)
_quiet = _Shared(_silent_transformers)
_offline = _Shared(_hub_switched_off)


def true_float32() -> AbstractContextManager[None]:
    """Matrix products with all bits of float32, whatever the rest of the program allows."""
    return _precision()


def few_collections() -> AbstractContextManager[None]:
    """Python looks for garbage less often: a run holds millions of small records, each looked at again every time."""
    return _collections()


def attention_kernels() -> AbstractContextManager[None]:
    """All fused attention kernels but cuDNN's: it is the fastest, but plans for a tenth of a second per new shape."""
    return _kernels()


def product_kernels() -> AbstractContextManager[None]:
    """The library for products stays as it is: one in bfloat16 on a processor without it switches it off for good, and
    a later model of the same process would differ in the last digits."""
    return _products()


def quiet_transformers() -> AbstractContextManager[None]:
    """Keep transformers' bars and log lines off the terminal for a while; its settings come back afterwards."""
    return _quiet()


def without_hub() -> AbstractContextManager[None]:
    """The hub's client asks no server for a while, whatever it is told to fetch; its setting comes back afterwards."""
    return _offline()


class _ThreadCounts:
    """How many cores torch takes: one number per thread, and one for all threads that are still to begin.

    torch sets both together. So every holder puts back its own thread's, and the last one what new threads get.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._holders = 0
        self._before = 1

    def hold(self) -> int:
        """This thread's number, to be handed back to `let_go`."""
        with self._lock:
            own = torch.get_num_threads()
            if self._holders == 0:
                self._before = own
            self._holders += 1
            return own

    def let_go(self, own: int) -> None:
        """This thread has its number again, and where nobody holds it any more, new threads theirs."""
        with self._lock:
            self._holders -= 1
            torch.set_num_threads(self._before if self._holders == 0 else own)


_threads = _ThreadCounts()


@contextmanager
def one_thread() -> Iterator[None]:
    """Products of this thread stay on one core: tables that fit its cache are not divided."""
    own = _threads.hold()
    try:
        torch.set_num_threads(1)
        yield
    finally:
        _threads.let_go(own)


@contextmanager
def threads(number: int | None) -> Iterator[None]:
    """Products of this thread, and of all that begin meanwhile, take so many cores; None leaves them as they are."""
    if number is None:
        yield
        return
    own = _threads.hold()
    try:
        torch.set_num_threads(number)
        yield
    finally:
        _threads.let_go(own)


@contextmanager
def workers_of_one_thread(workers: int) -> Iterator[ThreadPoolExecutor]:
    """So many workers with a core each: matrices too small to be shared between cores."""
    own = _threads.hold()
    try:
        with ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            yield pool
    finally:
        _threads.let_go(own)
