"""The lines of a question file with their numbers, none of them longer than a row may be."""

from collections.abc import Iterator
from typing import BinaryIO

from anchorscope.datasets.limits import BLANK_LINES_TOGETHER, ROW_BYTES
from anchorscope.datasets.raw_rows import TOO_LONG, Unusable
from anchorscope.errors import UserError

BOM = b"\xef\xbb\xbf"
"""The mark that some editors put before UTF-8 text."""
_CHUNK = 1 << 20


class Lines:
    """The lines of a file; going on after a line that is too long is possible."""

    def __init__(self, file: BinaryIO, name: str) -> None:
        self._file, self._name, self._blank, self._last_blank = file, name, 0, 0
        self.number = 0
        """Number of the last line that was given."""
        self.whole = True
        """Whether the last line ended with a line end."""

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        raw = self._file.readline(ROW_BYTES)
        if not raw:
            raise StopIteration
        self.number += 1
        self.whole = raw.endswith(b"\n")
        if raw.isspace():
            self._count_blank()
        if not self.whole and len(raw) == ROW_BYTES:
            while (rest := self._file.readline(_CHUNK)) and not rest.endswith(b"\n"):
                pass
            self.whole = True
            raise Unusable(TOO_LONG)
        return raw.removeprefix(BOM) if self.number == 1 else raw

    def _count_blank(self) -> None:
        """Blank lines together have numbers without a gap."""
        self._blank = self._blank + 1 if self.number == self._last_blank + 1 else 1
        self._last_blank = self.number
        if self._blank > BLANK_LINES_TOGETHER:
            raise UserError(
                f"{self._name} has {BLANK_LINES_TOGETHER:,} blank lines together, up to line {self.number:,}. Take "
                f"them out, or name the right file."
            )
