"""How rows are written into a file: JSON lines, a JSON list, CSV, TSV, Parquet, each also gzipped; a log of inspect_ai.

A container knows nothing of what columns mean; it is recognised from the file's first bytes, never from its name, or
refused with what was seen in it.
"""

import json
import re
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from anchorscope.datasets import inspect_log, json_rows, table_rows
from anchorscope.datasets.limits import COLUMNS
from anchorscope.datasets.lines import BOM
from anchorscope.datasets.parquet_rows import PARQUET_MAGIC, parquet_rows
from anchorscope.datasets.question_file import ALLOWED, GZIP_MAGIC, QuestionFile
from anchorscope.datasets.raw_rows import Row, shown
from anchorscope.errors import UserError

_HEAD = 1 << 16
_LOOKED_AT = 10  # lines: the first ones may be broken
_DELIMITERS = {"TSV": "\t", "CSV": ","}
_LOG_IN_JSON = re.compile(rb'\s*"version":\s*\d+,\s*"status":')
_WIDE_MARKS = (b"\xff\xfe", b"\xfe\xff", b"\0\0\xfe\xff")
_MAGIC = {
    b"PK\x03\x04": "a ZIP archive or a spreadsheet",
    b"BZh": "a bzip2 archive",
    b"\x28\xb5\x2f\xfd": "a zstd archive",
    b"\xfd7zXZ": "an xz archive",
    b"%PDF": "a PDF",
    b"ARROW1": "an Arrow file",
    b"\x89PNG": "a picture",
    b"SQLite": "a database",
    GZIP_MAGIC: "gzipped twice",
}


class _Reader(Protocol):
    def __call__(self, file: QuestionFile) -> Iterator[tuple[int, Row]]: ...


@dataclass(frozen=True)
class Container:
    """How rows are written into a file."""

    name: str
    """As it is told to people."""
    place: str
    """What a row's number counts: "line", "entry", "row" or "sample"."""
    read: _Reader
    """Number and content of every row of an open file."""


_JSON_LINES = Container("JSON lines", "line", json_rows.line_rows)
_JSON_LIST = Container("JSON list", "entry", json_rows.list_rows)
_PARQUET = Container("Parquet", "row", parquet_rows)
_INSPECT_LOG = Container("inspect log", "sample", inspect_log.log_rows)


def recognise(file: QuestionFile, question_column: str) -> Container:
    """The container of a file; a table's header must have the column of the question."""
    with file.told():
        head = file.stream().read(_HEAD)
        container = _container(file.name, head, question_column)
        # Old Macs ended lines with CR alone. JSON has it as white space, and a cell's text is white space too.
        file.has_old_line_ends = container not in (_PARQUET, _INSPECT_LOG) and b"\r" in head and b"\n" not in head
        return container


def rows_of(file: QuestionFile, container: Container) -> Generator[tuple[int, Row]]:
    """Number and content of every row of the file, which is closed after the last."""
    try:
        with file.told():
            yield from container.read(file)
            file.check_unchanged()
    finally:
        file.close()


def _container(name: str, head: bytes, question_column: str) -> Container:
    """The container that the first bytes tell of."""
    if head.startswith(PARQUET_MAGIC):
        return _PARQUET
    if inspect_log.is_log(head):
        return _INSPECT_LOG
    kind = next((kind for magic, kind in _MAGIC.items() if head.startswith(magic)), None)
    if kind is not None:
        raise UserError(f"{name} is {kind}, no question file. {ALLOWED}; unpack or export it first.")
    if head.startswith(_WIDE_MARKS) or _every_second_is_nul(head[:40]):
        raise UserError(f"{name} is UTF-16 or UTF-32 text. {ALLOWED}; save it as UTF-8.")
    head = head.removeprefix(BOM)
    lines = [line for line in head.splitlines() if line.strip()]
    if not lines:
        raise UserError(f"{name} is empty. {ALLOWED}; write at least one question into it.")
    if json_rows.LIST_START.match(head):
        return _JSON_LIST
    if lines[0].lstrip().startswith(b"{"):
        return _object_lines(name, lines)
    return _table(name, lines, question_column)


def _object_lines(name: str, lines: list[bytes]) -> Container:
    """JSON lines, unless one object is spread over several lines."""
    if lines[0].strip() == b"{" and _LOG_IN_JSON.match(b"".join(lines[1:3])):
        raise UserError(
            f"{name} is a log of inspect_ai in JSON. Only .eval is read; write it so: inspect log convert --to eval "
            f"--output-dir FOLDER {name}"
        )
    if lines[0].strip() == b"{" and len(lines) > 1 and not any(line.lstrip().startswith(b"{") for line in lines[1:3]):
        raise UserError(
            f"{name} is one JSON object over several lines. {ALLOWED}; write one object per line, or a list."
        )
    return _JSON_LINES


def _table(name: str, lines: list[bytes], question_column: str) -> Container:
    """CSV or TSV, by the header; or JSON lines whose first line is broken; or the refusal."""
    first = lines[0]
    headers = {kind: _header(first, delimiter) for kind, delimiter in _DELIMITERS.items()}
    wanted = question_column.lower()
    for kind, columns in headers.items():
        if len(columns) > COLUMNS:
            raise UserError(f"{name} has {len(columns):,} cells in its first line; at most {COLUMNS:,} are read.")
        if wanted in [column.lower() for column in columns]:
            if len({column.lower() for column in columns}) < len(columns):
                raise UserError(f"{name} has two columns of the same name; found: {shown(columns)}. Rename one.")
            return Container(kind, "line", partial(table_rows.delimited_rows, delimiter=_DELIMITERS[kind]))
    if wanted in [column.lower() for column in _header(first, ";")]:
        raise UserError(
            f"{name} is a table with semicolons between its columns. {ALLOWED}; save it with commas or tabs."
        )
    if any(_is_pair(line) for line in lines[:_LOOKED_AT]):
        read = partial(table_rows.delimited_rows, delimiter="\t", header=table_rows.WITHOUT_HEADER)
        return Container("TSV without a header", "line", read)
    if any(_is_object(line) for line in lines[:_LOOKED_AT]):
        return _JSON_LINES
    raise UserError(
        f"{name} has no known format; its first line is {shown(first)} (no column {question_column!r} in it, no JSON). "
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
