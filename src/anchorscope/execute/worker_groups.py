"""The workers of a command: one group per model, kept warm for every run that asks for the same one."""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from anchorscope.execute.choose import Choice
from anchorscope.execute.worker_job import WorkerJob
from anchorscope.execute.workers import WorkerGroup
from anchorscope.models.sources import model_files


@dataclass
class WorkerGroups:
    """Groups by what they run; only one is open at a time, as each may fill all devices."""

    open: dict[tuple[Choice, WorkerJob], WorkerGroup] = field(default_factory=dict)

    def of(self, choice: Choice, job: WorkerJob, tell: Callable[[str], None]) -> WorkerGroup:
        """The group that runs this model this way; one for another model is let go."""
        group = self.open.get((choice, job))
        if group is None:
            self.close()
            group = self.open[choice, job] = WorkerGroup(choice, job, model_files(job.model), tell)
        return group

    def close(self) -> None:
        """Lets all workers go."""
        for group in self.open.values():
            group.close()
        self.open.clear()


@contextlib.contextmanager
def shared(groups: WorkerGroups | None) -> Iterator[WorkerGroups]:
    """Those that were given, which stay open, or new ones, which are closed at the end."""
    if groups is not None:
        yield groups
        return
    own = WorkerGroups()
    try:
        yield own
    finally:
        own.close()
