"""Standard input, output and error as a command may find them: closed, full, a pipe that nobody reads, an old encoding.

A result that cannot be written is an error; a message that cannot be written is no reason to end hours of work. What
the encoding lacks is spelled out.
"""

import errno
import io
import os
import sys
from typing import IO, Any

from anchorscope.screen.messages import SPELLED
from anchorscope.system_errors import STANDARD_OUTPUT


def open_streams() -> None:
    """Makes the three streams safe to use, once, at the beginning of a command."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:  # closed: the next file to be opened would get this number, and libraries would print into it
            os.open(os.devnull, os.O_RDWR)
    if sys.stdin is None:
        sys.stdin = open(os.devnull, encoding="utf-8")  # noqa: SIM115 - for as long as the process lives
    if sys.stdout is sys.__stdout__:
        sys.stdout = _text(1, sys.stdout, _Output(1, sys.stdout is None))
    if sys.stderr is sys.__stderr__:
        sys.stderr = _text(2, sys.stderr, _Stream(2))


def _text(number: int, before: IO[str] | None, raw: "_Stream") -> io.TextIOWrapper:
    encoding = getattr(before, "encoding", None) or "utf-8"
    buffered = io.BufferedWriter(raw)
    return io.TextIOWrapper(buffered, encoding, SPELLED, line_buffering=number == 2 or os.isatty(number))


class _Stream(io.FileIO):
    """A stream that fails once at most: what is written afterwards, as by Python itself at the end, is lost."""

    def __init__(self, number: int, is_closed: bool = False) -> None:
        super().__init__(number, "w", closefd=False)
        self.is_closed, self.is_broken = is_closed, False

    def write(self, data: Any) -> int:
        size = memoryview(data).nbytes
        if self.is_broken:
            return size
        try:
            if self.is_closed:
                raise OSError(errno.EBADF, "it is closed")
            return super().write(data)
        except OSError as error:
            self.is_broken = True
            self.refuse(error)
            return size

    def refuse(self, error: OSError) -> None:
        """What the first write that fails leads to; nothing, where messages are written."""


class _Output(_Stream):
    """Results."""

    def refuse(self, error: OSError) -> None:
        error.filename = STANDARD_OUTPUT
        raise error
