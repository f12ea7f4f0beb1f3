"""The user's own question file: JSON lines, CSV or TSV with a header, each also gzipped; told apart by their content.

Columns: `question`, and `answers` (a list, or one string with "|" between the answers, or a JSON list in a CSV cell) or
`answer`; optional `id` (else the row's number), `subject`, `relation`, `property_words` (written like `answers`),
`model_answer`, `truthful` (true/false, yes/no, 1/0; only beside a `model_answer`). Any other single value is metadata.

The file is read line by line. A row that cannot be used is never passed over in silence: it ends the reading with its
line and reason, or, with on_bad_row="skip", is listed in the result.
"""

import csv
import gzip
import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

from anchorscope.datasets._table_row import Unusable, question_from_row, shown
from anchorscope.datasets.question import Question
from anchorscope.errors import UserError, unknown

ON_BAD_ROW = ("fail", "skip")
_DELIMITERS = {"tsv": "\t", "csv": ","}
_ALLOWED = "Allowed: JSON lines, or CSV or TSV with a header line, in UTF-8, also gzipped"
_BOM = b"\xef\xbb\xbf"
_HEAD = 1 << 16


@dataclass(frozen=True)
class BadRow:
    """A row that could not be used."""

    line: int
    """Its first line in the file, from 1."""
    reason: str
    """What is wrong with it."""


@dataclass(frozen=True)
class Table:
    """A question file, read."""

    questions: list[Question]
    """The usable rows, in the order of the file; empty if every row was bad and bad rows are skipped."""
    format: str
    """One of "jsonl", "csv" and "tsv"."""
    rows: int
    """All rows, the bad ones included; blank lines and the header not."""
    bad_rows: list[BadRow]
    """The rows that were skipped."""


Row = dict[str, object] | Unusable


def _json_row(raw: bytes) -> dict[str, object]:
    """One line of JSON."""
    try:
        value = json.loads(raw.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise Unusable(f"not UTF-8: byte 0x{raw[error.start]:02x} at column {error.start + 1}") from None
    except json.JSONDecodeError as error:
        raise Unusable(f"broken JSON ({error.msg}, column {error.colno}): {shown(raw)}") from None
    except (ValueError, RecursionError):  # a number of thousands of digits, or lists in lists in lists
        raise Unusable(f"too large a JSON value: {shown(raw)}") from None
    if not isinstance(value, dict):
        raise Unusable(f"not a JSON object: {shown(raw)}")
    return value


def _lines(file: BinaryIO) -> Iterator[bytes]:
    """The lines of a file, less the mark that some editors put before the first."""
    for number, raw in enumerate(file):
        yield raw if number else raw.removeprefix(_BOM)


def _json_rows(file: BinaryIO) -> Iterator[tuple[int, Row]]:
    """Line number and content of every JSON line."""
    for line, raw in enumerate(_lines(file), start=1):
        if raw.strip():
            try:
                yield line, _json_row(raw.strip())
            except Unusable as bad:
                yield line, bad


def _csv_rows(file: BinaryIO, delimiter: str) -> Iterator[tuple[int, Row]]:
    """First line number and content of every row below the header."""
    # Bytes that are not UTF-8 become surrogates here and are refused in the one cell that holds them.
    lines = (raw.decode("utf-8", "surrogateescape") for raw in _lines(file))
    reader = csv.reader(lines, delimiter=delimiter, strict=True)
    header: list[str] = []
    while True:
        first = reader.line_num + 1
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            yield first, Unusable(f"broken row, lines {first} to {reader.line_num} ({error}); look for a stray quote")
            continue
        if not any(cell.strip() for cell in cells):
            continue
        if not header:
            header = [cell.strip() for cell in cells]
        elif len(cells) != len(header):
            yield first, Unusable(f"{len(cells)} cells, but the header has {len(header)}")
        else:
            yield first, {name: cell if cell.strip() else None for name, cell in zip(header, cells, strict=True)}


def _open(path: Path) -> BinaryIO:
    """The file's bytes, unpacked if they are gzipped, whatever its name."""
    with path.open("rb") as file:
        packed = file.read(2) == b"\x1f\x8b"
    return cast(BinaryIO, gzip.open(path, "rb")) if packed else path.open("rb")


def _header(line: bytes, delimiter: str) -> list[str]:
    """The names in a header line; none if it cannot be read as one."""
    try:
        cells = next(csv.reader([line.decode("utf-8", "replace")], delimiter=delimiter, strict=True))
    except csv.Error:
        return []
    return [cell.strip() for cell in cells]


def _format(path: Path, head: bytes) -> str:
    """One of "jsonl", "csv" and "tsv", by the first line that is not blank, then by the name."""
    if head[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise UserError(f"{path} is UTF-16 text. {_ALLOWED}; save it as UTF-8.")
    lines = [line for line in head.removeprefix(_BOM).split(b"\n") if line.strip()]
    if not lines:
        raise UserError(f"{path} is empty. {_ALLOWED}; write at least one question into it.")
    start = lines[0].lstrip()[:1]
    if start == b"{":
        return "jsonl"
    for name, delimiter in _DELIMITERS.items():
        columns = [cell.lower() for cell in _header(lines[0], delimiter)]
        if "question" in columns and len(columns) > 1:
            if not {"answers", "answer"} & set(columns):
                raise UserError(f"{path} has no column 'answers' or 'answer'; found: {shown(columns)}. Add one.")
            if len(set(columns)) < len(columns):
                raise UserError(f"{path} has two columns of the same name; found: {shown(columns)}. Rename one.")
            return name
    if {".jsonl", ".ndjson"} & set(path.suffixes):
        return "jsonl"
    hint = "write one JSON object per line" if start == b"[" else "no column 'question' in it"
    raise UserError(f"{path} has no known format; its first line is {shown(lines[0])} ({hint}). {_ALLOWED}.")


def _read(path: Path, dataset: str, skip: bool) -> Table:
    """The table, or the first bad row as an error."""
    with _open(path) as file:
        kind = _format(path, file.read(_HEAD))
    questions: list[Question] = []
    bad_rows: list[BadRow] = []
    lines: dict[str, int] = {}  # where each id was first seen
    rows = 0
    with _open(path) as file:
        found = _json_rows(file) if kind == "jsonl" else _csv_rows(file, _DELIMITERS[kind])
        for line, row in found:
            rows += 1
            try:
                if isinstance(row, Unusable):
                    raise row
                question = question_from_row(row, dataset, rows)
                if question.item_id in lines:
                    raise Unusable(f"id {shown(question.item_id)} is already that of line {lines[question.item_id]}")
            except Unusable as bad:
                if not skip:
                    raise UserError(
                        f"{path}, line {line}: {bad}. Mend the row, or leave such rows out with --on-bad-row skip."
                    ) from None
                bad_rows.append(BadRow(line, str(bad)))
                continue
            lines[question.item_id] = line
            questions.append(question)
    if not rows:
        raise UserError(f"{path} has a header but no rows. Write at least one question below it.")
    return Table(questions, kind, rows, bad_rows)


def read_table(path: Path, dataset: str, on_bad_row: str = "fail") -> Table:
    """Reads a question file; every question carries the name `dataset`."""
    if on_bad_row not in ON_BAD_ROW:
        raise unknown("value of --on-bad-row", on_bad_row, ON_BAD_ROW)
    try:
        return _read(path, dataset, on_bad_row == "skip")
    except FileNotFoundError:
        raise UserError(f"There is no file {path}. Give the path of a question file. {_ALLOWED}.") from None
    except IsADirectoryError:
        raise UserError(f"{path} is a directory. Give the path of one question file in it. {_ALLOWED}.") from None
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise UserError(f"{path} is a broken gzip file ({error}). Fetch it again, or unpack it first.") from None
    except OSError as error:
        raise UserError(f"Cannot read {path}: {error.strerror or error}. Check the path and its permissions.") from None
