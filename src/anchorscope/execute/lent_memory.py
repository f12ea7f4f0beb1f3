"""Large results without copies: one process writes them into memory that has no name, and lends it to another.

The memory is sealed before it is lent, so that whoever has it need not fear that it changes or shrinks. Linux only;
elsewhere results go through the socket.
"""

import fcntl
import os
from collections.abc import Sequence

Body = bytes | memoryview
"""A packed value, or a piece of it: bytes, or memory that another process may have lent."""
CAN_LEND = hasattr(os, "memfd_create") and hasattr(fcntl, "F_ADD_SEALS")
"""Whether this system can do it."""
_AT_ONCE = 512  # pieces that are written by one call


def write_sealed(pieces: Sequence[Body]) -> int:
    """A file descriptor of new memory that holds these pieces, one after the other."""
    fd = os.memfd_create("anchorscope result", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        left = [memoryview(one).cast("B") for one in pieces]
        while left:
            written = os.writev(fd, left[:_AT_ONCE])
            while left and written >= len(left[0]):
                written -= len(left.pop(0))
            if written:
                left[0] = left[0][written:]
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _seals())
    except BaseException:
        os.close(fd)
        raise
    return fd


def read_sealed(fd: int, size: int) -> memoryview:
    """The memory behind a file descriptor, which may be closed after this; ValueError where it is not as told.

    It can be written to: what is changed is changed here only. It is given back with the last view of it.
    """
    if fcntl.fcntl(fd, fcntl.F_GET_SEALS) & _seals() != _seals() or os.fstat(fd).st_size != size:
        raise ValueError(f"memory that is not sealed, or not of {size:,} bytes")
    import torch  # which maps files without keeping them open, as Python's own module does not before 3.13

    found = torch.from_file(f"/proc/self/fd/{fd}", shared=False, size=size, dtype=torch.uint8)
    return found.numpy().data


def _seals() -> int:
    return fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE
