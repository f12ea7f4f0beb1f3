"""Passes on Ray: on this machine, or on a cluster.

Every worker is an actor with its own copy of the model; Ray's pool of actors hands planned batches to those that are
free. States that are kept go to files of the run folder, and all else comes back. Ray starts an actor that died again,
where there is room for it, and repeats its batch: a batch gives the same bytes wherever and however often it runs.
Package and model have to be on every machine.
"""

import contextlib
import errno
import logging
import os
import secrets
import socket
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

import torch

from anchorscope.errors import Incomplete, MemoryRanOut, UserError, fault_in_words
from anchorscope.execute.choose import Choice
from anchorscope.execute.executor import Description, Executor, LocalExecutor, describe
from anchorscope.execute.numerics import WorkerFacts, code_hash, reason_to_refuse
from anchorscope.execute.worker import Part, Shard, Worker
from anchorscope.models.devices import free_memory, is_device_lost
from anchorscope.models.language_model import LanguageModel
from anchorscope.models.loading import load
from anchorscope.models.sources import ModelFiles, model_files
from anchorscope.plan.passes import StatesPass
from anchorscope.progress import Progress, Silent

PATIENCE = 1800.0
"""Seconds without any answer, or without a worker, after which a run gives up; what is done is kept."""
RESTARTS = 3
"""How often Ray starts a worker again that died; the batch that it had is repeated."""
_AT_ONCE = 2
"""Batches at a worker, so that it never waits."""
_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
_SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_AUTH_MODE": "token",
    "RAY_NUM_REDIS_GET_RETRIES": "4",  # a wrong token is reported after seconds
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # or Ray warns of a change to come
}


@dataclass(frozen=True)
class WorkerJob:
    """The model of a worker: it has to be found under this name wherever a worker is."""

    model: str
    dtype: str = "float32"
    device: str = "cpu"
    trust_remote_code: bool = False
    threads: int = 0
    """Threads of products on a CPU, which are part of the numbers; 0 leaves them as they are."""

    def load(self, progress: Progress | None = None) -> LanguageModel:
        return load(
            self.model, self.dtype, self.device, self.trust_remote_code, progress
        )


class RayWorker:
    """The actor: a model, loaded when it is first needed. What it raises reaches the coordinator through Ray."""

    def __init__(self, job: WorkerJob) -> None:
        self._job = job

    @cached_property
    def _worker(self) -> Worker:
        if self._job.threads:
            torch.set_num_threads(self._job.threads)
        return Worker(self._job.load())

    @cached_property
    def _facts(self) -> WorkerFacts:
        description = describe(self._worker.lm)
        files = model_files(self._job.model) or {}
        return WorkerFacts(
            host=socket.gethostname(),
            pid=os.getpid(),
            code=code_hash(),
            description=replace(description, files=files),
        )

    def facts(self) -> WorkerFacts:
        """What this worker says of itself; the coordinator need not load the model."""
        return self._facts

    def run(
        self, index: int, shard: Shard, probes: Sequence[Any], first: WorkerFacts
    ) -> tuple[int, Part]:
        """The number of a shard and its part.

        `probes` holds a reference to the probes of the whole pass, which Ray would else fetch again for every shard. A
        worker that was started again may be on another machine: its facts must be those of the `first` one, too.
        """
        reason = reason_to_refuse(self._facts, first, None)
        if reason is not None:
            raise UserError(reason)
        if isinstance(shard, StatesPass) and shard.probes is not None and probes:
            shard = replace(shard, probes=replace(shard.probes, sets=_fetch(probes[0])))
        try:
            with full_disk_is_incomplete():
                return index, self._worker.run(shard, Silent())
        except RuntimeError as error:
            if is_device_lost(error):
                # Nothing will run in this process any more; Ray starts another.
                os._exit(1)
            raise


@lru_cache(maxsize=1)
def _fetch(reference: Any) -> Any:
    """The probes of a pass, fetched with its first shard."""
    import ray

    return ray.get(reference)


class RayExecutor(Executor):
    """The workers of one model; several runs may use them in turn (those of a study do)."""

    def __init__(self, choice: Choice, job: WorkerJob) -> None:
        self.choice = choice
        self.job = job
        self.files: ModelFiles | None = model_files(job.model)
        self._first: WorkerFacts | None = None
        self._joined = False
        self._settings = contextlib.ExitStack()

    @cached_property
    def actors(self) -> list[Any]:
        """All workers, there and with their model."""
        ray = import_ray(self.choice.address)
        # Ray reports lost workers on standard output, which is the command's own.
        self._settings.enter_context(contextlib.redirect_stdout(sys.stderr))
        cores = (self.choice.workers or 0) * self._cpus or None
        self._joined = join(ray, self.choice.address, cores)
        try:
            actors = [self._actor(ray) for _ in range(self._number(ray))]
            for facts in self._facts_of(ray, actors):
                reason = reason_to_refuse(facts, self._first, self.files)
                if reason is not None:
                    raise UserError(reason)
                self._first = self._first or facts
            return actors
        except BaseException:
            self.close()
            raise

    def _actor(self, ray: Any) -> Any:
        environment = {}
        if self.job.threads:
            environment = dict.fromkeys(_THREADS, str(self.job.threads))
        actor = ray.remote(RayWorker).options(
            num_cpus=self._cpus,
            num_gpus=self._gpus(ray),
            max_restarts=RESTARTS,
            max_task_retries=-1,  # also while a lost node is not known to be lost
            scheduling_strategy="SPREAD",
            runtime_env={"env_vars": environment},
        )
        return actor.remote(self.job)

    def _facts_of(self, ray: Any, actors: Sequence[Any]) -> list[WorkerFacts]:
        calls = [actor.facts.remote() for actor in actors]
        ready, missing = ray.wait(calls, num_returns=len(calls), timeout=PATIENCE)
        if missing:
            raise UserError(
                f"{len(actors)} workers were asked for, and {len(ready)} came within {PATIENCE:g} s; ask for as "
                f"many as there is room for with --workers. Nothing is lost."
            )
        with what_workers_raise():
            return [ray.get(call) for call in calls]

    @property
    def _cpus(self) -> int:
        return max(1, self.job.threads)

    def _gpus(self, ray: Any) -> int:
        """GPUs of one worker: one, or its share of a machine's where a model is spread over several."""
        if self.job.device != "balanced":
            return int(self.job.device != "cpu")
        share = int(ray.cluster_resources().get("GPU", 0)) // (self.choice.workers or 1)
        of_machines = [
            int(node["Resources"].get("GPU", 0))
            for node in ray.nodes()
            if node["Alive"]
        ]
        return max(1, min(share, max(of_machines, default=0)))

    def _number(self, ray: Any) -> int:
        """How many workers there are; refused where this machine has no room for them."""
        resources = ray.cluster_resources()
        gpus = self._gpus(ray)
        all_cpus = int(resources.get("CPU", 0))
        all_gpus = int(resources.get("GPU", 0))
        room = all_cpus // self._cpus
        if gpus:
            room = min(room, all_gpus // gpus)
        asked = self.choice.workers
        is_here = self.choice.address is None
        if not room or (asked is not None and is_here and asked > room):
            raise UserError(
                f"{asked or 1} workers of {self._cpus} cores and {gpus} GPUs were asked for, and Ray has {all_cpus} "
                f"cores and {all_gpus} GPUs; ask for fewer --workers or --threads, or give the address of a cluster "
                f"with --executor ray:HOST:PORT."
            )
        return asked or room

    def divide(self, work: Any) -> Sequence[Any]:
        """The batches of a pass; states that are kept go to files in the run folder."""
        keeps_states = isinstance(work, StatesPass) and any(work.keep)
        if self.folder is None or not keeps_states:
            return work.shards()
        self.folder.mkdir(parents=True, exist_ok=True)
        identity = self.describe().identity
        return work.writing_shards(
            self.folder, identity.d_model, identity.dtype, self.n_layers
        )

    def describe(self) -> Description:
        self.actors  # noqa: B018 - they are started
        assert self._first is not None, "every worker has told its facts"
        return self._first.description

    def map(self, shards: Sequence[Shard], progress: Progress) -> list[Part]:
        self.check_numerics()
        if not shards:
            return []
        from ray.util import ActorPool

        pool = ActorPool(self.actors * _AT_ONCE)
        progress.start(
            f"{shards[0].title} on {len(self.actors)} workers",
            sum(shard.n_items for shard in shards),
        )
        parts: dict[int, Part] = {}
        try:
            self._submit(pool, shards)
            while pool.has_next():
                with what_workers_raise():
                    index, part = pool.get_next_unordered(timeout=PATIENCE)
                parts[index] = part
                progress.advance(shards[index].n_items)
        finally:
            progress.finish()
        return [parts[index] for index in range(len(shards))]

    def _submit(self, pool: Any, shards: Sequence[Shard]) -> None:
        """Hands shards to the pool without their probes: all refer to the same copy of them."""
        import ray

        first = ray.put(self._first)
        stored: tuple[Any, Any] = (None, None)
        for index, shard in enumerate(shards):
            probes: tuple[Any, ...] = ()
            if isinstance(shard, StatesPass) and shard.probes is not None:
                if stored[0] is not shard.probes.sets:
                    stored = shard.probes.sets, ray.put(shard.probes.sets)
                probes = (stored[1],)
                shard = replace(shard, probes=replace(shard.probes, sets=()))
            pool.submit(_run_on, (index, shard, probes, first))

    def facts(self) -> dict[str, Any] | None:
        """Who ran the passes, for the manifest; None where no worker was needed."""
        if self._first is None:
            return None
        return {"executor": "ray", "workers": len(self.actors)}

    def close(self) -> None:
        """Ends the workers, and the local Ray, or leaves the cluster."""
        if "ray" not in sys.modules:
            return
        import ray

        self._first = None
        for actor in self.__dict__.pop("actors", ()):
            # The actor or the cluster may have ended already.
            with contextlib.suppress(Exception):
                ray.kill(actor, no_restart=True)
        if self._joined:
            self._joined = False
            ray.shutdown()
        self._settings.close()


def _run_on(actor: Any, call: tuple[Any, ...]) -> Any:
    index, shard, probes, first = call
    return actor.run.remote(index, shard, probes, first)


@contextlib.contextmanager
def what_workers_raise() -> Iterator[None]:
    """What a worker raises for the user is raised as it was; a worker that is gone makes the run incomplete."""
    import ray

    again = "what is done is kept: run the same command to resume."
    try:
        yield
    except TimeoutError as error:
        raise Incomplete(
            f"No worker is left, or none has answered for {PATIENCE:g} s; {again}"
        ) from error
    except ray.exceptions.RayTaskError as error:
        is_for_user = isinstance(error.cause, UserError | Incomplete | MemoryRanOut)
        raise (error.cause if is_for_user else error) from None
    except (ray.exceptions.RayActorError, ray.exceptions.OutOfMemoryError) as error:
        raise Incomplete(
            f"A worker was lost and cannot be started again ({_short(error)[:120]}); {again}"
        ) from error
    except ray.exceptions.RayError as error:
        raise Incomplete(
            f"Ray cannot move a shard ({_short(error)[:200]}); give Ray more memory; {again}"
        ) from error


class WarmModels:
    """The model of a command's runs, loaded once for all runs that follow each other with it: in this process, or on
    workers. Only one model is held, as it may fill all devices."""

    def __init__(self) -> None:
        self._held: dict[tuple[Choice, WorkerJob], Executor] = {}

    def executor(self, choice: Choice, job: WorkerJob, progress: Progress) -> Executor:
        if (choice, job) not in self._held:
            self.close()
            local = LocalExecutor(lambda: job.load(progress))
            self._held[choice, job] = (
                local if choice.is_local else RayExecutor(choice, job)
            )
        return self._held[choice, job]

    def close(self) -> None:
        for executor in self._held.values():
            executor.close()
        if self._held:
            self._held.clear()
            free_memory()


@contextlib.contextmanager
def full_disk_is_incomplete() -> Iterator[None]:
    """A disk that is full ends a run on many workers like a lack of anything else: what is done is kept."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise Incomplete(
            f"{fault_in_words(error)} What is done is kept; run the same command to resume."
        ) from error


# The cluster.


def import_ray(address: str | None) -> Any:
    """Ray, with its settings made before it is imported: a token, no usage reports, and loopback for a local one.

    Anyone who has imported Ray before keeps their own settings: Ray reads them only once.
    """
    is_new = "ray" not in sys.modules
    for name, value in _SETTINGS.items() if is_new else ():
        os.environ.setdefault(name, value)
    if is_new and address is None:
        os.environ.setdefault(
            "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0"
        )  # Ray's switch for loopback, on every system
        if not {"RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"} & set(os.environ):
            os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)  # for this run only
    try:
        import ray
    except ImportError as error:
        raise UserError(
            "Ray is not installed, and workers run on it; install it with: pip install 'anchorscope[ray]'"
        ) from error
    return ray


def join(ray: Any, address: str | None, cpus: int | None) -> bool:
    """Starts a local Ray, or joins a cluster; UserError within seconds where there is none.

    A process can be in one cluster only: where it is in one, that one is used, and the answer is False.
    """
    if ray.is_initialized():
        return False
    # "local": without an address Ray would join whatever cluster it finds.
    given: Mapping[str, Any] = {
        "address": "local",
        "num_cpus": cpus,
        "include_dashboard": False,
    }
    what = "A local Ray cannot be started"
    if address is not None:
        what, given = (
            f"The Ray cluster at {address!r} cannot be joined",
            {"address": address},
        )
        if address != "auto":
            _refuse_silent_port(address)
    try:
        ray.init(**given, log_to_driver=False, logging_level=logging.ERROR)
    except Exception as error:  # whatever Ray makes of a wrong token, another version, a port of something else
        raise UserError(
            f"{what} ({_short(error)}); is the head running, does it have this version of Ray and of Python, and is "
            f"its token in RAY_AUTH_TOKEN or RAY_AUTH_TOKEN_PATH?"
        ) from error
    return True


def _refuse_silent_port(address: str) -> None:
    """UserError where nothing listens at the address: Ray itself would try for minutes."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), 5.0).close()
    except (OSError, OverflowError) as error:
        raise UserError(
            f"There is no Ray cluster at {address!r} ({error}); start one with: ray start --head, or leave the address "
            f"out for a local one."
        ) from None


def _short(error: BaseException) -> str:
    """The first lines of what Ray says, in one."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return " ".join(lines)[:400] or type(error).__name__
