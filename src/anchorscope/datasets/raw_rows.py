"""A row as a file gives it: named values, or the reason why it cannot be used; never passed over in silence.

Also what a single cell may hold: lists written as text, `["a", "b"]` as JSON or `['a', 'b']` as Python writes it (DPR,
data frames).
"""

import ast
import json
import re
import warnings
from dataclasses import dataclass

ROW_LIMIT = 10_000_000
"""Bytes that one row may have: a question with all its context is far smaller, a file without line ends far larger."""
TOO_LONG = f"longer than {ROW_LIMIT // 1_000_000} MB; no question is, so line ends or quotes may be missing"


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


_STRING = r"""(?:'(?:[^'\\]|\\.)*+'|"(?:[^"\\]|\\.)*+")"""
_STRINGS = re.compile(_STRING, re.DOTALL)
_PYTHON_LIST = re.compile(rf"\[\s*(?:{_STRING}\s*(?:,\s*{_STRING}\s*)*+,?\s*)?\]", re.DOTALL)


def list_from_text(text: str) -> object:
    """What the text says as JSON, or the strings of a Python list of nothing but strings; None if it is neither."""
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
