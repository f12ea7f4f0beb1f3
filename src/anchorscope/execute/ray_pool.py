"""Workers on a Ray cluster, or on a local Ray that is started for the run.

Ray places the workers; what becomes of shards is decided by the coordinator alone. So Ray's own retries and restarts
are off: with them a lost machine can leave a shard waiting for ever. The package and the model have to be on every
machine, under the same names. Workers that own several GPUs were run with layers in several places on a CPU only,
never with several GPUs.

Every worker has a thread here that takes in what it answers: results are large, and one that hangs on its way holds up
no other worker. Ray brings them and tells it through futures. No thread waits inside Ray itself: the whole process
would end if Ray is shut down meanwhile.
"""

import json
import queue
import threading
import time
from collections.abc import Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from anchorscope.errors import UserError
from anchorscope.execute.content_hash import content_hash
from anchorscope.execute.packed_file import in_one_piece
from anchorscope.execute.pool import REPLACEMENTS, USER, Done, Event, Failed, Joined, Lost, next_events
from anchorscope.execute.ray_cluster import import_ray, join, short
from anchorscope.execute.ray_worker import RayWorker
from anchorscope.execute.worker_job import WorkerJob, share_job, thread_settings

_CALLS = 16  # of one worker at a time: more than tasks are ever in its line
_FETCH = 60.0  # seconds within which an answer that is ready has to be here
_KILL = 5.0  # seconds that a cluster is given to take note that its workers end


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
        self._events: queue.SimpleQueue[Event | MemoryError] = queue.SimpleQueue()
        self._live: dict[str, _Actor] = {}
        self._named, self._ours = 0, False
        self._killing: list[threading.Thread] = []
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
            num_cpus=self._cpus,
            num_gpus=self._gpus,
            max_restarts=0,
            max_task_retries=0,
            max_concurrency=_CALLS,
            scheduling_strategy="SPREAD",
            runtime_env={"env_vars": thread_settings(self._job.threads)},
        )
        name = f"w{self._named}"
        self._live[name] = _Actor(name, actor_class.remote(), self._job, self._events)

    def submit(self, worker: str, task: str, body: bytes, blobs: Mapping[str, bytes]) -> None:
        """Puts a task at the end of a worker's line; one for a worker that is gone is dropped, as it is told lost."""
        if worker in self._live:
            self._live[worker].send(task, body, blobs)

    def wait(self, seconds: float) -> list[Event]:
        """What has happened: at least one event, or none after so many seconds."""
        return next_events(self._events, self._told, seconds)

    def _told(self, event: Event | MemoryError) -> list[Event]:
        """An event as the coordinator sees it; nothing, where it comes from a worker that is gone."""
        if isinstance(event, MemoryError):  # here, not on a worker
            raise event
        actor = self._live.get(event.worker)
        if actor is None:
            return []
        if isinstance(event, Lost):
            self._end(event.worker, again=not actor.was_refused)
        return [event]

    def discard(self, worker: str, reason: str) -> None:
        """Kills a worker; nothing more is told of it."""
        if worker in self._live:
            self._end(worker, again=True)

    def _end(self, worker: str, again: bool) -> None:
        self._killing = [one for one in self._killing if one.is_alive()]
        self._killing.append(_kill([self._live.pop(worker)]))
        if again and self._left > 0:
            self._left -= 1
            self._begin()

    def close(self) -> None:
        """Kills all workers, and ends the local Ray, or leaves the cluster, where it was joined here.

        Ray ends the whole process where it is left while a thread is inside it: so long as one is killing, it stays.
        """
        self._left = 0
        living, self._live = list(self._live.values()), {}
        self._events = queue.SimpleQueue()  # what threads still put into the other one goes with them
        if living:
            self._killing.append(_kill(living))
        until = time.monotonic() + _KILL
        for one in self._killing:
            one.join(max(0.0, until - time.monotonic()))
        if self._ours and not any(one.is_alive() for one in self._killing):
            import ray

            self._ours = False
            ray.shutdown()


class _Actor:
    """One worker, with the thread that takes in its answers."""

    def __init__(self, name: str, handle: Any, job: WorkerJob, events: "queue.SimpleQueue[Any]") -> None:
        self.name, self.handle, self.was_refused = name, handle, False
        self._number, self._events = 0, events
        self._answers: queue.SimpleQueue[tuple[str, Future[Any], Future[Any] | None] | None] = queue.SimpleQueue()
        self._expect("", handle.begin.remote(json.dumps(job.plain()).encode()))
        threading.Thread(target=self._read, name=f"{name} answers", daemon=True).start()

    def send(self, task: str, body: bytes, blobs: Mapping[str, bytes]) -> None:
        """Hands a task to Ray; does not wait."""
        header = json.dumps({"number": self._number, "blobs": list(blobs)}).encode()
        told, found = self.handle.compute.options(num_returns=2).remote(header, body, *blobs.values())
        self._number += 1
        self._expect(task, told, found.future())

    def _expect(self, task: str, told: Any, body: "Future[Any] | None" = None) -> None:
        """Passes an answer on when it is there; nobody but Ray holds it until then."""
        told.future().add_done_callback(partial(_hand_over, self._answers, task, body))

    def _read(self) -> None:
        while self._pass_on(self._answers.get()):  # no name: nothing is held while it waits
            pass

    def _pass_on(self, answer: "tuple[str, Future[Any], Future[Any] | None] | None") -> bool:
        """Whether more is to come."""
        if answer is None:
            return False
        event = self._event(*answer)
        self._events.put(event)
        return not isinstance(event, Lost)

    def _event(self, task: str, answer: "Future[Any]", body: "Future[Any] | None") -> Event | MemoryError:
        """What an answer says, with its body (none for `begin`); any failure of Ray's means that the worker is lost."""
        import ray

        try:
            told = json.loads(_bytes(answer.result(0)))
            if body is None:
                if told["kind"] == "joined":
                    return Joined(self.name, told["hello"])
                self.was_refused = told["failure"] == USER  # another one would be, too
                return Lost(self.name, str(told["text"]))
            if told["failure"]:
                return Failed(self.name, task, str(told["failure"]), str(told["text"]))
            whole = _body(body.result(_FETCH))
            return Done(self.name, task, str(told["sha256"]), whole, content_hash([whole]))
        except ray.exceptions.RayError as error:
            return self._lost(error)
        except TimeoutError:
            return Lost(self.name, f"its result was ready, and did not come within {_FETCH:g} s")
        except MemoryError as error:
            return error
        except Exception as error:  # whatever it is, it has to be told
            return Lost(self.name, f"it sent what is no answer ({type(error).__name__}: {error})")

    def _lost(self, error: Exception) -> Lost:
        return Lost(self.name, f"{type(error).__name__}: {short(error)}")

    def end(self) -> None:
        """Ends the thread, at once or when the result that it waits for has come or is late."""
        self.handle = None  # the thread must not be the last to hold it: letting go of one asks Ray
        self._answers.put(None)


def _hand_over(answers: "queue.SimpleQueue[Any]", task: str, body: "Future[Any] | None", told: "Future[Any]") -> None:
    """Called by Ray's own thread, which must not be held up."""
    answers.put((task, told, body))


def _kill(actors: list[_Actor]) -> threading.Thread:
    """Kills actors without waiting: a machine that is away must not hold up the others."""
    import ray

    handles = [actor.handle for actor in actors]

    def kill() -> None:
        while handles:
            with suppress(Exception):  # it is gone, or so is the cluster
                ray.kill(handles.pop(), no_restart=True)

    for actor in actors:
        actor.end()
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
