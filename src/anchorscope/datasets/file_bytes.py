"""A file's bytes, unpacked on the way, and its lines, none of them longer than a row may be."""

import gzip
import shutil
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

from anchorscope.datasets.raw_rows import ROW_LIMIT, TOO_LONG, Row, Unusable
from anchorscope.errors import UserError

ALLOWED = "Allowed: JSON lines, a JSON list, CSV or TSV with a header line, in UTF-8, or Parquet, each also gzipped"
"""What a question file may be."""
BOM = b"\xef\xbb\xbf"
"""The mark that some editors put before UTF-8 text."""
_CHUNK = 1 << 20


def open_bytes(path: Path) -> BinaryIO:
    """The file's bytes, unpacked if they are gzipped, whatever its name."""
    with path.open("rb") as file:
        packed = file.read(2) == b"\x1f\x8b"
    return cast(BinaryIO, gzip.open(path, "rb")) if packed else path.open("rb")


@contextmanager
def unpacked(file: BinaryIO) -> Iterator[Path]:
    """The bytes as a file of their own on disk, for a reader that must jump about in them."""
    with tempfile.TemporaryDirectory(prefix="anchorscope-") as folder:
        path = Path(folder) / "unpacked"
        with path.open("wb") as copy:
            shutil.copyfileobj(file, copy, _CHUNK)
        yield path


class Lines:
    """The lines of a file with their numbers; going on after a line that is too long is possible."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.number = 0
        """Number of the last line that was given."""
        self.whole = True
        """Whether the last line ended with a line end."""

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        raw = self._file.readline(ROW_LIMIT)
        if not raw:
            raise StopIteration
        self.number += 1
        self.whole = raw.endswith(b"\n")
        if not self.whole and len(raw) == ROW_LIMIT:
            while (rest := self._file.readline(_CHUNK)) and not rest.endswith(b"\n"):
                pass
            self.whole = True
            raise Unusable(TOO_LONG)
        return raw.removeprefix(BOM) if self.number == 1 else raw


def guarded(path: Path, rows: Iterator[tuple[int, Row]]) -> Iterator[tuple[int, Row]]:
    """The rows; trouble with the file itself becomes one clear line."""
    try:
        yield from rows
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise UserError(f"{path} is a broken or cut-off gzip file ({error}). Fetch it again.") from None
    except OSError as error:
        raise cannot_read(path, error) from None


def cannot_read(path: Path, error: OSError) -> UserError:
    """The error for a file that does not let itself be read."""
    if isinstance(error, FileNotFoundError):
        return UserError(f"There is no file {path}. Give the path of a question file. {ALLOWED}.")
    if isinstance(error, IsADirectoryError):
        return UserError(f"{path} is a directory. Give the path of one question file in it. {ALLOWED}.")
    if isinstance(error, gzip.BadGzipFile):
        return UserError(f"{path} is a broken or cut-off gzip file ({error}). Fetch it again.")
    return UserError(f"Cannot read {path}: {error.strerror or error}. Check the path and its permissions.")
