"""Large results without copies: one process writes them into memory that has no name, and lends it to another.

The memory is sealed before it is lent, so that whoever has it need not fear that it changes or shrinks. Linux only;
elsewhere results go through the socket.
"""

import fcntl
import os
from collections.abc import Sequence

from anchorscope.execute.content_hash import Body, in_chunks
from anchorscope.side_by_side import side_by_side

CAN_LEND = hasattr(os, "memfd_create") and hasattr(fcntl, "F_ADD_SEALS")
"""Whether this system can do it."""


def write_sealed(pieces: Sequence[Body]) -> int:
    """A file descriptor of new memory that holds these pieces, one after the other."""
    fd = os.memfd_create("anchorscope result", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        chunks, at, placed = list(in_chunks(pieces)), 0, []
        for chunk in chunks:
            placed.append((at, chunk))
            at += sum(map(len, chunk))
        os.ftruncate(fd, at)
        side_by_side(lambda one: _write(fd, *one), placed)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _seals())
    except BaseException:
        os.close(fd)
        raise
    return fd


def read_sealed(fd: int, size: int) -> memoryview:
    """The memory behind a file descriptor, which may be closed after this; ValueError where it is not as told, OSError
    where this process has no room for it.

    It can be written to: what is changed is changed here only. It is given back with the last view of it.
    """
    if fcntl.fcntl(fd, fcntl.F_GET_SEALS) & _seals() != _seals() or os.fstat(fd).st_size != size:
        raise ValueError(f"memory that is not sealed, or not of {size:,} bytes")
    import torch  # which maps files without keeping them open, as Python's own module does not before 3.13

    try:
        found = torch.from_file(f"/proc/self/fd/{fd}", shared=False, size=size, dtype=torch.uint8)
    except RuntimeError as error:
        raise OSError(str(error)) from error
    return found.numpy().data


def _write(fd: int, at: int, pieces: Sequence[memoryview]) -> None:
    for piece in pieces:
        left = piece
        while len(left):
            written = os.pwrite(fd, left, at)
            left, at = left[written:], at + written


def _seals() -> int:
    return fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE
