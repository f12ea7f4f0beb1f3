"""A fence around a child: it may write only below its folders and reaches no network; every try is written down.

To the command a place outside looks like a read-only disk, and the network like one that is down. What libraries
written in other languages do is not seen here; they are handed open files, or paths in folders made before.
"""

import errno
import os
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

CHANGES = {
    "os.mkdir": ((0, 2),),
    "os.rmdir": ((0, 1),),
    "os.remove": ((0, 1),),
    "os.truncate": ((0, None),),
    "os.chmod": ((0, 2),),
    "os.chown": ((0, 3),),
    "os.utime": ((0, 3),),
    "os.symlink": ((1, 2),),
    "os.rename": ((0, 2), (1, 3)),
    "os.link": ((1, 3),),
}
"""Audit events that change the disk: the argument that is a path, and the one that is its folder's handle."""
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
NETWORK = ("socket.connect", "socket.getaddrinfo", "socket.gethostbyname", "socket.sendto")


def fence(roots: Sequence[Path], log: Path) -> None:
    """Puts up the fence; there is no way to take it down again in this process."""
    allowed = tuple(os.path.realpath(root) for root in roots)
    handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def note(kind: str, what: Any) -> None:
        os.write(handle, f"{kind} {what!r}\n".encode(errors="backslashreplace"))

    def check(path: Any, folder: Any = -1) -> None:
        if isinstance(path, int):
            return  # a handle: it was opened before
        place = os.path.join(_folder(folder), os.fsdecode(path))
        parent, name = os.path.split(place.rstrip("/") or "/")
        real = os.path.join(os.path.realpath(parent), name)
        if not real.startswith(("/dev/", "/proc/self/")) and not f"{real}/".startswith(
            tuple(f"{one}/" for one in allowed)
        ):
            note("outside", place)
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), place)

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            path, _, flags = arguments
            if (
                flags & WRITING
                and path is not None
                and b"\0" not in os.fsencode(path if not isinstance(path, int) else b"")
            ):
                check(path)
        elif event in CHANGES:
            for number, folder in CHANGES[event]:
                check(arguments[number], -1 if folder is None else arguments[folder])
        elif event in NETWORK:
            if event == "socket.connect" and arguments[0].family == socket.AF_UNIX:
                return
            note("network", arguments[-1] if event == "socket.connect" else arguments[0])
            raise OSError(errno.ENETUNREACH, os.strerror(errno.ENETUNREACH))
        elif event == "subprocess.Popen" and "pip" in map(str, arguments[1]):
            note("network", "pip")
            raise OSError(errno.EACCES, os.strerror(errno.EACCES), str(arguments[0]))

    sys.addaudithook(hook)


def _folder(handle: Any) -> str:
    """The folder that a relative path begins at."""
    return os.getcwd() if handle in (-1, None) else os.readlink(f"/proc/self/fd/{handle}")
