"""Errors in one line: what is wrong, what was found, what is allowed, what to do next.

A `UserError` ends a command with exit code 2, `Incomplete` with 3. System faults (a full disk, missing permissions, no
memory) are recognised too, also inside exceptions of libraries. Any other exception is a bug and keeps its traceback.
"""

import difflib
import errno
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

STANDARD_OUTPUT = "standard output"
"""Instead of a file's name, for a result that couldn't be printed."""
_IN_TEXT = re.compile(
    r"\(os error (\d+)\)"
)  # how libraries written in Rust (safetensors, polars, tokenizers) put it
_NO_MEMORY = re.compile(
    r"not enough memory: you tried to allocate|Unable to allocate .* for an array|std::bad_alloc"
)
_BREAKS_ANYTHING = {
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EFBIG,
    errno.EROFS,
    errno.EIO,
    errno.EMFILE,
    errno.ENFILE,
}
_ADVICE = {
    **dict.fromkeys(
        (errno.ENOSPC, errno.EDQUOT), "free some room there, or choose another folder"
    ),
    errno.EFBIG: "raise the limit (ulimit -f)",
    **dict.fromkeys(
        (errno.ENOENT, errno.ESTALE), "leave it in place while the command runs"
    ),
    errno.EMFILE: "allow more open files (ulimit -n 4096)",
    errno.ENOMEM: "close other programs, or ask for less",
    errno.EAGAIN: "close other programs, or raise the limits (ulimit -a)",
}


class UserError(Exception):
    """A mistake that the user can fix; its text is the whole message."""

    def _render_traceback_(self) -> list[str]:
        return [f"{type(self).__name__}: {self}"]


class TooFewAnswers(UserError):
    """A dataset gave too few true or false answers; a run's other datasets continue without it."""


class Incomplete(Exception):
    """Work that ended for lack of workers; the same command resumes it."""


class MemoryRanOut(Exception):
    """A planned batch doesn't fit into memory: its pass must be planned again, with fewer tokens."""


class InterventionNotApplied(RuntimeError):
    """A requested cut did not happen. Never the user's fault: a flat curve would look like a finding."""


def shorten(text: str, longest: int) -> str:
    """The text without its middle, if it is too long."""
    return (
        text
        if len(text) <= longest
        else f"{text[: longest // 2]} … {text[-longest // 2 :]}"
    )


def counted(number: int, noun: str) -> str:
    """How many of something: "1 run", "2 runs"."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def shortened(value: object) -> str:
    """A value for a one-line message, shortened."""
    try:
        return shorten(ascii(value) if isinstance(value, bytes) else repr(value), 120)
    except (
        RecursionError,
        ValueError,
    ):  # lists in lists in lists, or a number of thousands of digits
        return "a value too large to show"


def unknown(kind: str, name: str, allowed: Iterable[str], then: str = "") -> UserError:
    """The error for an unknown name, with the nearest allowed one as a hint."""
    names, name = sorted(allowed), shorten(name, 200)
    near = difflib.get_close_matches(name.lower(), names, n=1, cutoff=0.5)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    return UserError(
        f"Unknown {kind} {name!r}; allowed: {', '.join(names)}.{hint}{f' {then}' if then else ''}"
    )


def system_fault(error: BaseException) -> OSError | None:
    """The system fault behind an exception; None if there is none."""
    seen: list[BaseException] = []
    while error not in seen:
        seen.append(error)
        if isinstance(error, OSError) and error.errno is not None:
            return error
        if match := _IN_TEXT.search(str(error)):
            number = int(match.group(1))
            return OSError(number, os.strerror(number))
        if isinstance(error, MemoryError) or _NO_MEMORY.search(str(error)):
            return OSError(
                errno.ENOMEM, " ".join(str(error).split()) or os.strerror(errno.ENOMEM)
            )
        if error.__cause__ is not None:
            error = error.__cause__
        elif (
            isinstance(error.__context__, OSError)
            and error.__context__.errno in _BREAKS_ANYTHING
        ):
            error = error.__context__
    return None


def fault_in_words(fault: OSError) -> str:
    """One line: what the system says, at which file, and what to do."""
    text = shorten(str(fault.strerror or fault), 300)
    if fault.filename == STANDARD_OUTPUT:
        return f"The result could not be written to standard output ({text}); send it elsewhere."
    at = (
        f" at {shorten(os.fsdecode(fault.filename), 300)!r}"
        if isinstance(fault.filename, str | bytes)
        else ""
    )
    return f"{text}{at}; {_ADVICE.get(fault.errno or 0, 'change that, or choose another folder')}."


@contextmanager
def naming(path: object) -> Iterator[None]:
    """Adds the file to a fault that names none."""
    try:
        yield
    except Exception as error:
        fault = system_fault(error)
        if fault is None or fault.filename is not None or fault.errno == errno.ENOMEM:
            raise
        raise OSError(fault.errno, fault.strerror, str(path)) from error


@contextmanager
def faults_as_user_errors() -> Iterator[None]:
    """Turns a system fault into a `UserError`; also a decorator."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        fault = system_fault(error)
        if fault is None:
            raise
        raise UserError(f"{fault_in_words(fault)} Then do the same again.") from error
