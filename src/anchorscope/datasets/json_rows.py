"""Rows written as JSON: JSON lines, one object per line; or a list of objects, also as `Data` of an outer object.

A list is cut into its entries before any of them is parsed, so that memory holds one entry, a broken entry is a bad row
like any other, and lists nested a hundred thousand deep are only a bad row. (Streaming parsers that name the path to
every value need memory quadratic in that depth.)
"""

import json
import re
from collections.abc import Iterator
from typing import BinaryIO

from anchorscope.datasets.limits import ROW_BYTES, ROW_VALUES
from anchorscope.datasets.lines import BOM, Lines
from anchorscope.datasets.question_file import QuestionFile
from anchorscope.datasets.raw_rows import TOO_LONG, Row, Unusable, refuse_many_values, shown
from anchorscope.errors import UserError

_BESIDES = rb'(?:\s*"(?:Domain|VerifiedEval|Version)"\s*:\s*(?:"[^"\\]*"|[\w.+-]+)\s*,)*+'
LIST_START = re.compile(rb"\s*(?:\{" + _BESIDES + rb'\s*"Data"\s*:\s*)?\[(?=\s*(?:[\[{\]]|\Z))')
"""What stands before the first entry: "[", or the outer object of TriviaQA up to its list."""
_OUTSIDE = re.compile(rb'["\[\]{},]')
_INSIDE = re.compile(rb'["\\]')
_CHUNK = 1 << 18
_decode = json.JSONDecoder().decode  # `json.loads` without its look at every argument


def parsed(raw: bytes) -> dict[str, object]:
    """One JSON object."""
    if len(raw) > ROW_VALUES:
        refuse_many_values(raw)
    try:
        value = _decode(raw.decode("utf-8"))
    except UnicodeDecodeError as error:
        byte = f"byte 0x{raw[error.start]:02x} at column {error.start + 1}"
        raise Unusable(f"not UTF-8: {byte}; save the file as UTF-8") from None
    except json.JSONDecodeError as error:
        raise Unusable(f"broken JSON ({error.msg}, column {error.colno}): {shown(raw)}") from error
    except (ValueError, RecursionError):  # a number of thousands of digits, or lists in lists in lists
        raise Unusable(f"too large a JSON value: {shown(raw)}") from None
    if not isinstance(value, dict):
        raise Unusable(f"not a JSON object: {shown(raw)}")
    return value


def _is_beginning(raw: bytes, bad: Unusable) -> bool:
    """Whether a broken JSON text without a line end may be the beginning of a good one."""
    error = bad.__cause__
    return isinstance(error, json.JSONDecodeError) and (not raw.endswith(b"}") or error.pos >= len(error.doc))


def line_rows(file: QuestionFile) -> Iterator[tuple[int, Row]]:
    """Line number and content of every JSON line."""
    lines, raw = Lines(file.stream(), file.name), b""
    while True:
        try:
            raw = next(lines).strip()
            if raw:
                yield lines.number, parsed(raw)
        except StopIteration:
            return
        except Unusable as bad:
            if not lines.whole and _is_beginning(raw, bad):
                seen = f"its last line, {lines.number}, is {shown(raw)}"
                raise UserError(f"{file.name} is cut off in the middle: {seen}. Fetch it again.") from None
            yield lines.number, bad


class _Entries:
    """Cuts a JSON list into its entries."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._buffer = b""
        self._at = 0  # where to look next
        self._start = 0  # where the entry begins
        self._dropped = 0  # bytes of the entry that were let go because it is too long
        self._in_string = False
        self._depth = 0  # of brackets inside the entry

    def _more(self) -> bool:
        """Reads on; False at the end of the file."""
        if len(self._buffer) - self._start > ROW_BYTES:
            self._dropped += len(self._buffer) - self._start
            self._start = len(self._buffer)
        chunk = self._file.read(_CHUNK)
        self._buffer = self._buffer[self._start :] + chunk
        self._at, self._start = self._at - self._start, 0
        return bool(chunk)

    def _next_mark(self) -> bytes:
        """The next mark that belongs to the structure; b"" at the end of the file."""
        while True:
            found = (_INSIDE if self._in_string else _OUTSIDE).search(self._buffer, self._at)
            if found is None:
                self._at = max(self._at, len(self._buffer))  # it may lie ahead, behind an escape
                if not self._more():
                    return b""
                continue
            mark = found.group()
            self._at = found.end() + (mark == b"\\")  # whatever is escaped
            if mark == b'"':
                self._in_string = not self._in_string
            elif mark != b"\\":
                return mark

    def begin(self) -> bool:
        """Goes past what stands before the first entry; whether the list is inside an outer object."""
        self._more()
        self._buffer = self._buffer.removeprefix(BOM)
        found = LIST_START.match(self._buffer)
        self._at = self._start = found.end() if found else 0
        return self._buffer.lstrip().startswith(b"{")

    def next_entry(self) -> tuple[bytes | None, bytes]:
        """An entry's bytes (None if it is too long) and the mark after it: b"," or b"]", or b"" if the file ends."""
        while True:
            mark = self._next_mark()
            if mark in (b"[", b"{"):
                self._depth += 1
            elif mark in (b"]", b"}") and self._depth:
                self._depth -= 1
            elif mark in (b"", b"]") or (mark == b"," and not self._depth):
                size = self._dropped + self._at - len(mark) - self._start
                entry = self._buffer[self._start : self._at - len(mark)].strip() if size <= ROW_BYTES else None
                self._start, self._dropped = self._at, 0
                return entry, mark

    def rest(self) -> bytes:
        """What follows the list: the end of the text, shortened."""
        left = self._buffer[self._at :]
        while chunk := self._file.read(_CHUNK):
            left = left[:80] + b" " + (left[80:] + chunk)[-80:]
        return left.strip()


def list_rows(file: QuestionFile) -> Iterator[tuple[int, Row]]:
    """Number and content of every entry of a JSON list."""
    entries = _Entries(file.stream())
    has_outer_object = entries.begin()
    number, mark = 0, b","
    while mark == b",":
        entry, mark = entries.next_entry()
        if not mark:
            seen = shown((entry or b"")[:60])
            raise UserError(
                f"{file.name} is cut off in the middle, in entry {number + 1} of its list: {seen}. Fetch it again."
            )
        if entry == b"" and mark == b"]" and not number:
            break  # an empty list
        number += 1
        try:
            if entry is None:
                raise Unusable(TOO_LONG)
            yield number, parsed(entry)
        except Unusable as bad:
            yield number, bad
    rest = entries.rest()
    if not rest.endswith(b"}") if has_outer_object else rest:
        raise UserError(f"{file.name} does not end as a JSON list does, but with {shown(rest[-60:])}. Fetch it again.")
