"""A pool of workers that follow a script, in simulated time: nothing sleeps, and every fault happens when it should."""

import hashlib
import heapq
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from anchorscope.execute.pool import Done, Event, Failed, Joined, Lost
from anchorscope.execute.wire import Packed

FAULTS = ("ok", "slow", "die", "hang", "late", "twice", "wrong", "error")
"""What a worker can do with a task; all but `late` are over when it says so. None of them is a wrong result."""


def result(task: str) -> bytes:
    """What a task gives."""
    return f"result of {task}".encode()


@dataclass
class Actor:
    """A worker: when it joins, and what it does with each task in turn; all is well when the script is over."""

    script: Sequence[str] = ()
    joins_after: float = 1.0
    seconds: float = 1.0
    hello: dict[str, object] = field(default_factory=dict)
    begins: bool = True
    """Whether it joins at all, or is lost instead."""


class SimulatedPool:
    """Workers that follow scripts."""

    def __init__(self, actors: Iterable[Actor], spare: Iterable[Actor] = (), n_workers: int | None = None) -> None:
        self.now = 0.0
        self._spare, self._number, self._waits = deque(spare), 0, 0
        self._coming: list[tuple[float, int, Event]] = []
        self._actors: dict[str, Actor] = {}
        self._scripts: dict[str, deque[str]] = {}
        self._lines: dict[str, deque[str]] = {}
        self.submitted: list[tuple[str, str]] = []
        self.blobs: list[tuple[str, str, tuple[str, ...]]] = []
        self.discarded: list[tuple[str, str]] = []
        first = list(actors)
        self.n_workers = len(first) if n_workers is None else n_workers
        for actor in first:
            self._begin(actor)

    def start(self, job: object) -> None:
        raise AssertionError("the coordinator is given a pool that is started")

    def clock(self) -> float:
        return self.now

    def _begin(self, actor: Actor) -> None:
        name = f"w{len(self._actors)}"
        self._actors[name], self._scripts[name], self._lines[name] = actor, deque(actor.script), deque()
        self._later(actor.joins_after, Joined(name, actor.hello) if actor.begins else Lost(name, "no room for it"))
        if not actor.begins:
            self._replace()

    def _replace(self) -> None:
        if self._spare:
            self._begin(self._spare.popleft())

    def _later(self, seconds: float, event: Event) -> None:
        self._number += 1
        heapq.heappush(self._coming, (self.now + seconds, self._number, event))

    def submit(self, worker: str, task: str, body: bytes, blobs: dict[str, bytes]) -> None:
        assert body == task.encode()
        self.submitted.append((worker, task))
        self.blobs.append((worker, task, tuple(blobs)))
        if worker in self._lines:  # else it has just died
            self._lines[worker].append(task)
            if len(self._lines[worker]) == 1:
                self._work(worker)

    def _work(self, worker: str) -> None:
        """What comes of the first task in a worker's line."""
        task, actor, script = self._lines[worker][0], self._actors[worker], self._scripts[worker]
        what, body = (script.popleft() if script else "ok"), result(task)
        digest = hashlib.sha256(body).hexdigest()
        good = Done(worker, task, digest, body)
        seconds = actor.seconds
        if what in ("ok", "twice"):
            self._later(seconds, good)
        elif what == "slow":
            self._later(9 * seconds, good)
        elif what == "late":
            self._later(500.0, good)
        elif what == "die":
            self._later(seconds, Lost(worker, "killed by signal 9"))
        elif what == "wrong":
            self._later(seconds, Done(worker, task, digest, body + b"!"))
        elif what == "lie":
            lie = b"lie of " + worker.encode() + body
            self._later(seconds, Done(worker, task, hashlib.sha256(lie).hexdigest(), lie))
        elif what in ("error", "memory", "user"):
            self._later(seconds, Failed(worker, task, what, f"{what} in {task}"))
        if what == "twice":
            self._later(2.5 * seconds, good)

    def wait(self, seconds: float) -> list[Event]:
        self._waits += 1
        assert self._waits < 20_000, "the coordinator waits for ever"
        assert seconds >= 0
        if not self._coming or self._coming[0][0] > self.now + seconds:
            assert seconds < 1e9, "nothing will ever come"
            self.now += seconds
            return []
        self.now = max(self.now, self._coming[0][0])
        events = []
        while self._coming and self._coming[0][0] <= self.now:
            events.append(self._happened(heapq.heappop(self._coming)[2]))
        return [event for event in events if event is not None]

    def _happened(self, event: Event) -> Event | None:
        line = self._lines.get(event.worker)
        if isinstance(event, Lost):
            if line is None:
                return event  # a discarded worker's end may be told too
            del self._lines[event.worker]
            if self._actors[event.worker].begins:
                self._replace()
        elif line is None:
            return event if isinstance(event, Done) else None  # a discarded worker's result may still be on its way
        elif isinstance(event, Done | Failed) and line and line[0] == event.task:
            line.popleft()
            if line:
                self._work(event.worker)
        return event

    def discard(self, worker: str, reason: str) -> None:
        self.discarded.append((worker, reason))
        if self._lines.pop(worker, None) is not None:
            self._later(0.5, Lost(worker, "told twice"))
            self._replace()

    def close(self) -> None:
        self._lines.clear()


def packed(task: str, *blobs: str) -> Packed:
    """The body of a task is its name."""
    return Packed(task.encode(), {name: name.encode() for name in blobs})
