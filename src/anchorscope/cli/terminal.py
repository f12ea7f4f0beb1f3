"""What every command does alike: mistakes in one line, progress for long steps, JSON for programs.

Results go to standard output, everything else to standard error, so that `anchorscope … --json | jq` always works.
"""

import errno
import gc
import importlib
import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any

from rich.console import Console

from anchorscope.cli.signals import STOPPED, exit_code
from anchorscope.errors import Incomplete, UserError
from anchorscope.progress import Progress, Silent
from anchorscope.screen.messages import console as console
from anchorscope.screen.messages import duration as duration
from anchorscope.screen.messages import harmless as harmless
from anchorscope.screen.messages import say as say
from anchorscope.screen.progress import TerminalProgress, clear_screen
from anchorscope.system_errors import STANDARD_OUTPUT, fault_in_words, system_fault

_IN_A_PIPE = 100  # columns: a pipe has no width of its own
_NOBODY_READS = 141  # what a shell says of a command whose reader (head, less) has gone: 128 + SIGPIPE


def emit_json(record: Mapping[str, Any]) -> None:
    """The one JSON object on standard output. JSON has no NaN: a number that does not exist becomes null."""
    text = json.dumps(record, default=lambda value: value.tolist() if hasattr(value, "tolist") else str(value))
    sys.stdout.write(json.dumps(json.loads(text, parse_constant=lambda _: None)) + "\n")
    sys.stdout.flush()


def emit_text(text: str = "") -> None:
    """A result for people, on standard output."""
    sys.stdout.write(text + "\n")


@contextmanager
def page(pipe_width: int | None = None) -> Iterator[Console]:
    """Standard output, as wide as the terminal is; no text is read as markup, and no line ends in blanks."""
    width = None if sys.stdout.isatty() else pipe_width or _IN_A_PIPE
    console = Console(width=width, markup=False, highlight=False, emoji=False)
    with console.capture() as written:
        yield console
    emit_text("\n".join(line.rstrip() for line in written.get().splitlines()))


def short(text: str | None, longest: int) -> str:
    """One short harmless line."""
    line = " ".join(harmless(text).split())
    return line if len(line) <= longest else line[: longest - 1] + "…"


def listener(quiet: bool) -> Progress:
    """What a command passes to its long steps."""
    return Silent() if quiet else TerminalProgress()


@contextmanager
def loading(what: str, quiet: bool = False) -> Iterator[None]:
    """Imports that take seconds happen in here: a spinner on a terminal, one line elsewhere, so that the first word
    comes at once. Nothing is shown if the library is imported already.
    """
    if what in sys.modules:
        yield
        return
    with console.status(f"loading {what}") if console.is_terminal and not quiet else nullcontext():
        if not console.is_terminal:
            say(f"loading {what}", quiet)
        gc.disable()  # a third of the time would go into searching a million new objects for garbage
        try:
            importlib.import_module(what)
            yield
        finally:
            gc.freeze()
            gc.enable()


INCOMPLETE = 3
"""Exit code: not all could be done; what was done is kept, and the same command goes on."""


@contextmanager
def user_errors(stopped: str = STOPPED) -> Iterator[None]:
    """A mistake of the user becomes one line and exit code 2, a signal one line and its code; our own mistakes pass.

    A fault of the machine, such as a full disk, is told like a mistake of the user.
    """
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
        raise SystemExit(exit_code(stop)) from None
    except Exception as error:
        fault = system_fault(error)
        if fault is None:
            raise
        of_output = fault.filename == STANDARD_OUTPUT
        if of_output and fault.errno == errno.EPIPE:
            raise SystemExit(_NOBODY_READS) from None
        then = "" if of_output else stopped.partition("; ")[2]
        say(f"error: {fault_in_words(fault)}" + (f" {then[0].upper()}{then[1:]}." if then else ""))
        raise SystemExit(2) from None
