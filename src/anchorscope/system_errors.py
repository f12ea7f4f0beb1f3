"""Faults of the machine, told in one line: a full disk, a quota, a missing right, a folder that went away, no memory.

Such a fault is no mistake of ours, wherever it comes up, and a run survives it. It is recognised in one place, whoever
reports it: Python, or a library that wraps what the system said in an exception of its own.
"""

import errno
import functools
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from anchorscope.errors import UserError

STANDARD_OUTPUT = "standard output"
"""What stands in the place of a file's name where a result could not be printed."""
_IN_TEXT = re.compile(r"\(os error (\d+)\)")  # how libraries written in Rust (safetensors, polars, tokenizers) say it
_NO_MEMORY = re.compile(r"not enough memory: you tried to allocate|Unable to allocate .* for an array|std::bad_alloc")
_BREAKS_ANYTHING = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO, errno.EMFILE, errno.ENFILE}
_LONGEST = 300
_OTHER_PLACE = "change that, or choose another place"
_TOLD: dict[int, tuple[str, str]] = {
    errno.ENOSPC: ("The disk is full{at}", "free some room there"),
    errno.EDQUOT: ("Your quota on this disk is used up{at}", "free some room there, or choose another place"),
    errno.EFBIG: ("A file grew larger than this system allows{at}", "raise the limit (ulimit -f)"),
    errno.EROFS: ("This file system can only be read{at}", _OTHER_PLACE),
    errno.EACCES: ("You have no right to do this{at}", _OTHER_PLACE),
    errno.EPERM: ("You have no right to do this{at}", _OTHER_PLACE),
    errno.EIO: ("The disk, or the way to it, reports an error{at}", "check the disk, or choose another place"),
    errno.ENAMETOOLONG: ("A name is longer than this file system allows{at}", "choose a shorter one"),
    errno.ELOOP: ("Symbolic links lead in a circle{at}", _OTHER_PLACE),
    errno.ENOTDIR: ("A file stands where a folder has to be{at}", _OTHER_PLACE),
    errno.EISDIR: ("A folder stands where a file has to be{at}", _OTHER_PLACE),
    errno.ENOENT: ("A file or folder is not there, or not any more{at}", "leave it in place while the command runs"),
    errno.ESTALE: ("A file or folder is not there any more{at}", "leave it in place while the command runs"),
    errno.EMFILE: ("Too many files are open{at}", "allow more (ulimit -n 4096)"),
    errno.ENFILE: ("Too many files are open on this machine{at}", "close other programs"),
    errno.ETXTBSY: ("Another program is using this file{at}", "end it"),
    errno.EBUSY: ("Another program is using this file{at}", "end it"),
    errno.ENOMEM: ("There is not enough memory{at}", "close other programs, or ask for less"),
    errno.EAGAIN: (
        "The system has no process or memory to spare{at}",
        "close other programs, or raise the limits (ulimit -a)",
    ),
}
"""What happened, and what to do about it, by the system's number."""
F = TypeVar("F", bound=Callable[..., Any])


def system_fault(error: BaseException) -> OSError | None:
    """The fault of the machine behind an exception, as the system would have told it; None where there is none."""
    seen: list[BaseException] = []
    while error not in seen:
        seen.append(error)
        if isinstance(error, OSError) and error.errno is not None:
            return error
        if found := _IN_TEXT.search(str(error)):
            number = int(found.group(1))
            return OSError(number, os.strerror(number))
        if isinstance(error, MemoryError) or _NO_MEMORY.search(str(error)):
            return OSError(errno.ENOMEM, " ".join(str(error).split()) or os.strerror(errno.ENOMEM))
        if error.__cause__ is not None:
            error = error.__cause__
        elif isinstance(error.__context__, OSError) and error.__context__.errno in _BREAKS_ANYTHING:
            error = error.__context__
    return None


def fault_in_words(fault: OSError) -> str:
    """One line: what happened, where, what the system called it, and what to do."""
    number, said = fault.errno or 0, str(fault.strerror or fault)
    if fault.filename == STANDARD_OUTPUT:
        return f"The result could not be written to standard output ({said}); send it elsewhere."
    place = os.fsdecode(fault.filename) if isinstance(fault.filename, str | bytes) else ""
    at = f" at {place!r}" if place else ""
    what, then = _TOLD.get(number, ("The system refused something{at}", "mend that"))
    return f"{what.format(at=_shortened(at))} ({_shortened(said)}); {then}."


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST // 2]} … {text[-_LONGEST // 2 :]}"


@contextmanager
def naming(place: object) -> Iterator[None]:
    """Says where a fault happened that names no file itself: libraries, and writes to an open file, do not."""
    try:
        yield
    except Exception as error:
        fault = system_fault(error)
        if fault is None or fault.filename is not None or fault.errno == errno.ENOMEM:
            raise
        raise OSError(fault.errno, fault.strerror, str(place)) from error


@contextmanager
def system_errors_told() -> Iterator[None]:
    """Turns a fault of the machine into a `UserError`; all else passes as it is."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        fault = system_fault(error)
        if fault is None:
            raise
        raise UserError(f"{fault_in_words(fault)} Then do the same again.") from error


def told_to_callers(function: F) -> F:
    """For the functions that Python callers use: faults of the machine come as `UserError`."""

    @functools.wraps(function)
    def wrapped(*arguments: Any, **options: Any) -> Any:
        with system_errors_told():
            return function(*arguments, **options)

    return wrapped  # type: ignore[return-value]
