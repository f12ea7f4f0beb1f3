"""The service's log: one line per request, without its text; a disk that is full stops the log, never the service."""

import contextlib
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path

from anchorscope.errors import UserError

_LONGEST = 2000


class ServiceLog:
    """Lines to a file, to standard error, or nowhere."""

    def __init__(self, path: Path | None = None, *, quiet: bool = False, with_text: bool = False) -> None:
        self.with_text = with_text
        """Whether what users wrote may be in it."""
        self.lost: Callable[[], None] = lambda: None
        """Called for every line that could not be written."""
        self._lock = threading.Lock()
        self._quiet = quiet and path is None
        self._file: int | None = None
        if path is not None:
            try:
                self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            except OSError as error:
                raise UserError(
                    f"--log-file {str(path)!r} cannot be written ({error.strerror}); choose a place where files can be "
                    f"made."
                ) from None

    def line(self, text: str) -> None:
        """One line with the time before it; control characters become visible, so that no text can fake a line."""
        if self._quiet:
            return
        shown = "".join(one if one.isprintable() else f"\\x{ord(one):02x}" for one in text[:_LONGEST])
        told = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()) + " " + shown + "\n"
        with self._lock:
            try:
                if self._file is None:
                    sys.stderr.write(told)
                    sys.stderr.flush()
                else:
                    os.write(self._file, told.encode("utf-8", "backslashreplace"))
            except (OSError, ValueError, AttributeError):  # full, closed, or not there
                self.lost()

    def fault(self, error: BaseException, where: str) -> None:
        """A mistake of ours: its kind and the lines of code it came through; its own words may repeat a request's."""
        frames = traceback.extract_tb(error.__traceback__)[-4:]
        places = " < ".join(f"{Path(one.filename).name}:{one.lineno}" for one in reversed(frames))
        words = f" ({error})" if self.with_text else ""
        self.line(f"fault {where} {type(error).__name__} at {places or 'unknown place'}{words}")

    def close(self) -> None:
        """No more lines to the file."""
        with self._lock, contextlib.suppress(OSError):
            if self._file is not None:
                os.close(self._file)
                self._file, self._quiet = None, True
