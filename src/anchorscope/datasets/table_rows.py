"""Rows of a table: CSV and TSV with a header line and CSV quoting, and Parquet in batches of rows.

DPR's two columns without a header are named "1" and "2".
"""

import csv
import gzip
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO

from anchorscope.datasets.file_bytes import Lines, unpacked
from anchorscope.datasets.raw_rows import Row, Unusable, shown
from anchorscope.errors import UserError

WITHOUT_HEADER = ("1", "2")
"""The names of columns that have none."""


def cells_of(line: bytes, delimiter: str) -> list[str]:
    """The cells of one line, none if it cannot be read as such."""
    try:
        return next(csv.reader([line.decode("utf-8", "replace")], delimiter=delimiter, strict=True), [])
    except csv.Error:
        return []


class _Texts:
    """The lines as text. Bytes that are not UTF-8 become surrogates, refused later in the one cell that holds them."""

    def __init__(self, lines: Lines) -> None:
        self._lines = lines

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        return next(self._lines).decode("utf-8", "surrogateescape")


def _reason(error: csv.Error, first: int, last: int) -> str:
    """Why a row cannot be cut into cells."""
    if "field limit" in str(error):
        told = f"a cell of more than {csv.field_size_limit():,} characters, lines {first} to {last}"
    else:
        told = f"broken row, lines {first} to {last} ({error})"
    return f"{told}; look for a stray quote"


def _cut_off(path: Path, first: int, cells: object) -> UserError:
    """The error for a file whose last row has no end."""
    return UserError(f"{path} is cut off in the middle of its last row, line {first}: {shown(cells)}. Fetch it again.")


def delimited_rows(
    file: BinaryIO, path: Path, delimiter: str, header: tuple[str, ...] | None = None
) -> Iterator[tuple[int, Row]]:
    """First line number and content of every row; the first row is the header unless it is given."""
    lines = Lines(file)
    reader = csv.reader(_Texts(lines), delimiter=delimiter, strict=True)
    names = list(header or ())
    while True:
        first = lines.number + 1
        try:
            cells = next(reader)
        except StopIteration:
            return
        except Unusable as bad:
            yield lines.number, bad
            continue
        except csv.Error as error:
            if not lines.whole and "unexpected end of data" in str(error):
                raise _cut_off(path, first, str(error)) from None
            yield first, Unusable(_reason(error, first, lines.number))
            continue
        if not any(cell.strip() for cell in cells):
            if not lines.whole and "" in cells and len(cells) < len(names):  # a quote to be doubled
                raise _cut_off(path, first, cells)
            continue
        if not names:
            names = [cell.strip() for cell in cells]
        elif len(cells) != len(names):
            if not lines.whole and len(cells) < len(names):
                raise _cut_off(path, first, cells)
            yield first, Unusable(f"{len(cells)} cells, but the header has {len(names)}")
        else:
            yield first, {name: cell if cell.strip() else None for name, cell in zip(names, cells, strict=True)}


PARQUET_MAGIC = b"PAR1"
"""How a Parquet file begins and ends."""
_PARQUET_BATCH = 2048


def parquet_rows(file: BinaryIO, path: Path) -> Iterator[tuple[int, Row]]:
    """Number and content of every row."""
    import polars as pl  # only here: help has to come at once

    with ExitStack() as held:
        # Parquet is read from its end, so a gzipped one must be unpacked first.
        on_disk = held.enter_context(unpacked(file)) if isinstance(file, gzip.GzipFile) else path
        with on_disk.open("rb") as raw:
            raw.seek(-min(len(PARQUET_MAGIC), on_disk.stat().st_size), 2)
            if raw.read() != PARQUET_MAGIC:
                raise UserError(
                    f"{path} begins like a Parquet file but does not end like one: cut off. Fetch it again."
                )
        number = 0
        try:
            table = pl.scan_parquet(on_disk, glob=False)
            while (batch := table.slice(number, _PARQUET_BATCH).collect()).height:
                for row in batch.iter_rows(named=True):
                    number += 1
                    yield number, row
        except (pl.exceptions.PolarsError, pl.exceptions.PanicException, ValueError, OverflowError) as error:
            first = (str(error).splitlines() or [type(error).__name__])[0]
            raise UserError(
                f"{path} is a broken Parquet file, after row {number} ({first[:120]}). Fetch it again."
            ) from None
