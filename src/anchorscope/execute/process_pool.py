"""Workers as processes of this machine, each with its own model.

Every process has two threads here: one reads what it says, one writes what it is sent. So a process that hangs holds up
neither the others nor the coordinator. All that it prints is kept, and the last lines are told when it is lost.
"""

import os
import queue
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import IO, Any

from anchorscope.errors import UserError
from anchorscope.execute.content_hash import Body, content_hash
from anchorscope.execute.frames import Closed, Frames
from anchorscope.execute.pool import REPLACEMENTS, USER, Done, Event, Failed, Joined, Lost, next_events
from anchorscope.execute.starter import Starter
from anchorscope.execute.worker_job import WorkerJob, gpu_shares, share_job, thread_settings

_ENTRY = ("-P", "-m", "anchorscope.execute.worker_process")  # -P: nothing comes from the folder that the user is in
_LAST_LINES = 20
_LAST_BYTES = 2**16
_ITS_OWN_END = 1.0  # seconds that a process whose connection is closed is given to end by itself
_REAP = 5.0  # seconds that a killed process is waited for; one that the system cannot end is left to it


class ProcessPool:
    """A pool of processes."""

    def __init__(
        self,
        n_workers: int,
        devices_per_worker: int = 1,
        replacements: int = REPLACEMENTS,
        entry: Sequence[str] = _ENTRY,
        copied: bool | None = None,
    ) -> None:
        """`replacements` per worker that was asked for; `entry` is what Python is started with.

        `copied` says whether workers on a CPU are copies of one process (`starter`): those with our own entry are.
        """
        if n_workers < 1:
            raise UserError(f"Workers: {n_workers}; allowed: 1 or more.")
        self.n_workers = n_workers
        self._devices_per_worker, self._entry = devices_per_worker, tuple(entry)
        self._copied = tuple(entry) == _ENTRY if copied is None else copied
        self._starter: Starter | None = None
        self._left = replacements * n_workers
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._live: dict[str, _Process] = {}
        self._named = 0
        self._job: WorkerJob | None = None
        self._shares: list[str] = []

    def start(self, job: Mapping[str, Any]) -> None:
        """Starts all processes; they join as they have loaded their model."""
        self._job = share_job(WorkerJob.of(job), self._devices_per_worker)
        if self._job.device != "cpu":
            self._shares = gpu_shares(self.n_workers, self._devices_per_worker, visible_gpus())
            self._job = replace(self._job, threads=0)
        for slot in range(self.n_workers):
            self._begin(slot)

    def _begin(self, slot: int) -> None:
        assert self._job is not None
        self._named += 1
        name = f"w{self._named}"
        share = {"CUDA_VISIBLE_DEVICES": self._shares[slot]} if self._shares else {}
        environment = {**os.environ, **thread_settings(self._job.threads), **share}
        begin: Callable[[int, int], Any] = partial(_started, self._entry, environment)
        if self._copied and self._job.device == "cpu":
            if self._starter is not None and self._starter.is_gone:
                self._starter.close()
                self._starter = None
            self._starter = self._starter or Starter(self._entry, environment)
            begin = self._starter.start
        self._live[name] = _Process(name, slot, begin, self._job, self._events)

    def submit(self, worker: str, task: str, body: bytes, blobs: Mapping[str, bytes]) -> None:
        """Puts a task at the end of a process's line; one for a process that is gone is dropped, as it is told lost."""
        if worker in self._live:
            self._live[worker].send({"task": task}, {"body": body, **blobs})

    def wait(self, seconds: float) -> list[Event]:
        """What has happened: at least one event, or none after so many seconds."""
        return next_events(self._events, self._told, seconds)

    def _told(self, event: Event) -> list[Event]:
        """An event as the coordinator sees it; nothing, where it comes from a process that was discarded."""
        process = self._live.get(event.worker)
        if process is None:
            return []
        if isinstance(event, Lost):
            reason = event.reason
            del self._live[event.worker]
            last = process.end(_ITS_OWN_END)
            if not last and self._starter is not None and self._starter.is_gone:
                last = _last_lines(self._starter.printed)
            if not process.was_refused:
                reason = f"{reason}: {_how_it_ended(process.code)}{last}"
                self._replace(process.slot)
            return [Lost(event.worker, reason)]
        return [event]

    def discard(self, worker: str, reason: str) -> None:
        """Kills a process; nothing more is told of it."""
        process = self._live.pop(worker, None)
        if process is not None:
            process.end()
            self._replace(process.slot)

    def _replace(self, slot: int) -> None:
        if self._left > 0:
            self._left -= 1
            self._begin(slot)

    def close(self) -> None:
        """Kills all processes."""
        self._left = 0
        living, self._live = list(self._live.values()), {}
        for process in living:
            process.kill()
        if self._starter is not None:
            self._starter.close()
        for process in living:
            process.end()


class _Process:
    """One process, with the threads that read from it and write to it."""

    def __init__(
        self, name: str, slot: int, begin: Callable[[int, int], Any], job: WorkerJob, events: "queue.SimpleQueue[Event]"
    ) -> None:
        """`begin` starts a process with a connection and a file that it prints into."""
        self.name, self.slot, self.was_refused = name, slot, False
        self._events, self._outbox = events, queue.SimpleQueue[Any]()
        self._printed = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `end`
        ours, theirs = socket.socketpair()
        self._frames = Frames(ours, process=lambda: self._process.pid if self.code is None else None)
        with theirs:
            self._process = begin(theirs.fileno(), self._printed.fileno())
        self.send({"job": job.plain()}, {})
        for work in (self._read, self._write):
            threading.Thread(target=work, name=f"{name} {work.__name__}", daemon=True).start()

    @property
    def code(self) -> int | None:
        """How it ended; None where it has not."""
        return self._process.returncode

    def send(self, header: Mapping[str, Any], parts: Mapping[str, bytes]) -> None:
        """Sent as soon as the process takes it; does not wait."""
        self._outbox.put((header, parts))

    def _write(self) -> None:
        with suppress(Closed):  # the reader tells it
            while (message := self._outbox.get()) is not None:
                self._frames.send(*message)

    def _read(self) -> None:
        try:
            while True:
                self._events.put(self._event(*self._frames.receive()))  # no name: nothing is held while it waits
        except Closed as error:
            reason = str(error)
        except Exception as error:  # whatever it is, it has to be told
            reason = f"it sent what is no answer ({type(error).__name__}: {error})"
        self._events.put(Lost(self.name, f"the process ended or its connection did ({reason})"))

    def _event(self, header: Mapping[str, Any], parts: Mapping[str, Body]) -> Event:
        kind = header["kind"]
        if kind == "joined":
            return Joined(self.name, header["hello"])
        if kind == "done":
            body = parts["body"]  # hashed by this thread: others go on meanwhile
            return Done(self.name, header["task"], header["sha256"], body, content_hash([body]))
        if kind == "failed":
            return Failed(self.name, header["task"], header["failure"], header["text"])
        if kind == "refused":
            self.was_refused = header["failure"] == USER  # another one would be, too
            return Lost(self.name, header["text"])
        raise ValueError(f"kind {kind!r}")

    def kill(self) -> None:
        """Ends the process; a stopped one, too."""
        with suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGKILL)

    def end(self, patience: float = 0.0) -> str:
        """Ends process, threads and connection, and gives the last lines that it printed."""
        if patience:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(patience)
        self.kill()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_REAP)
        self._outbox.put(None)
        self._frames.close()
        with self._printed as printed:
            return _last_lines(printed)


def _last_lines(printed: IO[bytes]) -> str:
    size = printed.seek(0, os.SEEK_END)
    printed.seek(max(0, size - _LAST_BYTES))
    lines = printed.read().decode(errors="replace").splitlines()[-_LAST_LINES:]
    return "".join(f"\n{line}" for line in lines)


def _started(
    entry: Sequence[str], environment: Mapping[str, str], connection: int, printed: int
) -> "subprocess.Popen[bytes]":
    """A process of its own."""
    return subprocess.Popen(
        [sys.executable, *entry, str(connection)],
        env=dict(environment),
        pass_fds=(connection,),
        stdin=subprocess.DEVNULL,
        stdout=printed,
        stderr=printed,
    )


def _how_it_ended(code: int | None) -> str:
    if code is not None and code < 0:
        return f"signal {signal.Signals(-code).name}"
    return f"exit code {code}"


def visible_gpus() -> list[str]:
    """The GPUs that this process may use, as CUDA names them."""
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is not None:
        return [one.strip() for one in chosen.split(",") if one.strip() not in ("", "-1")]
    import torch

    return [str(index) for index in range(torch.cuda.device_count())]
