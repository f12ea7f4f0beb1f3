"""Worker processes that start quickly: one process imports the libraries, and every worker is a copy of it (a fork).

Importing torch and transformers takes far longer than loading a small model. So one process, the starter, does it once
and has neither threads nor a model; workers that are asked for later, also in place of lost ones, begin at once and
share its memory. Only for workers on a CPU: what CUDA's libraries do when they are copied is not known here. The
starter ends when the connection to the coordinator does, and its workers with it.
"""

import contextlib
import gc
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from anchorscope.execute.frames import Closed, Frames

STARTER = {"kind": "starter"}
"""What a process is told that shall be one, in place of a job."""
_REAP = 5.0  # seconds that a killed process is waited for
_NOT_STARTED = 1  # the exit code of a worker that could not be begun


class Started:
    """A process that was asked for, told of as `subprocess.Popen` tells of its own."""

    def __init__(self, changed: threading.Condition) -> None:
        self._changed = changed
        self.pid: int | None = None
        """None until it has begun."""
        self.returncode: int | None = None
        """None until it has ended."""
        self.doomed = False
        """Whether it is to be killed as soon as it has begun."""

    def send_signal(self, number: int) -> None:
        """Ends it, now or when it begins: nothing else is ever sent."""
        assert number == signal.SIGKILL
        with self._changed:
            self.doomed = True
            if self.pid is not None and self.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self.pid, number)

    def wait(self, seconds: float) -> None:
        """Waits until it has ended; TimeoutExpired where it does not."""
        with self._changed:
            if not self._changed.wait_for(lambda: self.returncode is not None, seconds):
                raise subprocess.TimeoutExpired("worker", seconds)


class Starter:
    """The coordinator's side."""

    def __init__(self, entry: Sequence[str], environment: Mapping[str, str]) -> None:
        """`entry` is what Python is started with; every worker has this environment."""
        self.printed = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `close`
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, *entry, str(theirs.fileno())],
                env=dict(environment),
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=self.printed,
                stderr=self.printed,
            )
        self._connection, self._frames = ours, Frames(ours)
        self._changed = threading.Condition()
        self._asked: deque[Started] = deque()
        self._begun: dict[int, Started] = {}
        self.is_gone = False
        with contextlib.suppress(Closed):  # the reader tells it
            self._frames.send(STARTER)
        threading.Thread(target=self._read, name="starter", daemon=True).start()

    def start(self, connection: int, printed: int) -> Started:
        """Asks for a worker with these two files, its connection and what it prints into; does not wait for it."""
        with self._changed:
            found = Started(self._changed)
            if self.is_gone:
                found.returncode = self._process.returncode
                return found
            self._asked.append(found)
            try:
                socket.send_fds(self._connection, [b"+"], [connection, printed])
            except OSError:  # it was not asked, and will not tell of a worker
                self._asked.remove(found)
                found.returncode = _NOT_STARTED
            return found

    def _read(self) -> None:
        with contextlib.suppress(Closed, KeyError):
            while True:
                self._take(self._frames.receive()[0])
        self._process.kill()
        code = self._process.wait()
        with self._changed:
            self.is_gone = True
            for one in (*self._asked, *self._begun.values()):
                one.returncode = code
            self._asked.clear()
            self._begun.clear()
            self._changed.notify_all()

    def _take(self, told: Mapping[str, Any]) -> None:
        with self._changed:
            if told["kind"] == "began":
                one = self._begun[told["pid"]] = self._asked.popleft()
                one.pid = told["pid"]
                if one.doomed:
                    with contextlib.suppress(ProcessLookupError):  # it has ended by itself
                        os.kill(told["pid"], signal.SIGKILL)
            elif told["kind"] == "failed":
                self._asked.popleft().returncode = _NOT_STARTED
            else:
                self._begun.pop(told["pid"]).returncode = told["code"]
            self._changed.notify_all()

    def close(self) -> None:
        """Ends it, after workers that were killed have ended: nobody else would ask how they did."""
        with self._changed:
            self._changed.wait_for(lambda: not any(one.doomed for one in self._begun.values()), _REAP)
        self._process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_REAP)
        self._frames.close()
        self.printed.close()


def serve_starts(connection: socket.socket, frames: Frames, begin: Callable[[int], None]) -> None:
    """The starter itself: copies this process whenever it is asked, until the connection is closed."""
    try:
        _import_libraries()
    except BaseException:  # told by the coordinator: what a starter prints is kept
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)
    gc.freeze()  # so that looking for garbage copies no memory
    woken, wake = os.pipe()
    os.set_blocking(woken, False)
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    while True:
        ready, _, _ = select.select([connection.fileno(), woken], [], [])
        if woken in ready:
            os.read(woken, 2**12)
            _tell_ended(frames)
        if connection.fileno() in ready:
            data, files, _, _ = socket.recv_fds(connection, 1, 2)
            if not data:
                return
            pid: int | None = None
            try:
                pid = os.fork()
            except OSError:  # no memory or no number for another process: those that run go on
                traceback.print_exc()
            if pid == 0:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                for file in (woken, wake):
                    os.close(file)
                connection.close()
                _be_worker(files[0], files[1], begin)
            for file in files:
                os.close(file)
            frames.send({"kind": "failed"} if pid is None else {"kind": "began", "pid": pid})


def _import_libraries() -> None:
    from anchorscope.execute import numerics, wire, worker  # noqa: F401 - what every worker needs
    from anchorscope.models import loading  # noqa: F401


def _tell_ended(frames: Frames) -> None:
    with contextlib.suppress(ChildProcessError):
        while (found := os.waitpid(-1, os.WNOHANG))[0]:
            frames.send({"kind": "ended", "pid": found[0], "code": os.waitstatus_to_exitcode(found[1])})


def _be_worker(connection: int, printed: int, begin: Callable[[int], None]) -> None:
    """In the copy; does not come back."""
    try:
        for stream in (1, 2):
            os.dup2(printed, stream)
        os.close(printed)
        begin(connection)
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
    os._exit(1)
