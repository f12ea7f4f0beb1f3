"""What all commands share: errors in one line, messages while something loads, JSON for programs.

Results go to standard output, everything else to standard error, so that `anchorscope … --json | jq` works.
"""

import errno
import gc
import importlib
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from anchorscope.cli.signals import STOPPED
from anchorscope.errors import (
    STANDARD_OUTPUT,
    Incomplete,
    UserError,
    fault_in_words,
    system_fault,
)
from anchorscope.json_text import to_json
from anchorscope.progress import Progress, Silent
from anchorscope.screen import ScreenProgress, clear_screen, console, harmless, say

INCOMPLETE = 3
"""Exit code: some work is missing; the same command resumes."""
NOTHING_KEPT = "stopped; nothing half made was kept, the same command starts again"
_IN_A_PIPE, _ONE_LINE_PER_ROW = 100, 100_000  # columns: a pipe has no width of its own
_PARTS = 20  # of a value that has many
_NOBODY_READS = 141  # what a shell reports of a command whose reader (head, less) has gone: 128 + SIGPIPE


def emit_json(record: Mapping[str, Any]) -> None:
    """The JSON object on standard output."""
    sys.stdout.write(to_json(record, other=str) + "\n")
    sys.stdout.flush()


def emit_text(text: str = "") -> None:
    sys.stdout.write(text + "\n")


@contextmanager
def page(pipe_width: int | None = None) -> Iterator[Console]:
    """Standard output, as wide as the terminal, without markup and trailing blanks."""
    width = None if sys.stdout.isatty() else pipe_width or _IN_A_PIPE
    console = Console(width=width, markup=False, highlight=False, emoji=False)
    with console.capture() as written:
        yield console
    emit_text("\n".join(line.rstrip() for line in written.get().splitlines()))


def short(text: str | None, longest: int) -> str:
    line = " ".join(harmless(text).split())
    return line if len(line) <= longest else line[: longest - 1] + "…"


def record_rows(record: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """A record for a person: every value under its own name."""
    for name, value in record.items():
        if value not in (None, "", {}, ()):
            yield name.replace("_", " "), _format_value(value)


def _format_value(value: Any) -> str:
    if isinstance(value, Mapping):
        parts = [
            f"{name} {_format_value(number)}"
            for name, number in value.items()
            if number
        ]
        return ", ".join(parts[:_PARTS]) + (
            f" and {len(parts) - _PARTS:,} more" if len(parts) > _PARTS else ""
        )
    if isinstance(value, tuple):
        return " | ".join(map(_format_value, value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    return (
        f"{value:,.3g}"
        if isinstance(value, float)
        else f"{value:,}"
        if isinstance(value, int)
        else str(value)
    )


def print_rows(rows: Iterable[tuple[str, ...]]) -> None:
    """Columns, folded to the terminal's width; in a pipe one line per row."""
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 3, 0, 0))
    for row in rows:
        table.add_row(*(Text(harmless(cell), overflow="fold") for cell in row))
    with page(_ONE_LINE_PER_ROW) as console:
        console.print(table)


def listener(quiet: bool) -> Progress:
    return Silent() if quiet else ScreenProgress()


@contextmanager
def loading(library: str, quiet: bool = False) -> Iterator[None]:
    """Imports that take seconds happen inside: a spinner on a terminal, a line elsewhere."""
    if library in sys.modules:
        yield
        return
    with (
        console.status(f"loading {library}")
        if console.is_terminal and not quiet
        else nullcontext()
    ):
        if not console.is_terminal:
            say(f"loading {library}", quiet)
        gc.disable()  # a third of the time would go into searching a million new objects for garbage
        try:
            importlib.import_module(library)
            yield
        finally:
            gc.freeze()
            gc.enable()


@contextmanager
def user_errors(stopped: str = STOPPED) -> Iterator[None]:
    """Reports a user's mistake or a system fault in one line with exit code 2, a signal with its code; bugs pass
    through."""
    try:
        try:
            yield
        finally:
            clear_screen()
    except UserError as error:
        say("error: " + " ".join(str(error).split()))
        raise SystemExit(2) from None
    except Incomplete as error:
        say("incomplete: " + " ".join(str(error).split()))
        raise SystemExit(INCOMPLETE) from None
    except KeyboardInterrupt as stop:
        say(stopped)
        raise SystemExit(getattr(stop, "exit_code", 130)) from None
    except Exception as error:
        fault = system_fault(error)
        if fault is None:
            raise
        of_output = fault.filename == STANDARD_OUTPUT
        if of_output and fault.errno == errno.EPIPE:
            raise SystemExit(_NOBODY_READS) from None
        then = "" if of_output else stopped.partition("; ")[2]
        say(
            f"error: {fault_in_words(fault)}"
            + (f" {then[0].upper()}{then[1:]}." if then else "")
        )
        raise SystemExit(2) from None
