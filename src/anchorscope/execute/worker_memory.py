"""Large results without detours: the coordinator copies them out of a worker's memory into its own, by several threads.

Linux lets a process read the memory of those that it started (`process_vm_readv`), unless something forbids it.
Elsewhere results go through the socket.
"""

import ctypes
import os
from collections.abc import Callable, Iterator, Sequence

from anchorscope.execute.content_hash import CHUNK, Body
from anchorscope.side_by_side import side_by_side

Place = tuple[int, int]
"""Where a piece lies in the memory of a process, and its size in bytes."""
_MOST_SPANS = 1024  # that the system reads at once


class _Span(ctypes.Structure):
    _fields_ = (("start", ctypes.c_void_p), ("size", ctypes.c_size_t))


def _system_call() -> Callable[..., int] | None:
    try:
        found = ctypes.CDLL(None, use_errno=True).process_vm_readv
    except (OSError, AttributeError):
        return None
    span = ctypes.POINTER(_Span)
    found.argtypes = (ctypes.c_int, span, ctypes.c_ulong, span, ctypes.c_ulong, ctypes.c_ulong)
    found.restype = ctypes.c_ssize_t
    return found


_process_vm_readv = _system_call()
CAN_READ = _process_vm_readv is not None
"""Whether this system knows how; whether it allows it is seen when it is tried."""


def places_of(pieces: Sequence[Body]) -> list[Place]:
    """Where these pieces lie in this process; they have to stay there until they are read."""
    import numpy as np  # only here: a worker reads its job before NumPy is there

    return [(np.frombuffer(one, np.uint8).ctypes.data, len(one)) for one in pieces if len(one)]


def read_places(process: int, places: Sequence[Place]) -> memoryview:
    """New memory with what lies at these places of a process, one after the other; OSError where that is not allowed,
    MemoryError where there is no room."""
    import numpy as np

    whole = np.empty(sum(size for _, size in places), dtype=np.uint8)
    start = whole.ctypes.data
    side_by_side(lambda one: _read(process, start + one[0], one[1]), list(_in_chunks(places)))
    return whole.data


def _in_chunks(places: Sequence[Place]) -> Iterator[tuple[int, list[Place]]]:
    """Places that make up a chunk each, and where it belongs; cut where one is full."""
    found, at, size = list[Place](), 0, 0
    for start, left in places:
        while left:
            taken = min(left, CHUNK - size)
            found.append((start, taken))
            start, left, size = start + taken, left - taken, size + taken
            if size == CHUNK or len(found) == _MOST_SPANS:
                yield at, found
                found, at, size = [], at + size, 0
    if found:
        yield at, found


def _read(process: int, to: int, places: Sequence[Place]) -> None:
    assert _process_vm_readv is not None
    left = sum(size for _, size in places)
    while left:
        ours, theirs = _Span(to, left), (_Span * len(places))(*(_Span(*one) for one in places))
        count = _process_vm_readv(process, ctypes.byref(ours), 1, theirs, len(places), 0)
        if count <= 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
        to, left = to + count, left - count
        places = _after(places, count)


def _after(places: Sequence[Place], count: int) -> list[Place]:
    """What is left after the first bytes."""
    left = []
    for start, size in places:
        skipped = min(count, size)
        count -= skipped
        if skipped < size:
            left.append((start + skipped, size - skipped))
    return left
