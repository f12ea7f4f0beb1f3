"""The lock of a folder: held while a process works in it, and gone with that process however it ends."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from anchorscope.errors import UserError

LOCK = ".lock"
"""Held while a process runs in the folder."""
_A_LOOK = 0.5  # seconds: whoever asks whether the lock is held takes it for a moment


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Nobody else works in the folder meanwhile."""
    from filelock import FileLock, Timeout

    if (path / LOCK).is_file() and (path / LOCK).stat().st_size:  # ours is empty, and taking it would empty this one
        raise UserError(f"{str(path / LOCK)!r} is not the lock of a run, but holds something; move it away first.")
    try:
        (lock := FileLock(path / LOCK, timeout=_A_LOOK)).acquire()
    except Timeout:
        told = f"Another process is running in {str(path)!r}; wait for it, or choose another folder with --out."
        raise UserError(told) from None
    except (OSError, NotImplementedError) as error:
        raise UserError(
            f"Folder {str(path)!r} cannot be locked ({error}), so that two runs could write there at once; choose a "
            f"folder on another file system with --out."
        ) from None
    try:
        yield
    except BaseException:
        with contextlib.suppress(OSError):
            if [one.name for one in path.iterdir()] == [LOCK]:
                (path / LOCK).unlink()
        raise
    finally:
        lock.release()


def is_locked(path: Path) -> bool:
    """Whether a process works in the folder just now; nothing is written."""
    try:
        import fcntl

        handle = os.open(path / LOCK, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ImportError):  # nobody was ever here, or the system has other locks
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # a file system without locks: no run can be at work
        return False
    finally:
        os.close(handle)
    return False
