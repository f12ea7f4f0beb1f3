"""What the coordinator sees of its workers: a pool that starts them, hands them tasks and tells what becomes of them.

A pool knows nothing of shards, tries or leases, and never raises because a worker died: that is an event. It replaces
a worker that was lost or discarded by a new one, under a new name, while it has replacements left.
"""

import queue
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from anchorscope.errors import MemoryRanOut as MemoryRanOut
from anchorscope.execute.content_hash import Body
from anchorscope.execute.worker_job import ERROR as ERROR
from anchorscope.execute.worker_job import MEMORY as MEMORY
from anchorscope.execute.worker_job import USER as USER

REPLACEMENTS = 3
"""New workers that a pool starts in place of lost ones, per worker that was asked for."""


@dataclass(frozen=True)
class Joined:
    """A worker is there, its model loaded; `hello` is what it says of itself, as plain JSON."""

    worker: str
    hello: Mapping[str, Any]


@dataclass(frozen=True)
class Done:
    """A worker has done a task; `sha256` is the `content_hash` of the packed part, as the worker computed it."""

    worker: str
    task: str
    sha256: str
    body: Body
    received: str | None = None
    """The same of the body as it came, where the pool has computed it already."""


@dataclass(frozen=True)
class Failed:
    """A worker could not do a task, and goes on to the next one."""

    worker: str
    task: str
    kind: str
    """`memory`, `user` or `error`."""
    text: str


@dataclass(frozen=True)
class Lost:
    """A worker is gone: its process died, its machine is away, it could not begin."""

    worker: str
    reason: str


Event = Joined | Done | Failed | Lost


def next_events(events: "queue.SimpleQueue[Any]", told: Callable[[Any], list[Event]], seconds: float) -> list[Event]:
    """What threads have put into a queue, as `told` passes it on: at least one event, or none after so many seconds."""
    stop = time.monotonic() + seconds
    found: list[Event] = []
    while not found:
        try:  # no name for the event: one that is dropped must not be held while the next is waited for
            found = told(events.get(timeout=max(0.0, stop - time.monotonic())))
        except queue.Empty:
            return []
    with suppress(queue.Empty):
        while True:
            found += told(events.get_nowait())
    return found


@runtime_checkable
class Pool(Protocol):
    """Workers, wherever they are."""

    n_workers: int
    """How many were asked for."""

    def start(self, job: Mapping[str, Any]) -> None:
        """Starts the workers with a job (plain JSON: the model and how it is loaded) and returns at once."""

    def submit(self, worker: str, task: str, body: bytes, blobs: Mapping[str, bytes]) -> None:
        """Puts a task at the end of a worker's line, with the blobs that it has not been sent before."""

    def wait(self, seconds: float) -> list[Event]:
        """What has happened: at least one event, or none after so many seconds."""

    def discard(self, worker: str, reason: str) -> None:
        """Ends a worker that took too long or was refused, at once and without waiting for it."""

    def close(self) -> None:
        """Ends all workers, without waiting for them."""
