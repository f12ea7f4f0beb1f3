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
import shutil
import socket
import sys
import time
import traceback
import uuid
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from anchorscope.errors import Incomplete, MemoryRanOut, UserError, fault_in_words
from anchorscope.execute.choose import Choice
from anchorscope.execute.executor import Description, ShardFolder, describe
from anchorscope.execute.numerics import (
    NumericsClass,
    WorkerFacts,
    differences,
    own_facts,
    reason_to_refuse,
    refuse_other_class,
)
from anchorscope.execute.parts import Part
from anchorscope.execute.worker import Shard, Worker
from anchorscope.files import PARTIAL
from anchorscope.models.devices import is_device_lost
from anchorscope.models.loading import load
from anchorscope.models.sources import ModelFiles, model_files
from anchorscope.plan.passes import StatesPass
from anchorscope.plan.state_files import FileTensor, file_of
from anchorscope.progress import Progress, Silent

PATIENCE = 1800.0
"""Seconds without any answer, or without a worker, after which a run gives up; what is done is kept."""
OVERDUE = 30.0, 4.0
"""A shard goes to a second worker after this many seconds, and this many times what the slowest one took."""
RESTARTS = 3
"""How often Ray starts a worker again that died."""
_AHEAD = 2  # shards at a worker, so that it never waits
_WINDOW = 4  # shards per worker that may be done before their turn
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


@dataclass(frozen=True)
class Failure:
    """Why a shard has no part."""

    kind: type[Exception]
    text: str


@dataclass(frozen=True)
class Reply:
    """What a worker answers to a shard."""

    worker: str
    """Its id, new after a restart."""
    part: bytes | Failure
    """Packed."""
    states: int = 0
    """Bytes of states that the worker wrote to the run folder."""


class RayWorker:
    """The actor: a model, loaded when it is first needed."""

    def __init__(self, job: WorkerJob) -> None:
        self._job, self._id = job, uuid.uuid4().hex
        self._probes: tuple[Any, Any] = (None, None)

    @cached_property
    def _worker(self) -> Worker:
        job = self._job
        if job.threads:
            torch.set_num_threads(job.threads)
        return Worker(load(job.model, job.dtype, job.device, job.trust_remote_code))

    def facts(self) -> WorkerFacts | Failure:
        """What this worker says of itself; the coordinator need not load the model."""
        try:
            lm, files = self._worker.lm, model_files(self._job.model)
            return own_facts(self._id, files, describe(lm), lm.fingerprint())
        except UserError as error:
            return Failure(UserError, str(error))

    def run(self, packed: bytes, probes: Sequence[Any] = ()) -> Reply:
        """The part of a packed shard; `probes` refers to those of its pass."""
        try:
            shard: Shard = pickle.loads(packed)
            if probes and isinstance(shard, StatesPass) and shard.probes is not None:
                shard = replace(shard, probes=replace(shard.probes, sets=self._fetch(probes[0])))
            with full_disk_is_incomplete():
                part = pack(self._worker.run(shard, Silent()))
            return Reply(self._id, part, _written(shard))
        except (UserError, Incomplete, MemoryRanOut) as error:
            return Reply(self._id, Failure(type(error), str(error)))
        except Exception as error:
            if is_device_lost(error):
                os._exit(1)  # nothing will run here any more; Ray starts another
            return Reply(self._id, Failure(RuntimeError, traceback.format_exc()))

    def _fetch(self, reference: Any) -> Any:
        """The probes of a pass, fetched with its first shard."""
        if reference != self._probes[0]:
            import ray

            self._probes = reference, pickle.loads(ray.get(reference))
        return self._probes[1]


class RayWorkers:
    """The workers of one model; several runs may share them (a study does)."""

    def __init__(self, choice: Choice, job: WorkerJob, tell: Callable[[str], None]) -> None:
        self.choice, self.job, self.tell = choice, job, tell
        self.files: ModelFiles | None = model_files(job.model)
        self.admitted: dict[str, WorkerFacts] = {}
        """By the workers' ids."""
        self.other_classes: list[str] = []
        self.silent: dict[int, Any] = {}
        """Workers with a call that is overdue: they get nothing more until it is answered."""
        self.done = self.lost = self.repeated = self.moved = self.states = 0
        self._joined = False
        self._settings = contextlib.ExitStack()

    @cached_property
    def actors(self) -> list[Any]:
        """All workers, there and with their model."""
        ray = import_ray(self.choice.address)
        # Ray reports lost workers on standard output, which is the command's own.
        self._settings.enter_context(contextlib.redirect_stdout(sys.stderr))
        self._joined = join(ray, self.choice.address, (self.choice.workers or 0) * self._cpus or None)
        try:
            actor = ray.remote(RayWorker).options(
                num_cpus=self._cpus,
                num_gpus=self._gpus(ray),
                max_restarts=RESTARTS,
                max_task_retries=RESTARTS,
                scheduling_strategy="SPREAD",
                runtime_env={"env_vars": dict.fromkeys(_THREADS, str(self.job.threads)) if self.job.threads else {}},
            )
            actors = [actor.remote(self.job) for _ in range(self._number(ray))]
            waiting = {actor.facts.remote(): None for actor in actors}
            while waiting:
                ready, _ = ray.wait(list(waiting), timeout=PATIENCE)
                if not ready:
                    raise UserError(
                        f"{len(actors)} workers were asked for, and {len(actors) - len(waiting)} came within "
                        f"{PATIENCE:g} s; ask for as many as there is room for with --workers. Nothing is lost."
                    )
                self._admit(_answer(ray, ready[0]))
                del waiting[ready[0]]
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
        machine = max((int(node["Resources"].get("GPU", 0)) for node in ray.nodes() if node["Alive"]), default=0)
        return max(1, min(share, machine))

    def _number(self, ray: Any) -> int:
        """How many workers there are; refused where this machine has no room for them."""
        has, cpus, gpus = ray.cluster_resources(), self._cpus, self._gpus(ray)
        room = int(has.get("CPU", 0)) // cpus
        if gpus:
            room = min(room, int(has.get("GPU", 0)) // gpus)
        asked = self.choice.workers
        if not room or (asked is not None and self.choice.address is None and asked > room):
            raise UserError(
                f"{asked or 1} workers of {cpus} cores and {gpus} GPUs were asked for, and Ray has "
                f"{int(has.get('CPU', 0))} cores and {int(has.get('GPU', 0))} GPUs; ask for fewer --workers or "
                f"--threads, or give the address of a cluster with --executor ray:HOST:PORT."
            )
        return asked or room

    def _admit(self, facts: WorkerFacts | Failure) -> None:
        """Refuses a worker whose code, weights or, without --mixed, numerics differ from the first one's."""
        if isinstance(facts, Failure):
            raise facts.kind(facts.text)
        first = next(iter(self.admitted.values()), None)
        reason = reason_to_refuse(facts, first, self.files, self.choice.mixed)
        if reason is not None:
            raise UserError(reason)
        other = "" if first is None else differences(facts.description.numerics, first.description.numerics)
        if other and other not in self.other_classes:
            self.other_classes.append(other)
            self.tell(f"a worker of another numerics class takes part (--mixed): {other}; last digits may differ")
        self.admitted[facts.worker] = facts

    def check(self, actor: Any, worker: str) -> None:
        """Admits a worker that was started again before its results are used."""
        if worker not in self.admitted:
            import ray

            self.lost += 1
            self._admit(_answer(ray, actor.facts.remote()))
            facts = self.admitted[worker]
            self.tell(
                f"a worker was lost and started again on {facts.host} (process {facts.pid}); its shard is repeated"
            )

    def hear_silent(self) -> None:
        """Workers that have answered are silent no longer; one that is lost for good stays so."""
        import ray

        for worker, call in list(self.silent.items()):
            if ray.wait([call], timeout=0)[0]:
                with contextlib.suppress(ray.exceptions.RayActorError):
                    ray.get(call)
                    del self.silent[worker]

    def for_run(
        self, folder: ShardFolder, lowered: Callable[[int], None], expected: Callable[[], NumericsClass | None]
    ) -> "RayExecutor":
        """The executor of one run; messages go to its folder from now on."""
        self.tell, self.done, self.lost, self.repeated, self.moved, self.states = folder.tell, 0, 0, 0, 0, 0
        return RayExecutor(self, lowered, expected, folder.work / f"states-{uuid.uuid4().hex[:12]}{PARTIAL}")

    def description(self) -> Description:
        """The model that shards run on."""
        self.actors  # noqa: B018 - they are there
        return next(iter(self.admitted.values())).description

    def counts(self) -> dict[str, Any] | None:
        """What became of shards and workers, for the manifest; None where no worker was needed."""
        if not self.admitted:
            return None
        return {
            "executor": "ray",
            "workers": len(self.actors),
            "done": self.done,
            "repeated": self.repeated,
            "lost": self.lost,
            "coordinator_bytes": self.moved,
            "states_bytes": self.states,
            "other_classes": list(self.other_classes),
        }

    def close(self) -> None:
        """Ends the workers, and the local Ray, or leaves the cluster."""
        if "ray" not in sys.modules:
            return
        import ray

        for actor in self.__dict__.pop("actors", ()):
            with contextlib.suppress(Exception):  # it is gone, or so is the cluster
                ray.kill(actor, no_restart=True)
        if self._joined:
            self._joined = False
            ray.shutdown()
        self._settings.close()


@dataclass
class RayExecutor:
    """Runs the passes of one run on workers."""

    workers: RayWorkers
    on_lowered: Callable[[int], None]
    expected: Callable[[], NumericsClass | None]
    folder: Path | None = None
    _is_checked: bool = field(default=False, init=False)

    @property
    def n_workers(self) -> int:
        """How many shards can run at the same time."""
        return len(self.workers.actors)

    def divide(self, work: Any) -> Sequence[Any]:
        """The batches of a pass; states that are kept go to files in the run folder."""
        if self.folder is None or not isinstance(work, StatesPass) or not any(work.keep):
            return work.shards()
        self.folder.mkdir(parents=True, exist_ok=True)
        identity = self.describe().identity
        return work.writing_shards(self.folder, identity.d_model, identity.dtype, self.n_layers)

    def forget_states(self) -> None:
        """Removes all files of states."""
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)

    def lowered(self, tokens: int) -> None:
        """Memory ran out: from now on so many tokens run together."""
        self.on_lowered(tokens)

    @property
    def n_layers(self) -> int:
        """How many blocks the model has."""
        return self.describe().planner.n_layers

    def describe(self) -> Description:
        """The model that shards run on."""
        return self.workers.description()

    def map(self, shards: Sequence[Shard], progress: Progress) -> Generator[Part, None, None]:
        """The part of each shard, in their order."""
        workers = self.workers
        if not self._is_checked:
            refuse_other_class(self.describe().numerics, self.expected(), workers.choice.mixed, workers.tell)
            self._is_checked = True
        title = getattr(shards[0], "title", "shards") if shards else "shards"
        progress.start(f"{title} on {len(workers.actors)} workers", sum(map(_n_items, shards)))
        try:
            yield from _Handed(workers, shards, progress).parts()
        finally:
            progress.finish()


class _Handed:
    """The shards of one pass, and which worker has which."""

    def __init__(self, workers: RayWorkers, shards: Sequence[Shard], progress: Progress) -> None:
        self.workers, self.shards, self.progress = workers, shards, progress
        self.waiting = deque(range(len(shards)))
        self.calls: dict[Any, tuple[int, int, float]] = {}
        """Shard, worker and time of every call under way."""
        self.done: dict[int, Part] = {}
        self.given = 0
        """Parts that were given."""
        self.lost: Counter[int] = Counter()
        """How often a worker was lost with a shard."""
        self.slowest = 0.0
        self.probes: tuple[Any, Any] = (None, None)
        """Those of the shards so far, and the one copy of them in Ray's object store."""

    def parts(self) -> Iterator[Part]:
        """All parts, in order."""
        import ray

        heard = time.monotonic()
        while self.given < len(self.shards):
            self.hand_out()
            ready = ray.wait(list(self.calls), timeout=OVERDUE[0] / 4)[0] if self.calls else []
            for call in ready:
                self.take(call, ray)
                heard = time.monotonic()
            if not ready and (not self.calls or time.monotonic() - heard > PATIENCE):
                raise Incomplete(
                    f"No worker is left, or none has answered for {PATIENCE:g} s; what is done is kept: run the same "
                    f"command to resume."
                )
            while self.given in self.done:
                yield self.done.pop(self.given)
                self.given += 1

    def hand_out(self) -> None:
        """Gives every worker something to do: the next shard, or one that is overdue elsewhere."""
        n_workers, now = len(self.workers.actors), time.monotonic()
        self.workers.hear_silent()
        at_worker = [_AHEAD if worker in self.workers.silent else 0 for worker in range(n_workers)]
        for _, worker, _ in self.calls.values():
            at_worker[worker] += 1
        for length in range(_AHEAD):
            for worker in range(n_workers):
                due = self.waiting and self.waiting[0] < self.given + _WINDOW * n_workers
                if at_worker[worker] == length and due:
                    self.call(worker, self.waiting.popleft())
                    at_worker[worker] += 1
        idle = [worker for worker, count in enumerate(at_worker) if not count]
        overdue = max(OVERDUE[0], OVERDUE[1] * self.slowest)
        shards = Counter(shard for shard, _, _ in self.calls.values())
        for call, (shard, slow, since) in sorted(self.calls.items(), key=lambda entry: entry[1][2]):
            if idle and now - since > overdue and shards[shard] == 1:
                self.workers.silent.setdefault(slow, call)
                self.call(idle.pop(), shard)
                self.workers.repeated += 1
                self.workers.tell(f"a worker has not answered for {overdue:.0f} s; its shard is given to another")

    def call(self, worker: int, shard: int) -> None:
        """Hands a shard to a worker."""
        content, probes = self.with_stored_probes(self.shards[shard])
        packed = pack(content)
        self.workers.moved += len(packed)
        made = self.workers.actors[worker].run.remote(packed, probes)
        self.calls[made] = (shard, worker, time.monotonic())

    def with_stored_probes(self, shard: Shard) -> tuple[Shard, Sequence[Any]]:
        """A shard without its probes, and a reference to them: all shards of a pass have the same ones."""
        if not isinstance(shard, StatesPass) or shard.probes is None:
            return shard, ()
        if self.probes[0] is not shard.probes.sets:
            import ray

            packed = pack(shard.probes.sets)
            self.workers.moved += len(packed)
            self.probes = shard.probes.sets, ray.put(packed)
        return replace(shard, probes=replace(shard.probes, sets=())), (self.probes[1],)  # in a tuple Ray leaves it be

    def take(self, call: Any, ray: Any) -> None:
        """Takes an answer; the shard of a worker that is lost for good goes to another one."""
        shard, worker, since = self.calls.pop(call)
        actor = self.workers.actors[worker]
        try:
            reply = ray.get(call)
            self.workers.check(actor, reply.worker)
        except ray.exceptions.RayActorError as error:
            return self.lose(shard, worker, _short(error))
        except (ray.exceptions.RaySystemError, ray.exceptions.ObjectLostError, *_full(ray)) as error:
            raise Incomplete(
                f"Ray cannot move a shard ({_short(error)[:200]}); what is done is kept: give Ray more memory, and run "
                f"the same command to resume."
            ) from error
        if isinstance(reply.part, Failure):
            raise reply.part.kind(reply.part.text)
        self.workers.moved += len(reply.part)
        self.slowest = max(self.slowest, time.monotonic() - since)
        if shard < self.given or shard in self.done:
            return  # a second worker was faster
        for other in [other for other, (same, _, _) in self.calls.items() if same == shard]:
            del self.calls[other]
        self.done[shard] = pickle.loads(reply.part)
        self.workers.done += 1
        self.workers.states += reply.states
        self.progress.advance(_n_items(self.shards[shard]))

    def lose(self, shard: int, worker: int, reason: str) -> None:
        """A worker could not be started again, or not reached: it gets nothing more until it answers."""
        self.workers.silent[worker] = self.workers.actors[worker].facts.remote()
        self.workers.lost += 1
        self.lost[shard] += 1
        if self.lost[shard] > RESTARTS:
            raise Incomplete(
                f"{self.lost[shard]} workers were lost with the same shard ({reason}); what is done is kept: run the "
                f"same command to resume."
            )
        self.workers.tell(f"a worker is lost ({reason[:120]}); its shard is given to another")
        if not any(same == shard for same, _, _ in self.calls.values()):
            self.waiting.appendleft(shard)


def _full(ray: Any) -> tuple[type[Exception], ...]:
    """What Ray raises where its object store, or the disk that it spills to, is full."""
    return ray.exceptions.ObjectStoreFullError, ray.exceptions.OutOfDiskError


def _n_items(shard: Any) -> int:
    return int(getattr(shard, "n_items", 1))


def _answer(ray: Any, call: Any) -> Any:
    try:
        return ray.get(call, timeout=PATIENCE)
    except ray.exceptions.RayError as error:
        raise Incomplete(f"A worker was lost while it started ({_short(error)}); run the same command again.") from None


@contextlib.contextmanager
def shared(groups: "WorkerGroups | None") -> Iterator["WorkerGroups"]:
    """Those that were given, which stay open, or new ones, which are closed at the end."""
    if groups is not None:
        yield groups
        return
    own = WorkerGroups()
    try:
        yield own
    finally:
        own.close()


@dataclass
class WorkerGroups:
    """The workers of a command, kept for every run of the same model; only one group is open, as it may fill all
    devices."""

    open: dict[tuple[Choice, WorkerJob], RayWorkers] = field(default_factory=dict)

    def of(self, choice: Choice, job: WorkerJob, tell: Callable[[str], None]) -> RayWorkers:
        """The workers that run this model this way; those of another model are let go."""
        if (choice, job) not in self.open:
            self.close()
            self.open[choice, job] = RayWorkers(choice, job, tell)
        return self.open[choice, job]

    def close(self) -> None:
        """Ends all workers."""
        for group in self.open.values():
            group.close()
        self.open.clear()


# What travels.


def pack(value: Any) -> bytes:
    """A shard or a part as bytes; a tensor that lies in a file as the file's name."""
    stream = io.BytesIO()
    pickler = pickle.Pickler(stream, 5)
    pickler.dispatch_table = copyreg.dispatch_table.copy() | {Tensor: _reduce_tensor}
    pickler.dump(value)
    return stream.getvalue()


def _reduce_tensor(tensor: Tensor) -> tuple[Callable[..., Tensor], tuple[Any, ...]]:
    in_file = file_of(tensor)
    if in_file is not None:
        return FileTensor.map, (in_file,)
    flat = tensor.detach().cpu().contiguous()
    return _make_tensor, (flat.view(-1).view(torch.uint8).numpy(), tensor.dtype, tuple(tensor.shape))


def _make_tensor(content: NDArray[np.uint8], dtype: torch.dtype, shape: tuple[int, ...]) -> Tensor:
    return torch.from_numpy(content).view(dtype).reshape(shape)


def _written(shard: Shard) -> int:
    """Bytes of states that a shard has written."""
    files = [rows for rows in shard.into if rows is not None] if isinstance(shard, StatesPass) else []
    return sum(rows.nbytes for rows in files)


@contextlib.contextmanager
def full_disk_is_incomplete() -> Iterator[None]:
    """A disk that is full ends a run on many workers like a lack of anything else: what is done is kept."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise Incomplete(f"{fault_in_words(error)} What is done is kept; run the same command to resume.") from error


# The cluster.


def import_ray(address: str | None) -> Any:
    """Ray, with its settings made before it is imported: a token, no usage reports, and loopback for a local one.

    Anyone who has imported Ray before keeps their own settings: Ray reads them only once.
    """
    is_new = "ray" not in sys.modules
    for name, value in _SETTINGS.items() if is_new else ():
        os.environ.setdefault(name, value)
    if is_new and address is None:
        os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")  # Ray's switch for loopback, on every system
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
    given: Mapping[str, Any] = {"address": "local", "num_cpus": cpus, "include_dashboard": False}
    what = "A local Ray cannot be started"
    if address is not None:
        what, given = f"The Ray cluster at {address!r} cannot be joined", {"address": address}
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
