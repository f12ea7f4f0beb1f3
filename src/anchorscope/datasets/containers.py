"""How rows are written into a file: JSON lines, a JSON list, CSV, TSV, Parquet, each also gzipped.

A container knows nothing of what columns mean; it is recognised from the file's first bytes, never from its name, or
refused with what was seen in it.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import BinaryIO, Protocol

from anchorscope.datasets import json_rows, table_rows
from anchorscope.datasets.file_bytes import ALLOWED, BOM, cannot_read, guarded, open_bytes
from anchorscope.datasets.raw_rows import Row, shown
from anchorscope.errors import UserError

_HEAD = 1 << 16
_LOOKED_AT = 10  # lines: the first ones may be broken
_DELIMITERS = {"TSV": "\t", "CSV": ","}
_MAGIC = {
    b"PK\x03\x04": "a ZIP archive or a spreadsheet", b"BZh": "a bzip2 archive", b"\x28\xb5\x2f\xfd": "a zstd archive",
    b"\xfd7zXZ": "an xz archive", b"%PDF": "a PDF", b"ARROW1": "an Arrow file", b"\x89PNG": "a picture",
    b"SQLite": "a database",
}  # fmt: skip


class _Reader(Protocol):
    def __call__(self, file: BinaryIO, path: Path) -> Iterator[tuple[int, Row]]: ...


@dataclass(frozen=True)
class Container:
    """How rows are written into a file."""

    name: str
    """As it is told to people."""
    place: str
    """What a row's number counts: "line", "entry" or "row"."""
    read: _Reader
    """Number and content of every row of an open file."""


_JSON_LINES = Container("JSON lines", "line", json_rows.line_rows)
_JSON_LIST = Container("JSON list", "entry", json_rows.list_rows)
_PARQUET = Container("Parquet", "row", table_rows.parquet_rows)


def recognise(path: Path, question_column: str) -> Container:
    """The container of a file; a table's header must have the column of the question."""
    try:
        with open_bytes(path) as file:
            head = file.read(_HEAD)
    except (EOFError, OSError) as error:
        if isinstance(error, OSError):
            raise cannot_read(path, error) from None
        raise UserError(f"{path} is a broken or cut-off gzip file ({error}). Fetch it again.") from None
    return _container(path, head, question_column)


def rows_of(path: Path, container: Container) -> Iterator[tuple[int, Row]]:
    """Number and content of every row of the file."""

    def opened() -> Iterator[tuple[int, Row]]:
        with open_bytes(path) as file:
            yield from container.read(file, path)

    return guarded(path, opened())


def _container(path: Path, head: bytes, question_column: str) -> Container:
    """The container that the first bytes tell of."""
    if head.startswith(table_rows.PARQUET_MAGIC):
        return _PARQUET
    kind = next((kind for magic, kind in _MAGIC.items() if head.startswith(magic)), None)
    if kind is not None:
        raise UserError(f"{path} is {kind}, no question file. {ALLOWED}; unpack or export it first.")
    if head[:2] in (b"\xff\xfe", b"\xfe\xff") or _every_second_is_nul(head[:40]):
        raise UserError(f"{path} is UTF-16 text. {ALLOWED}; save it as UTF-8.")
    head = head.removeprefix(BOM)
    lines = [line for line in head.splitlines() if line.strip()]
    if not lines:
        raise UserError(f"{path} is empty. {ALLOWED}; write at least one question into it.")
    if json_rows.LIST_START.match(head):
        return _JSON_LIST
    if lines[0].lstrip().startswith(b"{"):
        return _object_lines(path, lines)
    return _table(path, lines, question_column)


def _object_lines(path: Path, lines: list[bytes]) -> Container:
    """JSON lines, unless one object is spread over several lines."""
    if lines[0].strip() == b"{" and len(lines) > 1 and not any(line.lstrip().startswith(b"{") for line in lines[1:3]):
        raise UserError(
            f"{path} is one JSON object over several lines. {ALLOWED}; write one object per line, or a list."
        )
    return _JSON_LINES


def _table(path: Path, lines: list[bytes], question_column: str) -> Container:
    """CSV or TSV, by the header; or JSON lines whose first line is broken; or the refusal."""
    first = lines[0]
    headers = {name: _header(first, delimiter) for name, delimiter in _DELIMITERS.items()}
    wanted = question_column.lower()
    for name, columns in headers.items():
        if wanted in [column.lower() for column in columns]:
            if len({column.lower() for column in columns}) < len(columns):
                raise UserError(f"{path} has two columns of the same name; found: {shown(columns)}. Rename one.")
            return Container(name, "line", partial(table_rows.delimited_rows, delimiter=_DELIMITERS[name]))
    if wanted in [column.lower() for column in _header(first, ";")]:
        raise UserError(
            f"{path} is a table with semicolons between its columns. {ALLOWED}; save it with commas or tabs."
        )
    if any(_is_pair(line) for line in lines[:_LOOKED_AT]):
        read = partial(table_rows.delimited_rows, delimiter="\t", header=table_rows.WITHOUT_HEADER)
        return Container("TSV without a header", "line", read)
    if any(_is_object(line) for line in lines[:_LOOKED_AT]):
        return _JSON_LINES
    raise UserError(
        f"{path} has no known format; its first line is {shown(first)} (no column {question_column!r} in it, no JSON). "
        f"{ALLOWED}; columns of other names: --columns question=…,answers=…."
    )


def _header(line: bytes, delimiter: str) -> list[str]:
    return [cell.strip() for cell in table_rows.cells_of(line, delimiter)]


def _every_second_is_nul(head: bytes) -> bool:
    """Whether the bytes are Latin letters of 16 bits each."""
    pairs = len(head) // 2
    return any(head[first::2].count(0) > 0.8 * pairs > 4 * head[1 - first :: 2].count(0) for first in (0, 1))


def _is_pair(line: bytes) -> bool:
    """Whether a line is a question and a list, as DPR writes them."""
    cells = table_rows.cells_of(line, "\t")
    return len(cells) == len(table_rows.WITHOUT_HEADER) and cells[1].startswith("[") and cells[1].endswith("]")


def _is_object(line: bytes) -> bool:
    """Whether a line is a JSON object."""
    try:
        return line.lstrip().startswith(b"{") and isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False
