"""Rows of a Parquet file, read by a process of its own with a limit of memory (`parquet_child.py`)."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO

from anchorscope.datasets import parquet_child
from anchorscope.datasets.json_rows import parsed
from anchorscope.datasets.limits import ALLOW_LARGE, COLUMNS, PARQUET_SECONDS
from anchorscope.datasets.lines import Lines
from anchorscope.datasets.question_file import QuestionFile
from anchorscope.datasets.raw_rows import Row, Unusable
from anchorscope.errors import UserError

PARQUET_MAGIC = b"PAR1"
"""How a Parquet file begins and ends."""
_TELL_EVERY = 1000
_SMALLEST = 12  # bytes: the magic twice and the size of the footer


def parquet_rows(file: QuestionFile) -> Iterator[tuple[int, Row]]:
    """Number and content of every row."""
    with ExitStack() as held:
        handle = file.handle.fileno()
        if file.is_packed:  # Parquet is read from its end, so a gzipped one must be unpacked first
            handle = held.enter_context(_unpacked(file)).fileno()
        size = os.fstat(handle).st_size
        if size < _SMALLEST or os.pread(handle, len(PARQUET_MAGIC), size - len(PARQUET_MAGIC)) != PARQUET_MAGIC:
            raise UserError(
                f"{file.name} begins like a Parquet file but does not end like one: cut off. Fetch it again."
            )
        child = held.enter_context(_child(file, handle))
        held.callback(child.kill)
        yield from _rows(file, child)


def _rows(file: QuestionFile, child: subprocess.Popen[bytes]) -> Iterator[tuple[int, Row]]:
    """What the process writes, as rows."""
    assert child.stdout is not None
    lines = Lines(file.stream_of(child.stdout), file.name)
    first = next(lines, b"")
    total = int(first) if first.strip().isdigit() else 0
    last = b"" if total else first
    while not last.startswith((b"!", b".")):
        number = lines.number
        try:
            last = next(lines)
            if last.startswith(b"{"):
                yield number, parsed(last)
        except StopIteration:
            raise _died(file, child.wait(), max(number - 1, 0)) from None
        except Unusable as bad:
            yield number, bad
        if number % _TELL_EVERY == 0:
            file.tell(file.size * number // max(total, number))
    if last.startswith(b"!"):
        told = last[1:].decode(errors="replace").strip()
        after = max(lines.number - 2, 0)
        raise UserError(f"{file.name} is a broken Parquet file, after row {after} ({told[:120]}). Fetch it again.")


def _died(file: QuestionFile, code: int, number: int) -> UserError:
    """The error for a file that the process did not get through."""
    if sys.platform != "win32" and code == -signal.SIGPROF:
        return UserError(
            f"{file.name}, after row {number}: no row in {PARQUET_SECONDS} s of computing. Save it anew with small row "
            f"groups, or as JSON lines."
        )
    return UserError(
        f"{file.name}, after row {number}: reading it takes more than {file.limits.memory // 10**6} MB, or it is a "
        f"broken Parquet file. Save it anew with small row groups, or as JSON lines. {ALLOW_LARGE}."
    )


def _child(file: QuestionFile, handle: int) -> subprocess.Popen[bytes]:
    """The process that reads; it sees the file only through the handle that was checked."""
    environment = {
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        "POLARS_MAX_THREADS": "1",
        "RUST_BACKTRACE": "0",
        "MALLOC_ARENA_MAX": "1",  # else every thread sets 64 MB apart, which count as taken
    }
    script = str(Path(parquet_child.__file__))
    options = [f"/dev/fd/{handle}", *map(str, (file.limits.memory, COLUMNS, PARQUET_SECONDS))]
    try:
        return subprocess.Popen(
            [sys.executable, "-P", script, *options],  # -P: names of modules here are not those of the library
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            pass_fds=(handle,),
            env={**os.environ, **environment},
        )
    except OSError as error:
        raise UserError(
            f"Cannot start a process to read {file.name}: {error.strerror or error}. Save it as JSON lines, or end "
            f"other programs."
        ) from None


def _unpacked(file: QuestionFile) -> BinaryIO:
    """The unpacked bytes in a file without a name, which is gone when it is closed, whatever happens."""
    try:
        copy = tempfile.TemporaryFile(prefix="anchorscope-", buffering=0)  # noqa: SIM115 - the caller closes it
    except OSError as error:
        raise _no_room(file, error) from None
    try:
        source = file.stream()
        while chunk := source.read(1 << 20):
            file.good_row()  # one file is one row here; its size has a limit
            try:
                view = memoryview(chunk)
                while view:
                    view = view[copy.write(view) :]
            except OSError as error:
                raise _no_room(file, error) from None
    except BaseException:
        copy.close()
        raise
    return copy


def _no_room(file: QuestionFile, error: OSError) -> UserError:
    """The error for a disk that cannot take the unpacked file."""
    folder = tempfile.gettempdir()
    free = shutil.disk_usage(folder).free // 10**6
    return UserError(
        f"{file.name} has to be unpacked to be read, and {folder} does not take it ({error.strerror or error}; "
        f"{free:,} MB free). Name a folder with room, TMPDIR=FOLDER, or unpack it yourself: gunzip."
    )
