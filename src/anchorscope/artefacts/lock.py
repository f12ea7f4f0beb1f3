"""The lock of a run folder: one process at a time."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from anchorscope.errors import UserError

LOCK = ".lock"
"""Held while a process runs in the folder."""


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Nobody else works in the folder meanwhile."""
    from filelock import FileLock, Timeout

    if (path / LOCK).is_file() and (path / LOCK).stat().st_size:  # ours is empty, and taking it would empty this one
        raise UserError(f"{str(path / LOCK)!r} is not the lock of a run, but holds something; move it away first.")
    try:
        (lock := FileLock(path / LOCK, timeout=0)).acquire()
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
