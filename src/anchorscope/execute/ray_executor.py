"""Passes on Ray: on this machine, or on a cluster.

Every worker is an actor with its own copy of the model. Ray places the actors, moves shards and their parts, starts an
actor that died again and repeats its shard. A shard gives the same bytes wherever and however often it runs; so one
that takes far longer than any other is given to a second worker as well, and the first part that comes is taken: a
worker that hangs, or a node that is lost, holds nothing up. Package and model have to be on every machine.
"""

import contextlib
import copyreg
import errno
import io
import logging
import os
import pickle
import secrets
import socket
import sys
import time
import uuid
import zlib
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

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
from anchorscope.plan.state_files import FileTensor, file_of, to_file
from anchorscope.progress import Progress, Silent

PATIENCE = 1800.0
"""Seconds without any answer, or without a worker, after which a run gives up; what is done is kept."""
OVERDUE = 30.0, 4.0
"""A shard goes to a second worker after this many seconds, and this many times what the slowest one took."""
RESTARTS = 3
"""How often Ray starts a worker again that died."""
_AHEAD = 2  # shards at a worker, so that it never waits
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
        self._job, self._id = job, uuid.uuid4().hex

    @cached_property
    def _worker(self) -> Worker:
        if self._job.threads:
            torch.set_num_threads(self._job.threads)
        return Worker(self._job.load())

    def facts(self) -> WorkerFacts:
        """What this worker says of itself; the coordinator need not load the model."""
        lm = self._worker.lm
        description = replace(describe(lm), files=model_files(self._job.model) or {})
        return WorkerFacts(
            self._id, socket.gethostname(), os.getpid(), code_hash(), description
        )

    def run(
        self, packed: bytes, probes: Sequence[Any] = (), folder: Path | None = None
    ) -> tuple[str, bytes]:
        """This worker's id, new after a restart, and the packed part of a shard; `probes` refers to those of its
        pass."""
        shard: Shard = unpack(packed)
        if isinstance(shard, StatesPass) and shard.probes is not None and probes:
            shard = replace(shard, probes=replace(shard.probes, sets=_fetch(probes[0])))
        try:
            with full_disk_is_incomplete():
                return self._id, pack(self._worker.run(shard, Silent()), folder)
        except RuntimeError as error:
            if is_device_lost(error):
                os._exit(
                    1
                )  # nothing will run in this process any more; Ray starts another
            raise


@lru_cache(maxsize=1)
def _fetch(reference: Any) -> Any:
    """The probes of a pass, fetched with its first shard."""
    import ray

    return unpack(ray.get(reference))


class RayExecutor(Executor):
    """The workers of one model; several runs may use them in turn (those of a study do)."""

    def __init__(
        self, choice: Choice, job: WorkerJob, tell: Callable[[str], None]
    ) -> None:
        self.choice, self.job, self.tell = choice, job, tell
        self.files: ModelFiles | None = model_files(job.model)
        self.admitted: dict[str, WorkerFacts] = {}
        """By the workers' ids."""
        self.calls: dict[Any, _Call] = {}
        """All that are not answered, those of earlier passes too: a worker with an overdue one gets nothing more."""
        self.gone: set[int] = set()
        """Workers that Ray does not start again."""
        self.probes: tuple[Any, Any] = (None, None)
        """Those of the last pass that had some, and the one copy of them in Ray's object store."""
        self.count = Counter()
        self._joined = False
        self._settings = contextlib.ExitStack()

    @cached_property
    def actors(self) -> list[Any]:
        """All workers, there and with their model."""
        ray = import_ray(self.choice.address)
        # Ray reports lost workers on standard output, which is the command's own.
        self._settings.enter_context(contextlib.redirect_stdout(sys.stderr))
        self._joined = join(
            ray, self.choice.address, (self.choice.workers or 0) * self._cpus or None
        )
        try:
            actor = ray.remote(RayWorker).options(
                num_cpus=self._cpus,
                num_gpus=self._gpus(ray),
                max_restarts=RESTARTS,
                max_task_retries=RESTARTS,
                scheduling_strategy="SPREAD",
                runtime_env={
                    "env_vars": dict.fromkeys(_THREADS, str(self.job.threads))
                    if self.job.threads
                    else {}
                },
            )
            actors = [actor.remote(self.job) for _ in range(self._number(ray))]
            calls = [actor.facts.remote() for actor in actors]
            ready, missing = ray.wait(calls, num_returns=len(calls), timeout=PATIENCE)
            if missing:
                raise UserError(
                    f"{len(actors)} workers were asked for, and {len(ready)} came within {PATIENCE:g} s; ask for as "
                    f"many as there is room for with --workers. Nothing is lost."
                )
            for call in calls:
                self._admit(call)
            return actors
        except BaseException:
            self.close()
            raise

    @property
    def _cpus(self) -> int:
        return max(1, self.job.threads)

    def _gpus(self, ray: Any) -> int:
        """GPUs of one worker: one, or its share of a machine's where a model is spread over several."""
        if self.job.device != "balanced":
            return int(self.job.device != "cpu")
        share = int(ray.cluster_resources().get("GPU", 0)) // (self.choice.workers or 1)
        machine = max(
            (
                int(node["Resources"].get("GPU", 0))
                for node in ray.nodes()
                if node["Alive"]
            ),
            default=0,
        )
        return max(1, min(share, machine))

    def _number(self, ray: Any) -> int:
        """How many workers there are; refused where this machine has no room for them."""
        resources, cpus, gpus = ray.cluster_resources(), self._cpus, self._gpus(ray)
        all_cpus, all_gpus = int(resources.get("CPU", 0)), int(resources.get("GPU", 0))
        room = min(all_cpus // cpus, all_gpus // gpus) if gpus else all_cpus // cpus
        asked = self.choice.workers
        if not room or (
            asked is not None and self.choice.address is None and asked > room
        ):
            raise UserError(
                f"{asked or 1} workers of {cpus} cores and {gpus} GPUs were asked for, and Ray has {all_cpus} cores "
                f"and {all_gpus} GPUs; ask for fewer --workers or --threads, or give the address of a cluster with "
                f"--executor ray:HOST:PORT."
            )
        return asked or room

    def _admit(self, call: Any) -> WorkerFacts:
        """Refuses a worker whose code, weights or numerics differ from the first one's."""
        try:
            facts: WorkerFacts = _get(call)
        except WorkerLost as error:
            raise Incomplete(
                f"A worker was lost while it started ({error}); run the same command again."
            ) from None
        first = next(iter(self.admitted.values()), None)
        reason = reason_to_refuse(facts, first, self.files)
        if reason is not None:
            raise UserError(reason)
        self.admitted[facts.worker] = facts
        return facts

    def check_restarted(self, actor: Any) -> None:
        """Admits a worker that was started again before its results are used."""
        self.count["lost"] += 1
        facts = self._admit(actor.facts.remote())
        self.tell(
            f"a worker was lost and started again on {facts.host} (process {facts.pid}); its shard is repeated"
        )

    @property
    def n_workers(self) -> int:  # type: ignore[override]
        return len(self.actors)

    def divide(self, work: Any) -> Sequence[Any]:
        """The batches of a pass; states that are kept go to files in the run folder."""
        if (
            self.folder is None
            or not isinstance(work, StatesPass)
            or not any(work.keep)
        ):
            return work.shards()
        self.folder.mkdir(parents=True, exist_ok=True)
        identity = self.describe().identity
        return work.writing_shards(
            self.folder, identity.d_model, identity.dtype, self.n_layers
        )

    def describe(self) -> Description:
        self.actors  # noqa: B018 - they are started
        return next(iter(self.admitted.values())).description

    def map(self, shards: Sequence[Shard], progress: Progress) -> list[Part]:
        self.check_numerics()
        title = getattr(shards[0], "title", "shards") if shards else "shards"
        progress.start(
            f"{title} on {self.n_workers} workers", sum(map(_n_items, shards))
        )
        try:
            return _Pass(self, shards, progress).run()
        finally:
            progress.finish()

    def counts(self) -> dict[str, Any] | None:
        if not self.admitted:
            return None
        names = ("done", "repeated", "lost", "coordinator_bytes", "states_bytes")
        return {
            "executor": "ray",
            "workers": len(self.actors),
            **{name: self.count[name] for name in names},
        }

    def close(self) -> None:
        """Ends the workers, and the local Ray, or leaves the cluster."""
        if "ray" not in sys.modules:
            return
        import ray

        for actor in self.__dict__.pop("actors", ()):
            with contextlib.suppress(
                Exception
            ):  # the actor or the cluster has ended already
                ray.kill(actor, no_restart=True)
        if self._joined:
            self._joined = False
            ray.shutdown()
        self._settings.close()


class _Call(NamedTuple):
    of: "_Pass"
    shard: int
    worker: int
    since: float


class _Pass:
    """The shards of one pass: which wait, which are done."""

    def __init__(
        self, workers: RayExecutor, shards: Sequence[Shard], progress: Progress
    ) -> None:
        self.workers, self.shards, self.progress = workers, shards, progress
        self.waiting = deque(range(len(shards)))
        self.done: dict[int, Part] = {}
        self.lost: Counter[int] = Counter()
        """How often a worker was lost with a shard."""
        self.slowest = 0.0

    @property
    def own_calls(self) -> list[_Call]:
        """Calls for shards of this pass that are not done."""
        return [
            call
            for call in self.workers.calls.values()
            if call.of is self and call.shard not in self.done
        ]

    def run(self) -> list[Part]:
        import ray

        heard = time.monotonic()
        while len(self.done) < len(self.shards):
            self.hand_out()
            if not self.own_calls or time.monotonic() - heard > PATIENCE:
                raise Incomplete(
                    f"No worker is left, or none has answered for {PATIENCE:g} s; what is done is kept: run the same "
                    f"command to resume."
                )
            for reference in ray.wait(list(self.workers.calls), timeout=OVERDUE[0] / 4)[
                0
            ]:
                self.take(reference)
                heard = time.monotonic()
        return [self.done[shard] for shard in range(len(self.shards))]

    def hand_out(self) -> None:
        """Gives every worker that answers something to do: the next shard, or one that is overdue elsewhere."""
        workers, limit, now = (
            self.workers,
            max(OVERDUE[0], OVERDUE[1] * self.slowest),
            time.monotonic(),
        )
        overdue = [call for call in workers.calls.values() if now - call.since > limit]
        calls_at = Counter(call.worker for call in workers.calls.values())
        calls_of = Counter(call.shard for call in self.own_calls)
        late = [
            call.shard
            for call in self.own_calls
            if call in overdue and calls_of[call.shard] == 1
        ]
        free = sorted(
            set(range(len(workers.actors)))
            - workers.gone
            - {call.worker for call in overdue}
        )
        for length in range(_AHEAD):
            for worker in free:
                if calls_at[worker] == length and self.waiting:
                    self.call(worker, self.waiting.popleft())
                    calls_at[worker] += 1
        for worker, shard in zip(
            (worker for worker in free if not calls_at[worker]), late, strict=False
        ):
            self.call(worker, shard)
            workers.count["repeated"] += 1
            workers.tell(
                f"a worker has not answered for {limit:.0f} s; its shard is given to another"
            )

    def call(self, worker: int, shard: int) -> None:
        """Hands a shard to a worker, without its probes: all shards refer to the same copy of them."""
        content, probes = self.shards[shard], tuple[Any, ...]()
        if isinstance(content, StatesPass) and content.probes is not None:
            if self.workers.probes[0] is not content.probes.sets:
                import ray

                self.workers.probes = (
                    content.probes.sets,
                    ray.put(self.packed(content.probes.sets)),
                )
            probes = (
                self.workers.probes[1],
            )  # in a tuple, as Ray would fetch it again for every shard
            content = replace(content, probes=replace(content.probes, sets=()))
        reference = self.workers.actors[worker].run.remote(
            self.packed(content), probes, self.workers.folder
        )
        self.workers.calls[reference] = _Call(self, shard, worker, time.monotonic())

    def packed(self, value: Any) -> bytes:
        """Something to send, as bytes that are counted."""
        content = pack(value, self.workers.folder)
        self.workers.count["coordinator_bytes"] += len(content)
        return content

    def take(self, reference: Any) -> None:
        """Takes an answer, unless it is of an earlier pass or a second worker was faster."""
        call = self.workers.calls.pop(reference)
        is_wanted = call.of is self and call.shard not in self.done
        try:
            worker, part = _get(reference)
            if is_wanted and worker not in self.workers.admitted:
                self.workers.check_restarted(self.workers.actors[call.worker])
        except WorkerLost as error:
            self.workers.gone.add(call.worker)
            self.workers.count["lost"] += 1
            self.lost[call.shard] += is_wanted
            if self.lost[call.shard] > RESTARTS:
                raise Incomplete(
                    f"{RESTARTS + 1} workers were lost with the same shard ({error}); what is done is kept: run the "
                    f"same command to resume."
                ) from error
            self.workers.tell(
                f"a worker is lost ({str(error)[:120]}); its shard is given to another"
            )
            if is_wanted and all(other.shard != call.shard for other in self.own_calls):
                self.waiting.appendleft(call.shard)
        except Exception:
            if is_wanted:
                raise
        else:
            if is_wanted:
                shard = self.shards[call.shard]
                written = sum(
                    rows.nbytes
                    for rows in getattr(shard, "into", ())
                    if rows is not None
                )
                self.slowest = max(self.slowest, time.monotonic() - call.since)
                self.done[call.shard] = unpack(part)
                self.workers.count.update(
                    done=1, coordinator_bytes=len(part), states_bytes=written
                )
                self.progress.advance(_n_items(shard))


class WorkerLost(Exception):
    """A worker could not be started again, or not be reached."""


def _n_items(shard: Any) -> int:
    return int(getattr(shard, "n_items", 1))


def _get(reference: Any) -> Any:
    """What a call gave; what a worker raised for the user is raised as it was."""
    import ray

    try:
        return ray.get(reference, timeout=PATIENCE)
    except ray.exceptions.RayTaskError as error:
        raise (
            error.cause
            if isinstance(error.cause, UserError | Incomplete | MemoryRanOut)
            else error
        ) from None
    except (ray.exceptions.RayActorError, ray.exceptions.OutOfMemoryError) as error:
        raise WorkerLost(_short(error)) from error
    except ray.exceptions.RayError as error:
        raise Incomplete(
            f"Ray cannot move a shard ({_short(error)[:200]}); what is done is kept: give Ray more memory, and run the "
            f"same command to resume."
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
                local if choice.is_local else RayExecutor(choice, job, progress.note)
            )
        return self._held[choice, job]

    def close(self) -> None:
        for executor in self._held.values():
            executor.close()
        if self._held:
            self._held.clear()
            free_memory()


# What travels.


LARGE = 2**16
"""Bytes from which on a tensor goes to a file of the run folder instead of being sent."""


def pack(value: Any, folder: Path | None = None) -> bytes:
    """A shard or a part as compressed bytes: items share their first tokens. Of a tensor in a file only the name is
    sent; where there is a folder, large tensors are written to it."""
    stream = io.BytesIO()
    pickler = pickle.Pickler(stream, 5)
    pickler.dispatch_table = copyreg.dispatch_table.copy() | {
        Tensor: partial(_reduce_tensor, folder)
    }
    pickler.dump(value)
    return zlib.compress(stream.getbuffer(), 1)


def unpack(content: bytes) -> Any:
    return pickle.loads(zlib.decompress(content))


def _reduce_tensor(
    folder: Path | None, tensor: Tensor
) -> tuple[Callable[..., Tensor], tuple[Any, ...]]:
    in_file = file_of(tensor)
    if in_file is None and folder is not None and tensor.nbytes >= LARGE:
        in_file = to_file(tensor, folder)
    if in_file is not None:
        return FileTensor.map, (in_file,)
    flat = tensor.detach().cpu().contiguous()
    return _make_tensor, (
        flat.view(-1).view(torch.uint8).numpy(),
        tensor.dtype,
        tuple(tensor.shape),
    )


def _make_tensor(content: Any, dtype: torch.dtype, shape: tuple[int, ...]) -> Tensor:
    return torch.from_numpy(content).view(dtype).reshape(shape)


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
