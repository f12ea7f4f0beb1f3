"""One command in a forked child: its own folder and limits, its output in files, nobody left behind.

A fence lets it write only below its folders and reach no network, and notes every try. To the command a folder outside
looks like a read-only disk, and the network like one that is down.
"""

import atexit
import contextlib
import ctypes
import errno
import gc
import os
import resource
import signal
import socket
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hostile.case import Case

_KEEP_ORPHANS = 36  # PR_SET_CHILD_SUBREAPER: whoever outlives a child becomes a child of ours
_GRACE = 3.0  # seconds that helpers have to follow their parent
_PATIENCE = 600
_MORE_ADDRESSES = 8 << 30
CHANGES = {
    "os.mkdir": ((0, 2),),
    "os.rmdir": ((0, 1),),
    "os.remove": ((0, 1),),
    "os.truncate": ((0, None),),
    "os.chmod": ((0, 2),),
    "os.chown": ((0, 3),),
    "os.utime": ((0, 3),),
    "os.symlink": ((1, 2),),
    "os.rename": ((0, 2), (1, 3)),
    "os.link": ((1, 3),),
}
"""Audit events that change the disk: the argument that is a path, and the one that is its folder's handle."""
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
NETWORK = ("socket.connect", "socket.getaddrinfo", "socket.gethostbyname", "socket.sendto")


@dataclass(frozen=True)
class Outcome:
    """How a command ended."""

    code: int
    """The exit code, or minus the signal that ended it."""
    told: str
    """Standard error."""
    shown: str
    """Standard output."""
    seconds: float
    memory_mb: float
    """Peak, above what the child began with."""
    left: tuple[str, ...]
    """Processes that outlived it."""
    noted: tuple[str, ...]
    """Tries to write outside or to use the network."""


def keep_orphans() -> None:
    """Whatever a child leaves running is from now on seen here."""
    ctypes.CDLL(None).prctl(_KEEP_ORPHANS, 1, 0, 0, 0)


def forked(work: Callable[[], object]) -> int:
    """The exit code of a child that does the work, or minus the signal that ended it."""
    child = os.fork()
    if child == 0:
        code = 1
        signal.alarm(_PATIENCE)
        with contextlib.suppress(BaseException):
            try:
                work()
                code = 0
            except BaseException:
                traceback.print_exc()
                sys.stderr.flush()
        os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def outcome_of(case: Case, command: Callable[[], object], home: Path) -> Outcome:
    """Runs a case's command; `home` is where libraries keep their caches."""
    notes = {name: case.folder / f".{name}" for name in ("out", "err", "noted", "base")}
    for path in notes.values():
        path.touch()
    began = time.monotonic()
    child = os.fork()
    if child == 0:
        _be(case, command, notes, home)
    status, peak = _wait(child, case, began)
    seconds = time.monotonic() - began
    left = _left_behind()
    texts = {name: path.read_bytes().decode(errors="backslashreplace") for name, path in notes.items()}
    for path in notes.values():
        path.unlink()
    noted, above = tuple(dict.fromkeys(texts["noted"].splitlines())), peak - float(texts["base"] or peak)
    return Outcome(os.waitstatus_to_exitcode(status), texts["err"], texts["out"], seconds, above, left, noted)


def _wait(child: int, case: Case, began: float) -> tuple[int, float]:
    """Waits for the child, interrupts it when it is time, and takes its peak of resident memory in MB."""
    waiting = case.interrupt
    while waiting is not None:
        done, status, usage = os.wait4(child, os.WNOHANG)
        if done:
            return status, usage.ru_maxrss / 1024
        if time.monotonic() - began >= waiting[0]:
            os.kill(child, waiting[1])
            waiting = None
        else:
            time.sleep(0.02)
    _, status, usage = os.wait4(child, 0)
    return status, usage.ru_maxrss / 1024


def _be(case: Case, command: Callable[[], object], notes: Mapping[str, Path], home: Path) -> None:
    """The child's life."""
    code = 1
    try:
        notes["base"].write_text(str(_resident()))
        tempfile.tempdir = None  # it is looked up once a process
        atexit._clear()  # what the server wants done at its end is not ours to do
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a server in the background hears none of these
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(case.seconds)
        os.setsid()
        os.chdir(case.folder / case.working_folder)
        for handle, path in enumerate(("/dev/null", notes["out"], notes["err"])):
            opened = os.open(path, os.O_RDWR)
            os.dup2(opened, handle)
            os.close(opened)
        for name in ("tmp", "cache"):
            (case.folder / name).mkdir(exist_ok=True)
        os.environ.update(
            {"HOME": str(home), "TMPDIR": str(case.folder / "tmp"), "ANCHORSCOPE_CACHE": str(case.folder / "cache")}
        )
        addresses = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (addresses + _MORE_ADDRESSES,) * 2)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        sys.argv = ["anchorscope", *case.words]
        gc.enable()
        fence([case.folder, home], notes["noted"])
        code = _called(command)
    except BaseException:
        traceback.print_exc()
    os._exit(code)


def _called(command: Callable[[], object]) -> int:
    """The exit code of an interpreter: waiting for threads, exit handlers and closing the output are part of it."""
    try:
        command()
        code = 0
    except SystemExit as ending:
        code = ending.code if isinstance(ending.code, int) else int(ending.code is not None)
    except BaseException:
        traceback.print_exc()
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
    except OSError:
        code = 120
    with contextlib.suppress(OSError):
        sys.stderr.flush()
    return code & 0xFF


def _resident() -> float:
    """Resident memory of this process in MB."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / (1 << 20)


def _left_behind() -> tuple[str, ...]:
    """Names of processes that outlived the child by some seconds; they are ended."""
    until = time.monotonic() + _GRACE
    while time.monotonic() < until:
        try:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                time.sleep(0.02)
        except ChildProcessError:
            return ()
    left = _children()
    for one, _ in left:
        with contextlib.suppress(ProcessLookupError):
            os.kill(one, signal.SIGKILL)
            os.waitpid(one, 0)
    return tuple(name for _, name in left)


def _children() -> list[tuple[int, str]]:
    found = []
    for place in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            number, _, rest = place.read_text(errors="replace").partition(" (")
            name, _, numbers = rest.rpartition(") ")
            if int(numbers.split()[1]) == os.getpid():
                found.append((int(number), name))
    return found


def fence(roots: Sequence[Path], log: Path) -> None:
    """Puts up the fence; there is no way to take it down again in this process."""
    allowed = tuple(os.path.realpath(root) for root in roots)
    handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def note(kind: str, what: Any) -> None:
        os.write(handle, f"{kind} {what!r}\n".encode(errors="backslashreplace"))

    def check(path: Any, folder: Any = -1) -> None:
        if isinstance(path, int):
            return  # a handle: it was opened before
        place = os.path.join(_folder(folder), os.fsdecode(path))
        parent, name = os.path.split(place.rstrip("/") or "/")
        real = os.path.join(os.path.realpath(parent), name)
        if not real.startswith(("/dev/", "/proc/self/")) and not f"{real}/".startswith(
            tuple(f"{one}/" for one in allowed)
        ):
            note("outside", place)
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), place)

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            path, _, flags = arguments
            if (
                flags & WRITING
                and path is not None
                and b"\0" not in os.fsencode(path if not isinstance(path, int) else b"")
            ):
                check(path)
        elif event in CHANGES:
            for number, folder in CHANGES[event]:
                check(arguments[number], -1 if folder is None else arguments[folder])
        elif event in NETWORK:
            if event == "socket.connect" and arguments[0].family == socket.AF_UNIX:
                return
            note("network", arguments[-1] if event == "socket.connect" else arguments[0])
            raise OSError(errno.ENETUNREACH, os.strerror(errno.ENETUNREACH))
        elif event == "subprocess.Popen" and "pip" in map(str, arguments[1]):
            note("network", "pip")
            raise OSError(errno.EACCES, os.strerror(errno.EACCES), str(arguments[0]))

    sys.addaudithook(hook)


def _folder(handle: Any) -> str:
    """The folder that a relative path begins at."""
    return os.getcwd() if handle in (-1, None) else os.readlink(f"/proc/self/fd/{handle}")
