"""Lists and settings that may come from anybody, read whole: regular files only, and no longer than such files are.

A link to a device never ends, and a pipe waits for ever; so a file is looked at once it is open, and opening does not
wait.
"""

import errno
import os
import stat
from pathlib import Path

MOST_BYTES = 256 << 20
"""Of a manifest or an index; the largest have some megabytes."""


def read_regular(path: Path, most: int = MOST_BYTES) -> bytes:
    """The bytes of a file; anything else, or a longer file, raises `OSError`."""
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0))
    with os.fdopen(handle, "rb") as file:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EINVAL, "it is no regular file", str(path))
        if found.st_size > most:
            raise OSError(errno.EFBIG, f"it has {found.st_size:,} bytes, at most {most:,} are read", str(path))
        return file.read(most)
