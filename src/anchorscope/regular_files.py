"""Files that may come from anybody are opened here: regular ones only, and read whole only within bounds.

A link to a device never ends, and a pipe waits for ever; so opening does not wait, and what was opened is looked at
before it is read.
"""

import errno
import os
import stat
from pathlib import Path
from typing import IO

MOST_BYTES = 256 << 20
"""Of a manifest or an index; the largest have some megabytes."""


class NotRegular(OSError):
    """A pipe, device, socket or folder stands where a file was meant."""


def open_regular(path: Path) -> IO[bytes]:
    """A regular file, open to be read; anything else raises `NotRegular`."""
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0))
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise NotRegular(errno.EINVAL, "it is no regular file", str(path))
    return os.fdopen(handle, "rb")


def read_regular(path: Path, most: int = MOST_BYTES) -> bytes:
    """The bytes of a regular file; a longer one raises `OSError`."""
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > most:
            raise OSError(errno.EFBIG, f"it has {size:,} bytes, at most {most:,} are read", str(path))
        return file.read(most)
