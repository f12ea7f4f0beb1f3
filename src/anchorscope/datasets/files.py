"""Question files: opened, recognised and read row by row.

The format is recognised from the first bytes, never from the name. Only regular files are read: a pipe may never end.
"""

import csv
import gzip
import hashlib
import io
import json
import re
import zipfile
import zlib
from codecs import getincrementaldecoder
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO, cast

from anchorscope.datasets.formats import inspect_columns
from anchorscope.datasets.question import EmptyRow, Row, Unusable
from anchorscope.errors import UserError, shorten, shortened
from anchorscope.files import NotRegular, open_regular

MOST_BYTES = 2 * 10**9
"""Limit in unpacked bytes, without `--large-files`."""
MOST_LINE_BYTES = 10**8
"""Limit of one line: parsing it takes several times its size."""
LOGS = "a log of inspect_ai (.eval), or the samples that lm-evaluation-harness logs (.jsonl)"
ALLOWED = (
    "Allowed: JSON lines, a JSON list, CSV or TSV with a header line, in UTF-8, or Parquet, "
    f"each also gzipped; {LOGS}"
)
_CELL_LETTERS = 1_000_000  # of a CSV or TSV file: a quote that is never closed loses no more rows than that


class QuestionFile:
    def __init__(self, path: Path, large: bool = False) -> None:
        self.path, self.name = path, shown_path(path)
        self.most = 10**15 if large else MOST_BYTES
        self.most_in_line = self.most if large else MOST_LINE_BYTES
        self._handle = _open_file(path)

    def stream(self) -> BinaryIO:
        """The unpacked bytes from the beginning; invalidates earlier streams."""
        self._handle.seek(0)
        plain = io.BufferedReader(io.FileIO(self._handle.fileno(), closefd=False))
        return (
            cast(BinaryIO, gzip.GzipFile(fileobj=plain))
            if plain.peek(2)[:2] == b"\x1f\x8b"
            else plain
        )

    def whole(self) -> bytes:
        """All unpacked bytes, for formats that can't be read in parts."""
        stream, chunks, size = self.stream(), list[bytes](), 0
        while chunk := stream.read(1 << 20):
            chunks.append(chunk)
            size += len(chunk)
            self.check_size(size)
        return b"".join(chunks)

    def check_size(self, size: int) -> None:
        if size > self.most:
            raise UserError(
                f"{self.name} has more than {self.most / 10**9:g} GB, unpacked. If the file is what you mean, allow it "
                f"with --large-files."
            )

    def sha256(self) -> str:
        with self.one_line_errors():
            self._handle.seek(0)
            return hashlib.file_digest(self._handle, "sha256").hexdigest()

    @contextmanager
    def one_line_errors(self) -> Iterator[None]:
        """Reports trouble with the file in one line."""
        try:
            yield
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise UserError(
                f"{self.name} is a broken or cut-off gzip file ({error}). Fetch it again."
            ) from None
        except OSError as error:
            raise _read_error(self.path, error) from None

    def close(self) -> None:
        self._handle.close()


def hash_of(path: Path) -> str:
    file = QuestionFile(path)
    try:
        return file.sha256()
    finally:
        file.close()


def _open_file(path: Path) -> io.BufferedReader:
    try:
        return open_regular(path)
    except NotRegular:
        kind = (
            "a directory"
            if path.is_dir()
            else "a pipe or a device, which can be read only once"
        )
        raise UserError(
            f"{shown_path(path)} is {kind}. Give the path of a question file. {ALLOWED}."
        ) from None
    except (OSError, ValueError) as error:  # ValueError: NUL in the name
        raise _read_error(path, error) from None


def _read_error(path: Path, error: OSError | ValueError) -> UserError:
    name = shown_path(path)
    if isinstance(error, FileNotFoundError):
        return UserError(
            f"There is no file {name}. Give the path of a question file. {ALLOWED}."
        )
    reason = getattr(error, "strerror", None) or error
    return UserError(
        f"Cannot read {name}: {reason}. Check the path and its permissions."
    )


def shown_path(path: Path) -> str:
    """A path for a one-line message: no control characters, not too long."""
    return shorten(str(path) if str(path).isprintable() else repr(str(path)), 1000)


@dataclass(frozen=True)
class RowSource:
    """The rows of a dataset, each with its number."""

    name: str
    container: str
    unit: str
    """What a row is called: a line, an entry …"""
    rows: Generator[tuple[int, Row]]

    @property
    def is_log(self) -> bool:
        return self.container == "inspect log"


Container = tuple[str, str, Callable[[QuestionFile], Iterator[tuple[int, Row]]]]
"""Name, what a row is called, and what reads the rows of an open file."""
_BOM = b"\xef\xbb\xbf"
_LOG_ENTRIES = (
    b"_journal/",
    b"samples/",
    b"header.json",
    b"summaries.json",
    b"reductions.json",
)
_BESIDES = rb'(?:\s*"(?:Domain|VerifiedEval|Version)"\s*:[^,\[{]*,)*'  # TriviaQA's list is `Data` of an object
_LIST_HEAD = rb"\s*(?:\{" + _BESIDES + rb'\s*"Data"\s*:\s*)?\['
_LIST_START = re.compile(_LIST_HEAD + rb"\s*(?:[\[{\]]|\Z)")
_SPACES = re.compile(r"[ \t\r\n]*")
_ENDS = tuple(" \t\r\n,]")
_DELIMITERS = {"TSV": "\t", "CSV": ",", "CSV with semicolons": ";"}
_HEAD, _FIRST_LINES = (
    1 << 16,
    10,
)  # bytes, and lines, that show the format: the first ones may be broken


def open_rows(file: QuestionFile, question_column: str) -> RowSource:
    """The rows of a file, which is closed after the last; a table's header must have the column of the question."""
    container, unit, read = _recognise_container(file, question_column)

    def rows() -> Generator[tuple[int, Row]]:
        try:
            with file.one_line_errors():
                yield from read(file)
        finally:
            file.close()

    return RowSource(file.name, container, unit, rows())


def _recognise_container(file: QuestionFile, question_column: str) -> Container:
    name = file.name
    with file.one_line_errors():
        head = file.stream().read(_HEAD)
    if head.startswith(b"PAR1"):
        return ("Parquet", "row", _parquet_rows)
    if head.startswith(b"PK\x03\x04"):
        if head[30:].startswith(_LOG_ENTRIES):
            return ("inspect log", "sample", _log_rows)
        raise UserError(
            f"{name} is a ZIP archive or a spreadsheet. {ALLOWED}; unpack or export it first."
        )
    if head.startswith((b"\xff\xfe", b"\xfe\xff")) or b"\0" in head[:40]:
        raise UserError(
            f"{name} is UTF-16 or UTF-32 text, or no text at all. {ALLOWED}; save it as UTF-8."
        )
    head = head.removeprefix(_BOM)
    lines = [line for line in head.splitlines() if line.strip()]
    if not lines:
        raise UserError(
            f"{name} is empty. {ALLOWED}; write at least one question into it."
        )
    if _LIST_START.match(head):
        return ("JSON list", "entry", _list_rows)
    if lines[0].lstrip().startswith(b"{"):
        return ("JSON lines", "line", _line_rows)
    return _table(name, lines, question_column)


def _table(name: str, lines: list[bytes], question_column: str) -> Container:
    """CSV or TSV, by the header; or JSON lines whose first line is broken; else refused."""
    first, wanted = lines[0], question_column.lower()
    for kind, delimiter in _DELIMITERS.items():
        columns = [cell.strip() for cell in _split_cells(first, delimiter)]
        if wanted in [column.lower() for column in columns]:
            if len({column.lower() for column in columns}) < len(columns):
                raise UserError(
                    f"{name} has two columns of the same name; found: {shortened(columns)}. Rename one."
                )
            return (kind, "line", partial(_delimited_rows, delimiter=delimiter))
    pairs = [_split_cells(line, "\t") for line in lines[:_FIRST_LINES]]
    if any(
        len(pair) == 2 and pair[1].startswith("[") and pair[1].endswith("]")
        for pair in pairs
    ):
        return (
            "TSV without a header",
            "line",
            partial(_delimited_rows, delimiter="\t", header=("1", "2")),
        )
    if any(line.lstrip().startswith(b"{") for line in lines[:_FIRST_LINES]):
        return ("JSON lines", "line", _line_rows)
    text = first.decode(errors="replace")
    raise UserError(
        f"{name} has no known format; its first line is {shortened(text)} (no column {question_column!r} in it, no "
        f"JSON). {ALLOWED}; columns of other names: --columns question=…,answers=…."
    )


def _numbered_lines(file: QuestionFile) -> Iterator[tuple[int, bytes]]:
    """Every line with its number, from 1, up to the size limits."""
    stream, size = file.stream(), 0
    longest = file.most_in_line
    for number, raw in enumerate(iter(lambda: stream.readline(longest + 1), b""), 1):
        if len(raw) > longest:
            raise UserError(
                f"Line {number} of {file.name} has more than {longest / 10**6:g} MB, unpacked. If it is what you mean, "
                f"allow it with --large-files."
            )
        size += len(raw)
        file.check_size(size)
        yield number, raw.removeprefix(_BOM) if number == 1 else raw


def _parse_object(raw: bytes) -> dict[str, object]:
    try:
        value = json.loads(raw.decode("utf-8"))
    except UnicodeDecodeError as error:
        byte = f"byte 0x{raw[error.start]:02x} at column {error.start + 1}"
        raise Unusable(f"not UTF-8: {byte}; save the file as UTF-8") from None
    except json.JSONDecodeError as error:
        raise Unusable(
            f"broken JSON ({error.msg}, column {error.colno}): {shortened(raw)}"
        ) from None
    except (
        ValueError,
        RecursionError,
    ):  # a number of thousands of digits, or lists in lists in lists
        raise Unusable(f"too large a JSON value: {shortened(raw)}") from None
    if not isinstance(value, dict):
        raise Unusable(f"not a JSON object: {shortened(raw)}")
    return value


def _line_rows(file: QuestionFile) -> Iterator[tuple[int, Row]]:
    for number, raw in _numbered_lines(file):
        if raw.strip():
            try:
                yield number, _parse_object(raw.strip())
            except Unusable as bad:
                yield number, bad


def _list_rows(file: QuestionFile) -> Iterator[tuple[int, Row]]:
    entries = enumerate(_entries(file), start=1)
    try:
        for number, entry in entries:
            yield (
                number,
                entry
                if isinstance(entry, dict)
                else Unusable(f"not a JSON object: {shortened(entry)}"),
            )
    except (ValueError, RecursionError) as error:
        reason = " ".join(str(error).split())[:120]
        raise UserError(
            f"{file.name} is a broken or cut-off JSON list ({reason}). Fetch it again, or fix it."
        ) from None


def _entries(file: QuestionFile) -> Iterator[Any]:
    """The entries of a list one by one: all of them take twenty times the memory of their text."""
    text = _Text(file)
    text.read()
    start = re.match(_LIST_HEAD.decode(), text.held)
    assert start is not None, "the format was recognised by it"
    head = start.group()
    text.at = start.end()
    is_object = head.lstrip().startswith("{")
    json.loads(head + "]}" if is_object else head + "]")
    if text.next_letter() == "]":
        text.at += 1
    else:
        yield text.value()
        while text.next_letter() == ",":
            text.at += 1
            text.next_letter()
            yield text.value()
        if text.next_letter() != "]":
            raise ValueError("Expecting ',' delimiter")
        text.at += 1
    while text.read():
        text.check_length()
    rest = text.held[text.at :]
    if is_object and "Data" in json.loads('{"": 0' + rest):
        raise ValueError("'Data' is given twice")
    if not is_object and rest.strip():
        raise ValueError("Extra data behind it")


class _Text:
    """The text of a file, of which only a part is held."""

    def __init__(self, file: QuestionFile) -> None:
        self.file = file
        self.held = ""
        self.at = 0
        self._stream = file.stream()
        self._size = 0
        self._decode = getincrementaldecoder("utf-8-sig")().decode
        self._parse = json.JSONDecoder().raw_decode

    def read(self) -> bool:
        """Holds more, twice as much each time; whether there was more."""
        self.held = self.held[self.at :]
        self.at = 0
        chunk = self._stream.read(max(1 << 20, len(self.held)))
        self._size += len(chunk)
        self.file.check_size(self._size)
        self.held += self._decode(chunk, final=not chunk)
        return bool(chunk)

    def check_length(self) -> None:
        longest = self.file.most_in_line
        if len(self.held) - self.at > longest:
            raise UserError(
                f"An entry of {self.file.name} has more than {longest / 10**6:g} MB, unpacked. If it is what you mean, "
                f"allow it with --large-files."
            )

    def next_letter(self) -> str:
        """The next one that is no space; none at the end."""
        while True:
            self.at = _SPACES.match(self.held, self.at).end()  # type: ignore[union-attr]
            if self.at < len(self.held) or not self.read():
                return self.held[self.at : self.at + 1]

    def value(self) -> Any:
        """The value that begins here."""
        while True:
            try:
                value, end = self._parse(self.held, self.at)
            except json.JSONDecodeError:
                self.check_length()
                if not self.read():
                    raise
                continue
            length = end - self.at
            if self.held[end : end + 1] in _ENDS:
                self.at = end
                return value
            self.check_length()
            if not self.read():  # a number may go on in what is read next
                self.at = length
                return value


def _split_cells(line: bytes, delimiter: str) -> list[str]:
    try:
        return next(
            csv.reader(
                [line.decode("utf-8", "replace")], delimiter=delimiter, strict=True
            ),
            [],
        )
    except csv.Error:
        return []


def _delimited_rows(
    file: QuestionFile, delimiter: str, header: Sequence[str] = ()
) -> Iterator[tuple[int, Row]]:
    """First line number and content of every row of CSV or TSV; the first row is the header unless given."""
    names = list(header)
    csv.field_size_limit(_CELL_LETTERS)
    # Bytes that are not UTF-8 become surrogates, refused later in the cell that holds them.
    decoded = (str(raw, "utf-8", "surrogateescape") for _, raw in _numbered_lines(file))
    reader = csv.reader(decoded, delimiter=delimiter, strict=True)
    while True:
        first = reader.line_num + 1
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            yield (
                first,
                Unusable(
                    f"broken row, lines {first} to {reader.line_num} ({error}); look for a stray quote"
                ),
            )
            continue
        if not cells:
            continue
        if not any(cell.strip() for cell in cells):
            if names:
                yield first, EmptyRow("the row is empty")
            continue
        if not names:
            names = [cell.strip() for cell in cells]
        elif len(cells) != len(names):
            yield (
                first,
                Unusable(f"{len(cells)} cells, but the header has {len(names)}"),
            )
        else:
            yield (
                first,
                {
                    name: cell if cell.strip() else None
                    for name, cell in zip(names, cells, strict=True)
                },
            )


_HEAVY = (
    "entity_pages",
    "search_results",
    "context",
    "supporting_facts",
    "EntityPages",
    "SearchResults",
)
"""Columns of TriviaQA and HotpotQA that no question needs."""


def _is_heavy(kind: Any) -> bool:
    """Whether a column of such a name holds more than texts: a list of texts may be the passages of a question."""
    import polars as pl

    return bool(kind.is_nested()) and kind != pl.List(pl.String)


def _parquet_rows(file: QuestionFile) -> Iterator[tuple[int, Row]]:
    import polars as pl

    content = file.whole()
    if len(content) < 12 or not content.endswith(b"PAR1"):
        raise UserError(
            f"{file.name} begins like a Parquet file but does not end like one: cut off. Fetch it again."
        )
    number = 0
    try:
        table = pl.scan_parquet(content)
        schema = table.collect_schema()
        unneeded = [
            pl.lit(None).alias(name)
            for name in _HEAVY
            if name in schema and _is_heavy(schema[name])
        ]
        for batch in table.with_columns(unneeded).collect_batches(
            chunk_size=2048, maintain_order=True
        ):
            for row in batch.iter_rows(named=True):
                number += 1
                yield number, row
    except (
        pl.exceptions.PolarsError,
        pl.exceptions.PanicException,
        OverflowError,
    ) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0][:120]
        raise UserError(
            f"{file.name} is a broken Parquet file, after row {number} ({reason}). Fetch it again."
        ) from None


def _log_rows(file: QuestionFile) -> Iterator[tuple[int, Row]]:
    """Number and content of every sample of an inspect_ai log, a ZIP archive with a JSON file per sample."""
    content = file.whole()
    try:
        archive = zipfile.ZipFile(io.BytesIO(content))
    except (zipfile.BadZipFile, ValueError, NotImplementedError) as error:
        raise UserError(
            f"{file.name} is a broken or cut-off ZIP archive ({error}). Fetch it again."
        ) from None
    # Of several entries with one name the last counts: it replaced the others.
    samples = {
        info.filename: info
        for info in archive.infolist()
        if re.fullmatch(r"samples/.*\.json", info.filename)
    }
    file.check_size(sum(info.file_size for info in samples.values()))
    for number, info in enumerate(samples.values(), start=1):
        try:
            # inspect_ai packs with zstd, which zipfile reads from Python 3.14 on
            entry = (
                _zstd_entry(file, content, info)
                if info.compress_type == 93
                else archive.read(info)
            )
            yield number, inspect_columns(_parse_object(entry))
        except UserError:
            raise
        except Unusable as bad:
            yield number, bad
        except Exception as error:  # each library has errors of its own
            reason = " ".join(str(error).split())[:100] or type(error).__name__
            yield number, Unusable(f"{info.filename!r} cannot be unpacked ({reason})")


def _zstd_entry(file: QuestionFile, content: bytes, info: zipfile.ZipInfo) -> bytes:
    """An entry packed with zstd; ValueError if its checksum differs."""
    header = content[info.header_offset : info.header_offset + 30]
    start = (
        info.header_offset
        + 30
        + int.from_bytes(header[26:28], "little")
        + int.from_bytes(header[28:30], "little")
    )
    try:
        pyarrow: Any = import_module("pyarrow")
    except ImportError:
        raise UserError(
            f"{file.name} is packed with zstd; to read that: pip install pyarrow."
        ) from None
    packed = content[start : start + info.compress_size]
    entry: bytes = pyarrow.decompress(packed, info.file_size, "zstd", asbytes=True)
    if zlib.crc32(entry) != info.CRC:
        raise ValueError("its checksum is another")
    return entry
