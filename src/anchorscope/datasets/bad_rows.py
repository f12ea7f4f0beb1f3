"""Rows that cannot be used: never passed over in silence, always with their place and the reason."""

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
