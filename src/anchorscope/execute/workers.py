"""Workers that run passes for one model, and who may be one of them: started when the first shard comes, then warm.

Several runs of the same model may share them (a study does). A worker that would give other numbers is refused.
"""

import os
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from anchorscope.errors import UserError
from anchorscope.execute.choose import Choice
from anchorscope.execute.coordinator import Coordinator, Counts
from anchorscope.execute.executor import Description, ShardFolder
from anchorscope.execute.numerics import (
    NumericsClass,
    code_hash,
    differences,
    installed_version,
    refuse,
    refuse_other_class,
)
from anchorscope.execute.parts import Part
from anchorscope.execute.pool import Pool
from anchorscope.execute.pool_executor import PoolExecutor
from anchorscope.execute.process_pool import ProcessPool, visible_gpus
from anchorscope.execute.worker import Shard
from anchorscope.execute.worker_job import WorkerJob
from anchorscope.models.language_model import ModelIdentity
from anchorscope.models.sources import ModelFiles
from anchorscope.plan.passes import Planner
from anchorscope.progress import Progress


class Admission:
    """Who may join: the same code and weights always, the same numerics class unless mixed ones are allowed."""

    def __init__(self, files: ModelFiles | None, mixed: bool, tell: Callable[[str], None]) -> None:
        self._expected: dict[str, Any] = {"anchorscope": installed_version(), "code": code_hash()}
        if files:
            self._expected["weights"] = {name: entry["sha256"] for name, entry in files.items()}
        self._mixed, self._tell = mixed, tell
        self.first: Mapping[str, Any] | None = None
        """What the first worker said of itself; the others have to be like it."""
        self.other_classes: list[str] = []
        """How admitted workers differ from it, in words, where mixed ones are allowed."""

    def __call__(self, hello: Mapping[str, Any]) -> str | None:
        """Why a worker may not join; None if it may."""
        reference = {**hello, **self._expected} if self.first is None else self.first
        reason = refuse(hello, reference, self._mixed)
        if reason is not None:
            return reason
        if self.first is None:
            self.first = hello
        other = differences(NumericsClass.of(hello), NumericsClass.of(self.first))
        if other and other not in self.other_classes:
            self.other_classes.append(other)
            self._tell(f"a worker of another numerics class takes part (--mixed): {other}; last digits may differ")
        return None


class WorkerGroup:
    """The workers of one model."""

    def __init__(self, choice: Choice, job: WorkerJob, files: ModelFiles | None, tell: Callable[[str], None]) -> None:
        self.choice, self.job, self.admission = choice, job, Admission(files, choice.mixed, self._told)
        self._tell = tell
        self._coordinator: Coordinator | None = None
        self._before = Counts()
        """What had been counted when the run under way began."""

    def _told(self, text: str) -> None:
        """Whoever listens now: every run that shares these workers has its own listener."""
        self._tell(text)

    @property
    def coordinator(self) -> Coordinator:
        """The coordinator, with all workers there; they are started when it is first asked for."""
        if self._coordinator is None:
            pool = make_pool(self.choice, self.job)
            asked = pool.n_workers * self.job.threads
            if self.choice.kind == "processes" and asked > cores():
                self._tell(
                    f"{pool.n_workers} workers of {self.job.threads} threads share {cores()} cores, so that they gain "
                    f"little; --threads 1 gives each its own (the last digits of a run depend on its threads)"
                )
            found = Coordinator(pool, self.admission, self.choice.lease, tell=self._told)
            try:
                pool.start(self.job.plain())
                found.ready(self.choice.lease)
            except BaseException:
                pool.close()
                raise
            self._coordinator = found
        return self._coordinator

    def for_run(
        self, folder: ShardFolder, lowered: Callable[[int], None], expected: Callable[[], NumericsClass | None]
    ) -> "RunExecutor":
        """The executor of one run, which is told what happens from now on."""
        self._tell = folder.tell
        self._before = Counts() if self._coordinator is None else replace(self._coordinator.counts)
        return RunExecutor(self, folder, lowered, expected)

    def described(self) -> Mapping[str, Any]:
        """What the first worker said of itself."""
        self.coordinator.counts  # noqa: B018 - workers are there
        assert self.admission.first is not None, "a coordinator is ready when workers have joined"
        return self.admission.first

    def counts(self) -> dict[str, Any] | None:
        """What became of this run's shards and workers, for the manifest; None where no worker was needed."""
        if self._coordinator is None:
            return None
        asked = {"executor": self.choice.kind, "workers_asked": self._coordinator.pool.n_workers}
        found = self._coordinator.counts.since(self._before)
        return {**asked, **vars(found), "other_classes": list(self.admission.other_classes)}

    def close(self) -> None:
        """Lets all workers go."""
        if self._coordinator is not None:
            self._coordinator.pool.close()
            self._coordinator = None


class RunExecutor:
    """Runs the passes of one run on workers."""

    divides = True

    def __init__(
        self,
        group: WorkerGroup,
        folder: ShardFolder,
        lowered: Callable[[int], None],
        expected: Callable[[], NumericsClass | None],
    ) -> None:
        self._group, self._folder, self._lowered, self._expected = group, folder, lowered, expected
        self._inner: PoolExecutor | None = None

    def lowered(self, tokens: int) -> None:
        """Memory ran out: from now on so many tokens run together."""
        self._lowered(tokens)

    def counted(self, planned: int, done: int) -> None:
        """So many more batches are planned, and done."""
        self._folder.count_shards(planned, done)

    @property
    def n_layers(self) -> int:
        """How many blocks the model has."""
        return self.describe().planner.n_layers

    def describe(self) -> Description:
        """The model that shards run on."""
        from pydantic import TypeAdapter  # only here: workers need few libraries

        hello = self._group.described()
        told = hello["description"]
        identity = TypeAdapter(ModelIdentity).validate_python(told["identity"])
        planner = TypeAdapter(Planner).validate_python(told["planner"])
        return Description(identity, planner, NumericsClass.of(hello))

    def map(self, shards: Sequence[Shard], progress: Progress) -> Generator[Part, None, None]:
        """The part of each shard, in their order."""
        if self._inner is None:
            coordinator = self._group.coordinator
            self._check()
            self._inner = PoolExecutor(coordinator, self._folder.shards, self._class_id)
        return self._inner.map(shards, progress)

    def _class_id(self) -> str:
        """A shard that another class of machines has computed is not the same."""
        return repr(NumericsClass.of(self._group.described()))

    def _check(self) -> None:
        found = NumericsClass.of(self._group.described())
        refuse_other_class(found, self._expected(), self._group.choice.mixed, self._folder.tell)


def make_pool(choice: Choice, job: WorkerJob) -> Pool:
    """The pool that was asked for; nothing is started yet."""
    if choice.kind == "ray":
        from anchorscope.execute.ray_pool import RayPool

        if choice.address is not None and choice.workers is None:
            raise UserError("How many workers of the cluster may be used is not said; add --workers N.")
        number = choice.workers or _as_many_as_fit(choice, job)
        return RayPool(choice.address, number, choice.devices_per_worker)
    return ProcessPool(choice.workers or _as_many_as_fit(choice, job), choice.devices_per_worker)


def _as_many_as_fit(choice: Choice, job: WorkerJob) -> int:
    """Workers for all devices of this machine."""
    if job.device != "cpu":
        return max(1, len(visible_gpus()) // choice.devices_per_worker)
    return max(1, cores() // max(1, job.threads))


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
