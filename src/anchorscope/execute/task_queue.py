"""The tasks of a run: which wait, which are done, how often each was lost, and whether two results of one agree."""

from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from anchorscope.errors import Incomplete, UserError

if TYPE_CHECKING:  # a type only: whoever hands out tasks needs no model's libraries
    from anchorscope.execute.wire import Packed


class Disagreement(UserError):
    """Two workers computed the same shard and got different bytes."""


@dataclass(frozen=True)
class Task:
    """A shard to be computed, packed only when its turn comes."""

    id: str
    make: Callable[[], "Packed"]


class TaskQueue:
    """Tasks wait here in order; those that were lost come first."""

    def __init__(self, tries: int) -> None:
        self._tries = tries
        self._coming: Iterator[Task | None] = iter(())
        self._n_done, self._total = 0, 0
        self.open: dict[str, Task] = {}
        """Tasks that are not done: they wait, or a worker has them."""
        self._waiting: OrderedDict[str, None] = OrderedDict()
        self._failures: dict[str, list[str]] = {}
        self._avoid: dict[str, set[str]] = {}
        self._results: dict[str, tuple[str, str]] = {}

    def begin(self, tasks: Iterable[Task | None], total: int) -> None:
        """Takes the tasks of a run in place of those before, of which only the results are remembered.

        They are asked for one by one, as workers have room. None stands for one whose result is there already; `total`
        is the number of all.
        """
        self._coming, self._n_done, self._total = iter(tasks), 0, total
        self.open, self._waiting, self._failures, self._avoid = {}, OrderedDict(), {}, {}

    def __bool__(self) -> bool:
        """Whether any task waits."""
        return bool(self._waiting) or self._next()

    def _next(self) -> bool:
        """Takes in one more task; whether there was one."""
        for task in self._coming:
            if task is not None:
                assert task.id not in self.open, "two tasks have the same id"
                self.open[task.id] = task
                self._waiting[task.id] = None
                return True
            self._n_done += 1
        return False

    def next_for(self, worker: str, has: Collection[str], workers: Collection[str]) -> Task | None:
        """The next task that suits a worker: none that it has, none that failed on it while there are others."""
        for task in self._waiting:
            avoided = self._avoid.get(task, ())
            if task not in has and (worker not in avoided or all(name in avoided for name in workers)):
                del self._waiting[task]
                return self.open[task]
        return self.next_for(worker, has, workers) if self._next() else None

    def give_back(self, task: str) -> bool:
        """Puts a task that was handed out at the front again; whether it is still wanted."""
        if task not in self.open or task in self._waiting:
            return False
        self._waiting[task] = None
        self._waiting.move_to_end(task, last=False)
        return True

    def fail(self, task: str, reason: str, avoid: str | None = None) -> bool:
        """The same for one that has used up a try; Incomplete if it was the last. `avoid` is who shall not have it."""
        if task not in self.open:
            return False
        failures = self._failures.setdefault(task, [])
        failures.append(reason)
        if avoid is not None:
            self._avoid.setdefault(task, set()).add(avoid)
        if len(failures) >= self._tries:
            raise Incomplete(
                f"Shard {task[:12]} was handed out {len(failures)} times and never came back whole "
                f"({'; '.join(dict.fromkeys(failures))}): {self.what_is_done()}"
            )
        return self.give_back(task)

    def finish(self, task: str, sha256: str, worker: str) -> bool | None:
        """Takes a result: True for the first of an open task, False for one more of it, None where nobody wants it."""
        before = self._results.get(task)
        if before is not None and before[0] != sha256:
            raise Disagreement(
                f"Two results of shard {task[:12]} differ: {before[1]} sent sha256 {before[0][:12]}, {worker} "
                f"{sha256[:12]}; one of them computes wrongly. Leave it out and run the same command with --fresh."
            )
        self._results[task] = sha256, worker
        if task in self.open:
            self.open.pop(task)
            self._n_done += 1
            self._waiting.pop(task, None)  # it was taken for lost, and came after all
            return True
        return None if before is None else False

    def what_is_done(self) -> str:
        """For the message of a run that cannot be ended."""
        done = f"{self._n_done:,} of {self._total:,}"
        return f"{done} shards of this step are done and kept; run the same command to go on."
