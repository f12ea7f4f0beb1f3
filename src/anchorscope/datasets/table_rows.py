"""Rows of a table as text: CSV and TSV with a header line and CSV quoting.

DPR's two columns without a header are named "1" and "2".
"""

import csv
from collections.abc import Iterator

from anchorscope.datasets.limits import CELL_LETTERS, COLUMNS, ROW_BYTES
from anchorscope.datasets.lines import Lines
from anchorscope.datasets.question_file import QuestionFile
from anchorscope.datasets.raw_rows import TOO_LONG, Row, Unusable, shown
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
        self.room = ROW_BYTES
        """Bytes that the row may still have: quoted cells go over several lines."""

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        line = next(self._lines)
        self.room -= len(line)
        if self.room < 0:
            raise Unusable(TOO_LONG)
        return line.decode("utf-8", "surrogateescape")


def _reason(error: csv.Error, first: int, last: int) -> str:
    """Why a row cannot be cut into cells."""
    if "field limit" in str(error):
        told = f"a cell of more than {csv.field_size_limit():,} characters, lines {first} to {last}"
    else:
        told = f"broken row, lines {first} to {last} ({error})"
    return f"{told}; look for a stray quote"


def _cut_off(name: str, first: int, cells: object) -> UserError:
    """The error for a file whose last row has no end."""
    return UserError(f"{name} is cut off in the middle of its last row, line {first}: {shown(cells)}. Fetch it again.")


def delimited_rows(
    file: QuestionFile, delimiter: str, header: tuple[str, ...] | None = None
) -> Iterator[tuple[int, Row]]:
    """First line number and content of every row; the first row is the header unless it is given."""
    lines = Lines(file.stream(), file.name)
    texts = _Texts(lines)
    csv.field_size_limit(CELL_LETTERS)
    reader = csv.reader(texts, delimiter=delimiter, strict=True)
    names = list(header or ())
    while True:
        first, texts.room = lines.number + 1, ROW_BYTES
        try:
            cells = next(reader)
        except StopIteration:
            return
        except Unusable as bad:
            yield first, bad
            continue
        except csv.Error as error:
            if not lines.whole and "unexpected end of data" in str(error):
                raise _cut_off(file.name, first, str(error)) from None
            yield first, Unusable(_reason(error, first, lines.number))
            continue
        if not any(cell.strip() for cell in cells):
            if not lines.whole and "" in cells and len(cells) < len(names):  # a quote to be doubled
                raise _cut_off(file.name, first, cells)
            continue
        if not names:
            names = [cell.strip() for cell in cells]
            if len(names) > COLUMNS:
                raise UserError(f"{file.name} has {len(names):,} columns; at most {COLUMNS:,} are read. Drop some.")
        elif len(cells) != len(names):
            if not lines.whole and len(cells) < len(names):
                raise _cut_off(file.name, first, cells)
            yield first, Unusable(f"{len(cells)} cells, but the header has {len(names)}")
        else:
            yield first, {name: cell if cell.strip() else None for name, cell in zip(names, cells, strict=True)}
