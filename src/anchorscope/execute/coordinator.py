"""Hands shards to workers, and again to others where a worker is lost, until every one is done exactly once.

Every worker has a short line of tasks, so that it never waits; it works on the first. That one has a lease: a worker
that takes longer is taken for lost. What a lost worker had goes back to the front of the queue. A task whose worker was
lost, that failed or that came back damaged has used up one try. A second result of a task must equal the first.
"""

import time
from collections import deque
from collections.abc import Callable, Collection, Generator, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from anchorscope.errors import Incomplete, UserError
from anchorscope.execute.content_hash import Body, content_hash
from anchorscope.execute.counts import Counts as Counts
from anchorscope.execute.pool import MEMORY, REPLACEMENTS, USER, Done, Event, Failed, Joined, MemoryRanOut, Pool
from anchorscope.execute.task_queue import Disagreement as Disagreement
from anchorscope.execute.task_queue import Task as Task
from anchorscope.execute.task_queue import TaskQueue

TRIES = 3
"""How often a shard is handed out before the run gives up."""
DEPTH = 2
"""Tasks in a worker's line, so that it never waits."""
QUICK = 0.5
"""Seconds: where a shard takes less, the way of a result takes as long as computing it, and lines are longer."""
MORE = 2
"""So many tasks more are then in a line, and always in that of an only worker: nobody else could take them."""
_NAMED = 3  # reasons that a message names


@dataclass
class _Line:
    """A worker that is there, and the tasks that it was handed, in order."""

    worker: str
    title: str
    tasks: deque[str] = field(default_factory=deque)
    since: float = 0.0
    """When the first of them became the first."""
    sent: set[str] = field(default_factory=set)
    """Blobs that it has."""
    is_quick: bool = False
    """Whether its last shard took less than `QUICK`."""


class Coordinator:
    """The queue of shards, and who has which of them."""

    def __init__(
        self,
        pool: Pool,
        admit: Callable[[Mapping[str, Any]], str | None],
        lease: float,
        tries: int = TRIES,
        depth: int = DEPTH,
        tell: Callable[[str], None] = lambda text: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`admit` says why a worker is refused, None if it is not; `lease` is in seconds."""
        self.pool, self.lease, self.counts = pool, lease, Counts()
        self._admit, self._depth, self._tell, self._clock = admit, depth, tell, clock
        self._queue = TaskQueue(tries)
        self._done: Callable[[str, Body, str], None] = lambda task, body, sha256: None
        self._lines: dict[str, _Line] = {}
        self._free: dict[str, _Line] = {}  # those with room in their lines
        self._heard: set[str] = set()  # whose results came with the events under way
        self._titles: dict[str, str] = {}  # of all that were ever admitted
        self._ended: set[str] = set()  # those that are known to be gone
        self._reasons: list[str] = []
        self._pass = object()  # the one under way
        self._alone_since = clock()  # when the last worker went

    def ready(self, patience: float) -> None:
        """Waits until as many workers as were asked for are there; UserError where they do not come in time."""
        asked, until = self.pool.n_workers, self._clock() + patience
        while len(self._lines) < asked:
            events = self.pool.wait(max(0.0, until - self._clock()))
            for event in events:
                self._take(event)
            late = not events and self._clock() >= until
            if len(self._lines) < asked and (late or self._n_gone > asked * REPLACEMENTS):
                raise UserError(
                    f"{asked} workers were asked for, and {len(self._lines)} came within {patience:g} s{self._why()}. "
                    f"Ask for as many as there is room for with --workers, or mend what keeps the others away; nothing "
                    f"is lost."
                )

    def run(self, tasks: Collection[Task], done: Callable[[str, Body, str], None]) -> None:
        """Computes all tasks; `done` is called once for each, in any order, with its result and the result's hash."""
        for _ in self.steps(tasks, done, len(tasks)):
            pass

    def steps(
        self, tasks: Iterable[Task | None], done: Callable[[str, Body, str], None], total: int
    ) -> Generator[None, None, None]:
        """The same bit by bit: whoever asks may use what is done, and has to come back soon, as workers wait.

        Tasks are asked for as workers have room, None standing for one that is done already; `total` is their number.
        """
        began, waited = self._clock(), 0.0
        self._pass = mine = object()
        self._queue.begin(tasks, total)
        for line in self._lines.values():
            line.is_quick = False
        self._done, self._alone_since = done, max(self._alone_since, began)
        try:
            while self._queue.open or self._queue:
                self._hand_out()
                before = self._clock()
                events = self.pool.wait(max(0.0, self._deadline() - before))
                waited += self._clock() - before
                self._take_all(events)
                if self._queue.open and self._clock() >= self._deadline():
                    self._end_overdue()
                events.clear()  # their results are large
                before = self._clock()
                yield
                waited += self._clock() - before
        finally:  # results of this run's tasks that come later are nobody's
            if self._pass is mine:
                self._queue.begin((), 0)
                self._done = lambda task, body, sha256: None
            self.counts.seconds += self._clock() - began - waited

    def _hand_out(self) -> None:
        """Every worker's first task before anyone's second."""
        for length in range(self._depth + MORE):
            for line in [one for one in self._free.values() if len(one.tasks) == length]:
                if not self._queue:
                    return
                task = self._queue.next_for(line.worker, line.tasks, self._lines)
                if task is not None:
                    self._hand(line, task)

    def _hand(self, line: _Line, task: Task) -> None:
        packed = task.make()
        blobs = {name: blob for name, blob in packed.blobs.items() if name not in line.sent}
        line.sent.update(blobs)
        line.tasks.append(task.id)
        if len(line.tasks) == 1:
            line.since = self._clock()
        self._note_room(line)
        self.counts.bytes_sent += len(packed.body) + sum(map(len, blobs.values()))
        self.pool.submit(line.worker, task.id, packed.body, blobs)

    def _deadline(self) -> float:
        """When something is overdue, if nothing happens until then."""
        if not self._lines:
            none_can_come = self._n_gone >= self.pool.n_workers * (1 + REPLACEMENTS)
            return self._alone_since + (0.0 if none_can_come else self.lease)
        return min((line.since for line in self._lines.values() if line.tasks), default=self._clock()) + self.lease

    @property
    def _n_gone(self) -> int:
        return self.counts.lost + self.counts.refused

    def _end_overdue(self) -> None:
        for _ in range(len(self._lines) + 1):  # what has come meanwhile counts, if this process itself was late
            events = self.pool.wait(0.0)
            self._take_all(events)
            if not events:
                break
        now = self._clock()
        for line in [one for one in self._lines.values() if one.tasks and now >= one.since + self.lease]:
            reason = f"it took longer than {self.lease:g} s for shard {line.tasks[0][:12]} (--lease)"
            self.pool.discard(line.worker, reason)
            self._lose(line.worker, reason)
        if self._queue.open and not self._lines and now >= self._deadline():
            raise Incomplete(
                f"No worker is left and none came within {self.lease:g} s{self._why()}: {self._queue.what_is_done()}"
            )

    def _take_all(self, events: list[Event]) -> None:
        """Every event is taken, also behind one that ends the run: workers outlive it."""
        ended: Exception | None = None
        self._heard.clear()
        for event in events:
            try:
                self._take(event)
            except Exception as error:
                ended = ended or error
        if ended is not None:
            raise ended

    def _take(self, event: Event) -> None:
        if isinstance(event, Done):
            self._take_result(event)
        elif isinstance(event, Failed):
            self._take_failure(event)
        elif isinstance(event, Joined):
            self._take_worker(event)
        elif event.worker not in self._ended:
            self._lose(event.worker, event.reason)

    def _take_worker(self, event: Joined) -> None:
        if event.worker in self._lines:
            self._lose(event.worker, "it began anew")
        self._ended.discard(event.worker)
        title, refused = _title(event), self._admit(event.hello)
        if refused is not None:
            self.counts.refused += 1
            self._ended.add(event.worker)
            self._reasons.append(f"refused: {refused}")
            self._tell(f"{title} is refused: {refused}")
            self.pool.discard(event.worker, refused)
            return
        self._lines[event.worker] = self._free[event.worker] = _Line(event.worker, title)
        self._titles[event.worker] = title
        self.counts.workers = len(self._lines)

    def _take_result(self, event: Done) -> None:
        had_it, title = self._leave_line(event.worker, event.task), self._titles.get(event.worker)
        if title is None:
            return  # of one that was never admitted
        self.counts.bytes_received += len(event.body)
        digest = event.received or content_hash([event.body])
        if digest != event.sha256:
            if had_it:
                self._retry(event, "it sent other bytes than it had computed (their sha256 differs)")
            return
        first = self._queue.finish(event.task, digest, title)
        if first:
            self.counts.done += 1
            self._done(event.task, event.body, digest)
        elif first is False:
            self.counts.duplicates += 1

    def _take_failure(self, event: Failed) -> None:
        if not self._leave_line(event.worker, event.task) or event.task not in self._queue.open:
            return
        if event.kind == MEMORY:
            raise MemoryRanOut(event.text)
        if event.kind == USER:
            raise UserError(event.text)
        self._retry(event, _headline(event.text))

    def _retry(self, event: Done | Failed, reason: str) -> None:
        told = f"{self._titles[event.worker]}: {reason}"
        if self._queue.fail(event.task, told, avoid=event.worker):
            self.counts.retried += 1
            self._tell(f"shard {event.task[:12]} is computed again: {told}")

    def _leave_line(self, worker: str, task: str) -> bool:
        """Whether the worker had the task."""
        line = self._lines.get(worker)
        if line is None or task not in line.tasks:
            return False
        if line.tasks[0] == task:
            now = self._clock()
            if worker not in self._heard:  # what came together took longer than the time between
                line.is_quick = now - line.since < QUICK
                self._heard.add(worker)
            line.since = now
        line.tasks.remove(task)
        self._note_room(line)
        return True

    def _note_room(self, line: _Line) -> None:
        """A worker whose line has room is free."""
        if len(line.tasks) < self._depth + MORE * (line.is_quick or self.pool.n_workers == 1):
            self._free[line.worker] = line
        else:
            self._free.pop(line.worker, None)

    def _lose(self, worker: str, reason: str) -> None:
        """A worker is gone. The task that it was at has used up a try; those behind it have not."""
        was_there = worker in self._lines
        line = self._lines.pop(worker) if was_there else _Line(worker, f"worker {worker}")
        self._free.pop(worker, None)
        self._ended.add(worker)
        self._reasons.append(f"lost: {reason}")
        self.counts.lost += 1
        self.counts.workers = len(self._lines)
        if was_there and not self._lines:
            self._alone_since = self._clock()
        again = f"; {len(line.tasks)} of its shards go to others" if line.tasks else ""
        self._tell(f"{line.title} is lost: {reason}{again}")
        for place, task in reversed(list(enumerate(line.tasks))):
            back = self._queue.give_back(task) if place else self._queue.fail(task, f"{line.title}: {reason}")
            self.counts.retried += back

    def _why(self) -> str:
        reasons = list(dict.fromkeys(self._reasons))
        return f" ({'; '.join(reasons[-_NAMED:])})" if reasons else ""


def _title(event: Joined) -> str:
    known = ", ".join(str(event.hello[name]) for name in ("host", "device") if name in event.hello)
    return f"worker {event.worker} ({known})" if known else f"worker {event.worker}"


def _headline(text: str) -> str:
    """The line of an error that says what it is: the first, or the last of a traceback."""
    lines = [line.strip() for line in text.splitlines() if line.strip()] or ["no reason given"]
    return lines[-1] if lines[0].startswith("Traceback") else lines[0]
