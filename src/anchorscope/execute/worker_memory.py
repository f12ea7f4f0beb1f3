"""Large results without detours: the coordinator copies them out of a worker's memory into its own, by several threads.

Linux lets a process read the memory of those that it started (`process_vm_readv`), unless something forbids it.
Elsewhere results go through the socket.
"""

import ctypes
import os
from collections.abc import Callable, Sequence

from anchorscope.execute.content_hash import CHUNK, Body
from anchorscope.side_by_side import side_by_side

Place = tuple[int, int]
"""Where a piece lies in the memory of a process, and its size in bytes."""


class _Span(ctypes.Structure):
    _fields_ = (("start", ctypes.c_void_p), ("size", ctypes.c_size_t))


def _found() -> Callable[..., int] | None:
    try:
        found = ctypes.CDLL(None, use_errno=True).process_vm_readv
    except (OSError, AttributeError):
        return None
    span = ctypes.POINTER(_Span)
    found.argtypes = (ctypes.c_int, span, ctypes.c_ulong, span, ctypes.c_ulong, ctypes.c_ulong)
    found.restype = ctypes.c_ssize_t
    return found


_read = _found()
CAN_READ = _read is not None
"""Whether this system knows how; whether it allows it is seen when it is tried."""


def places_of(pieces: Sequence[Body]) -> list[Place]:
    """Where these pieces lie in this process; they have to stay there until they are read."""
    import numpy as np  # only here: a worker reads its job before NumPy is there

    return [(np.frombuffer(one, np.uint8).ctypes.data, len(one)) for one in pieces if len(one)]


def read_places(process: int, places: Sequence[Place]) -> memoryview:
    """New memory with what lies at these places of a process, one after the other; OSError where that is not allowed,
    MemoryError where there is no room, ValueError where these are no places."""
    import numpy as np

    if any(start <= 0 or size <= 0 for start, size in places):
        raise ValueError("a piece of no size, or nowhere")
    whole = np.empty(sum(size for _, size in places), dtype=np.uint8)
    chunks, at = list[tuple[int, int, int]](), whole.ctypes.data
    for start, size in places:
        chunks += [(at + done, start + done, min(CHUNK, size - done)) for done in range(0, size, CHUNK)]
        at += size
    side_by_side(lambda one: _copy(process, *one), chunks)
    return whole.data


def _copy(process: int, to: int, start: int, size: int) -> None:
    assert _read is not None
    done = 0
    while done < size:
        ours, theirs = _Span(to + done, size - done), _Span(start + done, size - done)
        count = _read(process, ctypes.byref(ours), 1, ctypes.byref(theirs), 1, 0)
        if count <= 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
        done += count
