"""Workers on a Ray cluster, or on a local Ray that is started for the run.

Ray places the workers; what becomes of shards is decided by the coordinator alone. So Ray's own retries and restarts
are off: with them a lost machine can leave a shard waiting for ever. The package and the model have to be on every
machine, under the same names. Workers that own several GPUs were run with layers in several places on a CPU only,
never with several GPUs.
"""

import json
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from anchorscope.errors import UserError
from anchorscope.execute.packed_file import in_one_piece
from anchorscope.execute.pool import REPLACEMENTS, USER, Done, Event, Failed, Joined, Lost
from anchorscope.execute.ray_cluster import import_ray, join, short
from anchorscope.execute.ray_worker import RayWorker
from anchorscope.execute.worker_job import WorkerJob, share_job, thread_settings

_CALLS = 16  # of one worker at a time: more than tasks are ever in its line
_FETCH = 60.0  # seconds within which an answer that is ready has to be here
_KILL = 5.0  # seconds that a cluster is given to take note that its workers end


@dataclass
class _Actor:
    """One worker, and its calls under way."""

    handle: Any
    number: int = 0
    calls: dict[Any, tuple[str, Any]] = field(default_factory=dict)
    """By the reference that is waited for: the task (empty for `begin`), and the reference of its body."""


class RayPool:
    """A pool of Ray actors."""

    def __init__(
        self,
        address: str | None,
        n_workers: int | None,
        devices_per_worker: int = 1,
        cpus_per_worker: int = 0,
        replacements: int = REPLACEMENTS,
        worker_class: type[RayWorker] = RayWorker,
    ) -> None:
        """`address` is HOST:PORT of a cluster's head, `auto` for one that runs on this machine, or None to start one.

        Without a number of workers, there are as many as the cluster has room for when the pool is started. A worker
        reserves as many cores as it has threads, where nothing else is said.
        """
        if n_workers is not None and n_workers < 1:
            raise UserError(f"Workers: {n_workers}; allowed: 1 or more.")
        self.n_workers = n_workers or 0
        self._address, self._devices_per_worker, self._class = address, devices_per_worker, worker_class
        self._cpus_per_worker, self._replacements, self._left = cpus_per_worker, replacements, 0
        self._live: dict[str, _Actor] = {}
        self._named, self._ours = 0, False
        self._job = WorkerJob("")

    def start(self, job: Mapping[str, Any]) -> None:
        """Joins the cluster and asks for the workers; they join when Ray has placed them and they have their model."""
        self._job = share_job(WorkerJob.of(job), self._devices_per_worker)
        if self._job.device != "cpu":
            self._job = replace(self._job, threads=0)
        ray = import_ray(self._address)
        self._ours = join(ray, self._address, self.n_workers * self._cpus or None)
        self._count(ray)
        for _ in range(self.n_workers):
            self._begin()

    @property
    def _cpus(self) -> int:
        return max(1, self._cpus_per_worker or self._job.threads)

    @property
    def _gpus(self) -> int:
        return 0 if self._job.device == "cpu" else self._devices_per_worker

    def _count(self, ray: Any) -> None:
        """How many workers there are to be; refused where this machine can never have the GPUs for them."""
        here = ray.cluster_resources()
        room = int(here.get("CPU", 0)) // self._cpus
        if self._gpus:
            room = min(room, int(here.get("GPU", 0)) // self._gpus)
        if not self.n_workers or (self._address is None and self._gpus and self.n_workers > room):
            if not room:
                self.close()
                raise UserError(
                    f"A worker needs {self._cpus} cores and {self._gpus} GPUs, and Ray has {int(here.get('CPU', 0))} "
                    f"cores and {int(here.get('GPU', 0))} GPUs in all; choose another --device or fewer --threads."
                )
            if self.n_workers:
                self.close()
                raise UserError(
                    f"{self.n_workers} workers with {self._gpus} GPUs each were asked for, and this machine has room "
                    f"for {room}; ask for fewer workers, or give the address of a cluster."
                )
            self.n_workers = room
        self._left = self._replacements * self.n_workers

    def _begin(self) -> None:
        import ray

        self._named += 1
        actor_class = ray.remote(self._class).options(
            num_cpus=self._cpus, num_gpus=self._gpus, max_restarts=0, max_task_retries=0, max_concurrency=_CALLS,
            scheduling_strategy="SPREAD", runtime_env={"env_vars": thread_settings(self._job.threads)},
        )  # fmt: skip
        actor = _Actor(actor_class.remote())
        actor.calls[actor.handle.begin.remote(json.dumps(self._job.plain()).encode())] = ("", None)
        self._live[f"w{self._named}"] = actor

    def submit(self, worker: str, task: str, body: bytes, blobs: Mapping[str, bytes]) -> None:
        """Puts a task at the end of a worker's line; one for a worker that is gone is dropped, as it is told lost."""
        actor = self._live.get(worker)
        if actor is None:
            return
        header = json.dumps({"number": actor.number, "blobs": list(blobs)}).encode()
        told, found = actor.handle.compute.options(num_returns=2).remote(header, body, *blobs.values())
        actor.number += 1
        actor.calls[told] = (task, found)

    def wait(self, seconds: float) -> list[Event]:
        """What has happened: at least one event, or none after so many seconds."""
        import ray

        calls = {reference: name for name, actor in self._live.items() for reference in actor.calls}
        if not calls:
            time.sleep(seconds)
            return []
        ready, waiting = ray.wait(list(calls), num_returns=1, timeout=seconds)
        if ready and waiting:
            ready += ray.wait(waiting, num_returns=len(waiting), timeout=0)[0]
        return [self._event(calls[reference], reference) for reference in ready if calls[reference] in self._live]

    def _event(self, worker: str, reference: Any) -> Event:
        """What a call that is over gave; any failure of Ray's means that the worker is lost."""
        import ray

        task, found = self._live[worker].calls.pop(reference)
        try:
            told = json.loads(_bytes(ray.get(reference, timeout=_FETCH)))
            if not task:
                if told["kind"] == "joined":
                    return Joined(worker, told["hello"])
                return self._lose(worker, str(told["text"]), again=told["failure"] != USER)
            if told["failure"]:
                return Failed(worker, task, str(told["failure"]), str(told["text"]))
            return Done(worker, task, str(told["sha256"]), _body(ray.get(found, timeout=_FETCH)))
        except ray.exceptions.RayError as error:
            return self._lose(worker, f"{type(error).__name__}: {short(error)}")
        except (ValueError, KeyError, TypeError) as error:
            return self._lose(worker, f"it sent what is no answer ({error})")

    def _lose(self, worker: str, reason: str, again: bool = True) -> Lost:
        self._end(worker, again)
        return Lost(worker, reason)

    def discard(self, worker: str, reason: str) -> None:
        """Kills a worker; nothing more is told of it."""
        if worker in self._live:
            self._end(worker, again=True)

    def _end(self, worker: str, again: bool) -> None:
        _kill([self._live.pop(worker)])
        if again and self._left > 0:
            self._left -= 1
            self._begin()

    def close(self) -> None:
        """Kills all workers, and ends the local Ray, or leaves the cluster, where it was joined here."""
        import ray

        self._left = 0
        living, self._live = list(self._live.values()), {}
        killing = _kill(living)
        killing.join(_KILL)
        if self._ours:
            self._ours = False
            ray.shutdown()


def _kill(actors: list[_Actor]) -> threading.Thread:
    """Kills actors without waiting: a machine that is away must not hold up the others."""
    import ray

    def kill() -> None:
        for actor in actors:
            with suppress(Exception):  # it is gone, or so is the cluster
                ray.kill(actor.handle, no_restart=True)

    thread = threading.Thread(target=kill, daemon=True)
    thread.start()
    return thread


def _body(value: Any) -> memoryview:
    """The bytes of an array in memory of our own: Ray's is shared, and must not be written to."""
    if type(value) is not np.ndarray or value.dtype != np.uint8 or value.ndim != 1:
        raise TypeError(f"{type(value).__name__} in place of an array of bytes")
    return in_one_piece([value.data]).data


def _bytes(value: Any) -> bytes:
    if type(value) is not bytes:
        raise TypeError(f"{type(value).__name__} in place of bytes")
    return value
