"""Files and folders: opened safely, hashed once, written whole, locked while a process works in them.

A file is written beside its destination, synced, renamed, and the folder synced as well: a name always stands for a
complete file, even after a power cut.
"""

import contextlib
import errno
import fcntl
import hashlib
import os
import re
import secrets
import shutil
import stat
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from io import BufferedReader
from pathlib import Path, PurePosixPath
from typing import Any

from anchorscope.errors import UserError, naming
from anchorscope.json_text import from_json, to_json

PARTIAL = ".anchorscope-partial"
"""Ends the name of what is being written. A user may end a name so too: `partial_of` tells theirs from ours."""
_PARTIAL = re.compile(
    rf"(.+)\.([0-9a-f]{{8}})-([0-9a-f]{{8}}){re.escape(PARTIAL)}", re.DOTALL
)
LOCK = ".lock"
"""Held while a process runs in the folder."""
MOST_BYTES = 256 << 20
"""Limit for a manifest or an index; the largest have some megabytes."""
_WAIT_FOR_LOCK = 0.5  # seconds: `is_locked` holds the lock for a moment
_JUST_WRITTEN = 2_000_000_000  # ns: clocks of file systems tick too slowly to separate nearer writes
_MOST_REMEMBERED = 4096  # hashes on disk; the oldest go first
_THREADS = 4  # hashing leaves the interpreter's lock alone
Stamp = list[int]
"""Size, inode and both times of a file; ctime can't be set back, so a changed file with an old date is read again."""
_MEMORY: dict[str, tuple[Stamp, str]] = {}


# Writing


@contextlib.contextmanager
def replacing(target: Path) -> Iterator[Path]:
    """A path to write to; it replaces the target only on success, and never a folder that holds something."""
    with _path_beside(target) as half_made:
        yield half_made
        sync_tree(half_made)
        os.replace(half_made, target)
        sync_folder(target.parent)


@contextlib.contextmanager
def replacing_folder(target: Path) -> Iterator[Path]:
    """The same for a folder whose content the caller knows to be ours; it comes back on failure."""
    with _path_beside(target) as before:
        try:
            with replacing(target) as half_made:
                yield half_made
                if target.is_dir():
                    os.replace(target, before)
        except BaseException:
            if before.exists() and not target.exists():
                os.replace(before, target)
            raise


@contextlib.contextmanager
def folder_beside(target: Path) -> Iterator[Path]:
    """An empty folder to write into, named after the target; removed afterwards."""
    with _path_beside(target) as half_made:
        make_folder(half_made)
        yield half_made


@contextlib.contextmanager
def _path_beside(target: Path) -> Iterator[Path]:
    """An unused path beside the target; errors name the target."""
    half_made = target.with_name(partial_name(target.name))
    try:
        with naming(target):
            yield half_made
    finally:
        with contextlib.suppress(OSError):
            _remove(half_made)


def partial_name(name: str) -> str:
    """A name for a thing being written that no user has: a random part, and a hash that shows that we chose it."""
    salt = secrets.token_hex(4)
    return f"{name}.{salt}-{_mark(name, salt)}{PARTIAL}"


def _mark(name: str, salt: str) -> str:
    return canonical_hash([name, salt])[:8]


def partial_of(name: str) -> str | None:
    """The name that a half-made thing was to get; None where `partial_name` did not make its own."""
    found = _PARTIAL.fullmatch(name)
    return found[1] if found and _mark(found[1], found[2]) == found[3] else None


def remove_partials(folder: Path, only: str | None = None) -> None:
    """Removes what killed processes left half made in a folder: all of it, or only what was to get one name."""
    for path in folder.glob(f"*{PARTIAL}"):
        name = partial_of(path.name)
        if name is not None and only in (None, name):
            _remove(path)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def write_json(path: Path, record: Any, indent: int | None = 1) -> None:
    """A JSON file; without an indent it is written several times as fast."""
    with replacing(path) as half_made:
        half_made.write_text(
            to_json(record, indent=indent, ascii=False), encoding="utf-8"
        )


def move_files(made: Path, folder_to: Path, names: Iterable[str]) -> None:
    """Moves files, already synced, to the same names in another folder."""
    folders = {(folder_to / name).parent for name in names}
    for folder in folders:
        make_folder(folder)
    for name in names:
        os.replace(made / name, folder_to / name)
    for folder in folders:
        sync_folder(folder)


def move_aside(original: Path) -> Path:
    """Renames a file that isn't ours, or was changed; the new name."""
    numbered = (
        original.with_name(f"{original.name}.changed-{number}")
        for number in range(1, 10_000)
    )
    aside = next(path for path in numbered if not os.path.lexists(path))
    os.replace(original, aside)
    sync_folder(original.parent)
    return aside


def is_behind_link(folder: Path, name: str) -> bool:
    """Whether a folder on the way from this folder to one of its files is a link."""
    return any(
        (folder / part).is_symlink() for part in PurePosixPath(name).parents[:-1]
    )


def remove_files(folder: Path, names: Iterable[str]) -> None:
    """Removes files of a folder, and folders that become empty; nothing behind a link."""
    for name in names:
        path = folder / name
        if is_behind_link(folder, name) or path.is_symlink() or path.is_dir():
            continue  # a link or a folder in its place is none of ours
        # a file stands where its folder was
        with contextlib.suppress(NotADirectoryError):
            path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # until one is not empty
            for below in path.parents:
                if below == folder:
                    break
                below.rmdir()


def make_folder(path: Path) -> None:
    """A folder and its parents, synced."""
    if not path.is_dir():
        make_folder(path.parent)
        with contextlib.suppress(FileExistsError):
            path.mkdir()
        if not path.is_dir():
            raise NotADirectoryError(
                errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path)
            )
        sync_folder(path.parent)


def sync_tree(path: Path) -> None:
    """Syncs a file, or a folder with all its members."""
    if not path.is_dir():
        with path.open("rb") as written:
            os.fsync(written.fileno())
        return
    for member in path.iterdir():
        sync_tree(member)
    sync_folder(path)


def sync_folder(path: Path) -> None:
    """Syncs a folder's entries, where the file system can."""
    with contextlib.suppress(OSError):
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


# The folder that a command writes into


@contextlib.contextmanager
def new_folder(path: Path) -> Iterator[None]:
    """Makes a folder and its parents; on failure, removes those it made if they are empty."""
    missing: list[Path] = []
    try:
        with writable(path):
            missing = [
                folder for folder in (path, *path.parents) if not folder.is_dir()
            ]
            make_folder(path)
        yield
    except BaseException:
        for folder in missing:
            with contextlib.suppress(OSError):  # it holds something, or was never made
                folder.rmdir()
        raise


@contextlib.contextmanager
def writable(path: Path) -> Iterator[None]:
    """Reports in one line why a folder can't be read, made or written."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or error
        raise UserError(
            f"Folder {str(path)!r} cannot be written ({reason}); choose another with --out."
        ) from None


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Holds the folder's lock, which ends with the process."""
    from filelock import FileLock, Timeout

    # ours is empty, and taking it would empty this one
    if (path / LOCK).is_file() and (path / LOCK).stat().st_size:
        raise UserError(
            f"{str(path / LOCK)!r} is not the lock of a run, but holds something; move it away first."
        )
    try:
        (lock := FileLock(path / LOCK, timeout=_WAIT_FOR_LOCK)).acquire()
    except Timeout:
        raise UserError(
            f"Another process is running in {str(path)!r}; wait for it, or choose another folder with --out."
        ) from None
    except (OSError, NotImplementedError) as error:
        raise UserError(
            f"Folder {str(path)!r} cannot be locked ({error}), so that two runs could write there at once; choose a "
            f"folder on another file system with --out."
        ) from None
    try:
        yield
    except BaseException:
        with contextlib.suppress(OSError):
            if os.listdir(path) == [LOCK]:
                (path / LOCK).unlink()
        raise
    finally:
        lock.release()


def is_locked(path: Path) -> bool:
    """Whether a process works in the folder now; nothing is written."""
    try:
        handle = os.open(path / LOCK, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:  # never locked
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


# Reading


class NotRegular(OSError):
    """A pipe, device, socket or folder stands where a file was meant."""


def open_regular(path: Path) -> BufferedReader:
    """A regular file, open for reading; anything else raises `NotRegular`.

    A device never ends and a pipe waits for ever, so opening doesn't block and the type is checked first.
    """
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise NotRegular(errno.EINVAL, "it is no regular file", str(path))
    return os.fdopen(handle, "rb")


def read_regular(path: Path, most: int = MOST_BYTES) -> bytes:
    """The bytes of a regular file; a longer one raises `OSError`."""
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > most:
            raise OSError(
                errno.EFBIG,
                f"it has {size:,} bytes, at most {most:,} are read",
                str(path),
            )
        return file.read(most)


def files_below(folder: Path) -> list[str]:
    """The files below a folder, as relative paths with `/`."""
    return sorted(
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*")
        if path.is_file()
    )


# Hashes


def canonical_hash(record: Any) -> str:
    """Hash of a record of plain values, independent of key order."""
    return hashlib.sha256(to_json(record, sort_keys=True).encode()).hexdigest()


def sha256(path: Path) -> str:
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def known_sha256(paths: Sequence[Path], remembered: Path | None = None) -> list[str]:
    """Hashes of files, several at once; unchanged files aren't read again.

    `remembered` is the file in which hashes outlive the process; it is optional.
    """
    stamps = [_stamp(path) for path in paths]
    on_disk = _read_hashes(remembered) if remembered is not None else {}
    hashes = {
        str(path): entry[1]
        for path, stamp in zip(paths, stamps, strict=True)
        for entry in (_MEMORY.get(str(path)), on_disk.get(str(path)))
        if entry is not None and entry[0] == stamp
    }
    unknown = [path for path in paths if str(path) not in hashes]
    if unknown:
        with ThreadPoolExecutor(_THREADS) as threads:
            hashes |= zip(map(str, unknown), threads.map(sha256, unknown), strict=True)
    now = time.time_ns()
    settled = {
        str(path): (stamp, hashes[str(path)])
        for path, stamp in zip(paths, stamps, strict=True)
        if now - max(stamp[2:4]) > _JUST_WRITTEN
        and _stamp(path) == stamp  # not written to in the meantime
    }
    _MEMORY.update(settled)
    if remembered is not None and any(
        on_disk.get(name) != entry for name, entry in settled.items()
    ):
        every = {
            **{name: entry for name, entry in on_disk.items() if name not in settled},
            **settled,
        }
        newest = dict(list(every.items())[-_MOST_REMEMBERED:])
        # of two processes that write at once, one may leave a file that is ignored
        with contextlib.suppress(OSError):
            make_folder(remembered.parent)
            write_json(
                remembered,
                {"files": newest, "seal": canonical_hash(newest)},
                indent=None,
            )
    return [hashes[str(path)] for path in paths]


def _stamp(path: Path) -> Stamp:
    facts = path.stat()
    return [facts.st_size, facts.st_ino, facts.st_mtime_ns, facts.st_ctime_ns]


def _read_hashes(path: Path) -> dict[str, tuple[Stamp, str]]:
    """The remembered hashes; none, if the file isn't exactly what was written."""
    try:
        record = from_json(path.read_text(encoding="utf-8"))
        is_whole = record["seal"] == canonical_hash(record["files"])
        return (
            {name: tuple(entry) for name, entry in record["files"].items()}
            if is_whole
            else {}
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}
