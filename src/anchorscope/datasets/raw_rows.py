"""A row as a file gives it: named values, or the reason why it cannot be used; never passed over in silence.

Also what a single cell may hold: lists written as text, `["a", "b"]` as JSON or `['a', 'b']` as Python writes it (DPR,
data frames).
"""

import ast
import json
import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from anchorscope.datasets.limits import COLUMNS, NAME_LETTERS, ROW_BYTES, ROW_VALUES
from anchorscope.errors import UserError, unknown

TOO_LONG = f"longer than {ROW_BYTES // 1_000_000} MB; no question is, so line ends or quotes may be missing"
"""What is wrong with a row that has no end."""


class Unusable(Exception):
    """A row cannot be used; the text says why."""


@dataclass(frozen=True)
class BadRow:
    """A row that could not be used."""

    line: int
    """Where it begins, from 1: a line of a text file, an entry of a JSON list, a row of a Parquet file."""
    reason: str
    """What is wrong with it."""


Row = dict[str, object] | Unusable
"""What a file holds at one place: named values, or the reason why they cannot be read."""


def shown(value: object) -> str:
    """A value as it appears in a one-line message."""
    try:
        text = ascii(value) if isinstance(value, bytes) else repr(value)
    except (RecursionError, ValueError):  # lists in lists in lists, or a number of thousands of digits
        return "a value too large to show"
    return text if len(text) <= 80 else text[:77] + "..."


def refuse_many_values(text: str | bytes) -> None:
    """Refuses a JSON text whose values would take far more memory than their letters."""
    raw = text.encode(errors="replace") if isinstance(text, str) else text
    if raw.count(b",") + raw.count(b"[") + raw.count(b"{") > ROW_VALUES:
        raise Unusable(f"more than {ROW_VALUES:,} values: {shown(text[:100])}")


def with_few_columns(row: Row) -> Row:
    """The row, or what is wrong with its columns."""
    if isinstance(row, Unusable):
        return row
    if len("".join(row)) <= NAME_LETTERS:  # as always; one join is the quickest look at all names
        return row
    if len(row) > COLUMNS:
        return Unusable(f"{len(row):,} columns; at most {COLUMNS:,} are read")
    longest = max(row, key=len)
    if len(longest) > NAME_LETTERS:
        return Unusable(f"a column's name has {len(longest):,} letters; at most {NAME_LETTERS:,} are read")
    return row


_STRING = r"""(?:'(?:[^'\\]|\\.)*+'|"(?:[^"\\]|\\.)*+")"""
_STRINGS = re.compile(_STRING, re.DOTALL)
_PYTHON_LIST = re.compile(rf"\[\s*(?:{_STRING}\s*(?:,\s*{_STRING}\s*)*+,?\s*)?\]", re.DOTALL)


def list_from_text(text: str) -> object:
    """What the text says as JSON, or the strings of a Python list of nothing but strings; None if it is neither."""
    if len(text) > ROW_VALUES:
        refuse_many_values(text)
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return [_literal(match.group()) for match in _STRINGS.finditer(text)] if _PYTHON_LIST.fullmatch(text) else None


def _literal(quoted: str) -> str:
    """What a string literal stands for; one that Python would not accept stands for what is between its quotes."""
    if "\\" not in quoted:
        return quoted[1:-1]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # an escape that means nothing ("\d") is kept as it is
            return str(ast.literal_eval(quoted))
    except (SyntaxError, ValueError):
        return quoted[1:-1]


KNOWN = (
    "question",
    "answers",
    "id",
    "subject",
    "relation",
    "property_words",
    "exact_question",
    "model_answer",
    "truthful",
)
"""Columns that mean something; any other single value is metadata."""
_HOW = "Write it like question=prompt,answers=gold"


def parse_columns(texts: Sequence[str]) -> dict[str, str]:
    """`question=prompt,answers=gold`, in one text or several, as {known name: column of the file}."""
    found: dict[str, str] = {}
    for part in (part for text in texts for part in text.split(",")):
        name, equals, column = (piece.strip() for piece in part.partition("="))
        if not equals or not name or not column:
            raise UserError(f"--columns: {part.strip()!r} is not of the form name=column. {_HOW}.")
        check_known(name)
        if name in found:
            raise UserError(f"--columns names {name!r} twice, as {found[name]!r} and {column!r}. Keep one of them.")
        found[name] = column
    return found


def check_known(name: str) -> None:
    """Refuses a name that no column can have."""
    if name not in KNOWN:
        raise unknown("name in --columns", name, KNOWN, f"{_HOW}: the known name first, your file's column second.")


def check_present(columns: Mapping[str, str], present: Sequence[str], source: str) -> None:
    """Refuses a mapping to a column that is not there, in any of the first rows."""
    for name, column in columns.items():
        check_known(name)
        if column not in present:
            raise UserError(
                f"{source} has no column {column!r}, which --columns gives as {name}; found: {shown([*present])}. "
                f"Name one of these."
            )


@lru_cache(maxsize=1024)  # every row has the same names
def _own_name(name: str) -> str:
    plain = name.strip().lower()
    return plain if plain in (*KNOWN, "answer") else name


def own_names(row: Mapping[str, object]) -> dict[str, object]:
    """The row with its known columns in lower case: "Question " is `question`."""
    return {_own_name(name): value for name, value in row.items()}


def mapped(row: Mapping[str, object], columns: Mapping[str, str]) -> dict[str, object]:
    """The row with the user's columns under their known names; what bore a mapped name before is not read."""
    taken = {*columns, *(column for column in columns.values() if column not in KNOWN)}
    if "answers" in columns:
        taken.add("answer")
    others = {name: value for name, value in own_names(row).items() if name not in taken}
    return others | {name: row[column] for name, column in columns.items() if column in row}
