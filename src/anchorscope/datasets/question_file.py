"""One question file, opened once: recognised, hashed and read through the same handle.

So nobody can swap it between these, and a file that is being written is noticed. Only regular files are read: a pipe
gives its bytes once and may never end, a device has no end. The bytes come unpacked; what goes beyond the limits, or
brings no usable row for long, ends the reading with one line.
"""

import gzip
import hashlib
import io
import os
import stat
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, BinaryIO, cast

from anchorscope.datasets.limits import ALLOW_LARGE, BYTES_TOGETHER, GIGABYTE, USUAL, FileLimits
from anchorscope.errors import UserError
from anchorscope.progress import Progress, Silent

LOGS = "a log of inspect_ai (.eval), or the samples that lm-evaluation-harness logs (.jsonl)"
"""What other programs have written and is read as it is."""
ALLOWED = (
    f"Allowed: JSON lines, a JSON list, CSV or TSV with a header line, in UTF-8, or Parquet, each also gzipped; {LOGS}"
)
"""What a question file may be."""
GZIP_MAGIC = b"\x1f\x8b"
"""How a gzipped file begins."""
_CHUNK = 1 << 18
_PACKED_CHUNK = 1 << 16
_MOMENT = 1.0  # seconds: what is read in less needs no bar
_KINDS = (
    (stat.S_ISDIR, "a directory", "Give the path of one question file in it"),
    (stat.S_ISFIFO, "a pipe, which can be read only once", "Save what comes out of it to a file first"),
    (stat.S_ISSOCK, "a socket", "Give the path of a question file"),
    (lambda mode: not stat.S_ISREG(mode), "a device", "Give the path of a question file"),
)


class QuestionFile:
    """A regular file that is open for reading."""

    def __init__(self, path: Path, limits: FileLimits = USUAL, progress: Progress | None = None) -> None:
        self.path, self.limits = path, limits
        self.name = shown_path(path)
        """As it is told to people."""
        self._progress, self._opened, self._told = progress or Silent(), time.monotonic(), -1
        self.handle = _opened(path)
        """The bytes as they lie on disk."""
        self._state = self._state_now()
        self.size = os.fstat(self.handle.fileno()).st_size
        self.is_packed = self._begins() == GZIP_MAGIC
        self.has_old_line_ends = False
        """Whether lines end as on old Macs, with CR alone; they are given with LF then."""
        self.unpacked = 0
        """Bytes that were given so far."""
        self._good_until = 0

    def _begins(self) -> bytes:
        with self.told():
            return os.pread(self.handle.fileno(), len(GZIP_MAGIC), 0)

    def _state_now(self) -> tuple[int, ...]:
        now = os.fstat(self.handle.fileno())
        return now.st_size, now.st_mtime_ns

    def stream(self) -> BinaryIO:
        """The unpacked bytes from the beginning; an earlier stream cannot be used any more."""
        self.handle.seek(0)
        self.unpacked = self._good_until = 0
        raw = _Unpacked(self) if self.is_packed else _Plain(self, self.handle)
        return cast(BinaryIO, io.BufferedReader(raw, _CHUNK))

    def stream_of(self, pipe: IO[bytes]) -> BinaryIO:
        """What another process makes of the file, counted like its own bytes."""
        self.unpacked = self._good_until = 0
        return cast(BinaryIO, io.BufferedReader(_Plain(self, pipe), _CHUNK))

    def sha256(self) -> str:
        """Hash of the bytes on disk."""
        digest = hashlib.sha256()
        with self.told():
            self.handle.seek(0)
            while chunk := self.handle.read(1 << 20):
                digest.update(chunk)
                self.tell(self.handle.tell(), "hash")
        self._end_telling()
        return digest.hexdigest()

    def good_row(self) -> None:
        """What was read last could be used."""
        self._good_until = self.unpacked

    def count(self, view: memoryview, position: int) -> int:
        """So many bytes were given; the file was read up to this position for them."""
        self.unpacked += len(view)
        if self.unpacked > self.limits.unpacked:
            most = self.limits.unpacked // GIGABYTE
            raise UserError(f"{self.name} has more than {most} GB, unpacked. {ALLOW_LARGE}.")
        if self.unpacked - self._good_until > BYTES_TOGETHER:
            raise UserError(
                f"{self.name} has no usable row in {BYTES_TOGETHER // 10**6} MB of it, unpacked, up to byte "
                f"{self.unpacked:,}. Look at it with a text editor; line ends or quotes may be missing."
            )
        if self.has_old_line_ends:
            view[:] = bytes(view).replace(b"\r", b"\n")
        self.tell(position)
        return len(view)

    def tell(self, position: int, doing: str = "read") -> None:
        """How far the file was read; told when it takes more than a moment."""
        if self._told < 0 and time.monotonic() - self._opened < _MOMENT:
            return
        unit, name = (1_000_000, "MB") if self.size > 10_000_000 else (1_000, "kB")
        if self._told < 0:
            self._progress.start(f"{doing} {self.path.name} ({name})", -(-self.size // unit))
            self._told = 0
        if (now := position // unit) > self._told:
            self._progress.advance(now - self._told)
            self._told = now

    @contextmanager
    def told(self) -> Iterator[None]:
        """Trouble with the file itself becomes one clear line, and first of all that it was changed meanwhile."""
        try:
            yield
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            self.check_unchanged()
            raise UserError(f"{self.name} is a broken or cut-off gzip file ({error}). Fetch it again.") from None
        except UserError:
            self.check_unchanged()
            raise
        except OSError as error:
            raise cannot_read(self.path, error) from None

    def check_unchanged(self) -> None:
        """Refuses a file that was changed since it was opened."""
        if self._state_now() != self._state:
            raise UserError(f"{self.name} was changed while it was read. Wait until it is whole, then try again.")

    def close(self) -> None:
        """Lets go of the file."""
        self._end_telling()
        self.handle.close()

    def _end_telling(self) -> None:
        if self._told >= 0:
            self._progress.finish()
        self._told, self._opened = -1, time.monotonic()


def hash_of(path: Path, progress: Progress | None = None) -> str:
    """The sha256 of a question file."""
    file = QuestionFile(path, progress=progress)
    try:
        return file.sha256()
    finally:
        file.close()


class _Plain(io.RawIOBase):
    """The bytes as they are."""

    def __init__(self, file: QuestionFile, handle: IO[bytes] | io.FileIO) -> None:
        self._file, self._handle = file, handle

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        view = memoryview(buffer)
        n_bytes = os.readv(self._handle.fileno(), [view])
        position = self._file.unpacked + n_bytes if self._handle is self._file.handle else 0
        return self._file.count(view[:n_bytes], position)


class _Unpacked(io.RawIOBase):
    """The bytes of one gzip member after the other. (The library's own reader looks for a file's name byte by byte.)"""

    def __init__(self, file: QuestionFile) -> None:
        self._file, self._inflate, self._packed, self._fed = file, zlib.decompressobj(wbits=31), b"", 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        view = memoryview(buffer)
        while not self._inflate.eof or self._begin_member():
            at_end = not self._packed and not self._read()
            found = self._inflate.decompress(self._packed, len(view))
            self._packed = self._inflate.unconsumed_tail or self._inflate.unused_data
            if found:
                view[: len(found)] = found
                return self._file.count(view[: len(found)], self._fed - len(self._packed))
            if at_end:
                raise EOFError("it ends in the middle")
        return 0

    def _begin_member(self) -> bool:
        """Whether another member follows; zeros may fill the space up to it, or to the end."""
        while not self._packed.strip(b"\0"):
            if not self._read():
                return False
        self._packed = self._packed.lstrip(b"\0")
        self._inflate = zlib.decompressobj(wbits=31)
        return True

    def _read(self) -> bool:
        """Reads on; False at the end of the file."""
        self._packed = self._file.handle.read(_PACKED_CHUNK) or b""
        self._fed += len(self._packed)
        return bool(self._packed)


def _opened(path: Path) -> io.FileIO:
    """The file, open; what is no regular file is refused before it is opened, since opening can hang or do things."""
    try:
        _refuse_other_kinds(path, os.stat(path).st_mode)
        handle = open(path, "rb", buffering=0, opener=_without_waiting)  # noqa: SIM115 - the caller closes it
    except (OSError, ValueError) as error:  # ValueError: NUL in the name
        raise cannot_read(path, error) from None
    try:
        _refuse_other_kinds(path, os.fstat(handle.fileno()).st_mode)  # swapped meanwhile
    except UserError:
        handle.close()
        raise
    return handle


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0))


def _refuse_other_kinds(path: Path, mode: int) -> None:
    for is_kind, kind, then in _KINDS:
        if is_kind(mode):
            raise UserError(f"{shown_path(path)} is {kind}. {then}. {ALLOWED}.")


def cannot_read(path: Path, error: OSError | ValueError) -> UserError:
    """The error for a file that does not let itself be read."""
    name = shown_path(path)
    if isinstance(error, FileNotFoundError):
        if path.is_symlink():
            return UserError(f"{name} is a link to {shown_path(path.readlink())}, which is not there. Mend the link.")
        return UserError(f"There is no file {name}. Give the path of a question file. {ALLOWED}.")
    reason = getattr(error, "strerror", None) or error
    return UserError(f"Cannot read {name}: {reason}. Check the path and its permissions.")


def shown_path(path: Path) -> str:
    """A path as it appears in a one-line message: nothing in it breaks the line or steers the terminal."""
    text = str(path) if str(path).isprintable() else repr(str(path))
    return text if len(text) <= 1000 else f"{text[:400]}…{text[-400:]}"
