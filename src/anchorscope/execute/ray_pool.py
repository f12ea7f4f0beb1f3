"""Workers on a Ray cluster, or on a local Ray that is started for the run.

Ray places the workers; what becomes of shards is decided by the coordinator alone. So Ray's own retries and restarts are
off: with them a lost machine can leave a shard waiting for ever. Token authentication is on unless RAY_AUTH_MODE says
otherwise, a local Ray listens on loopback only and has no dashboard, and no usage is reported. Ray itself trusts every
machine that has the token: whoever has it can run code on all of them, and a worker could make Ray unpickle what it
likes on the coordinator's machine. The package and the model have to be on every machine, under the same names.
"""

import json
import logging
import os
import secrets
import socket
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from anchorscope.errors import UserError
from anchorscope.execute.pool import REPLACEMENTS, USER, Done, Event, Failed, Joined, Lost
from anchorscope.execute.ray_worker import RayWorker
from anchorscope.execute.worker_job import WorkerJob, share_job, thread_settings

_CALLS = 16  # of one worker at a time: more than tasks are ever in its line
_PROBE = 5.0  # seconds within which a cluster's port has to answer
_FETCH = 60.0  # seconds within which an answer that is ready has to be here
_GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"  # as HTTP/2 begins, which Ray speaks
_SETTINGS = 4  # the kind of frame that answers it
_SETTINGS_OF_RAY = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_AUTH_MODE": "token",
    "RAY_NUM_REDIS_GET_RETRIES": "4",  # a wrong token is told after seconds
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # or Ray warns of a change to come
}


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
        n_workers: int,
        devices_per_worker: int = 1,
        replacements: int = REPLACEMENTS,
        worker_class: type[RayWorker] = RayWorker,
    ) -> None:
        """`address` is HOST:PORT of a cluster's head, `auto` for one that runs on this machine, or None to start one."""
        if n_workers < 1:
            raise UserError(f"Workers: {n_workers}; allowed: 1 or more.")
        self.n_workers = n_workers
        self._address, self._devices_per_worker, self._class = address, devices_per_worker, worker_class
        self._left = replacements * n_workers
        self._live: dict[str, _Actor] = {}
        self._named, self._ours = 0, False
        self._job = WorkerJob("")

    def start(self, job: Mapping[str, Any]) -> None:
        """Joins the cluster and asks for the workers; they join when Ray has placed them and they have their model."""
        self._job = share_job(WorkerJob.of(job), self._devices_per_worker)
        if self._job.device != "cpu":
            self._job = replace(self._job, threads=0)
        ray = _import_ray(self._address)
        if not ray.is_initialized():
            self._ours = True
            _join(ray, self._address, self.n_workers * self._cpus)
        if self._address is None:
            self._refuse_too_few_gpus(ray)
        for _ in range(self.n_workers):
            self._begin()

    @property
    def _cpus(self) -> int:
        return max(1, self._job.threads)

    @property
    def _gpus(self) -> int:
        return 0 if self._job.device == "cpu" else self._devices_per_worker

    def _refuse_too_few_gpus(self, ray: Any) -> None:
        here, needed = int(ray.cluster_resources().get("GPU", 0)), self.n_workers * self._gpus
        if needed > here:
            self.close()
            raise UserError(
                f"{self.n_workers} workers need {needed} GPUs, and this machine has {here}; ask for fewer workers, or "
                f"give the address of a cluster."
            )

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
        events: list[Event] = []
        for reference in ready:
            if (actor := self._live.get(calls[reference])) is not None:
                events.append(self._event(calls[reference], actor, reference))
        return events

    def _event(self, worker: str, actor: _Actor, reference: Any) -> Event:
        """What a call that is over gave; any failure of Ray's means that the worker is lost."""
        import ray

        task, found = actor.calls.pop(reference)
        try:
            told = json.loads(_bytes(ray.get(reference, timeout=_FETCH)))
            if not task:
                if told["kind"] == "joined":
                    return Joined(worker, told["hello"])
                return self._lose(worker, str(told["text"]), again=told["failure"] != USER)
            if told["failure"]:
                return Failed(worker, task, str(told["failure"]), str(told["text"]))
            return Done(worker, task, str(told["sha256"]), _bytes(ray.get(found, timeout=_FETCH)))
        except ray.exceptions.RayError as error:
            return self._lose(worker, f"{type(error).__name__}: {_short(error)}")
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
        killing.join(_PROBE)
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


def _import_ray(address: str | None) -> Any:
    """Ray, with its settings made before it is imported, as it reads them then."""
    for name, value in _SETTINGS_OF_RAY.items():
        os.environ.setdefault(name, value)
    if address is None:
        os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")  # Ray's switch for loopback, on every system
        if not {"RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"} & set(os.environ):
            os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)  # for this run only
    try:
        import ray
    except ImportError as error:
        raise UserError(
            "Ray is not installed, and this executor runs on it; install it with: pip install 'anchorscope[ray]'"
        ) from error
    return ray


def _join(ray: Any, address: str | None, cpus: int) -> None:
    """Starts a local Ray, or joins a cluster; UserError within seconds where there is none."""
    quiet = {"log_to_driver": False, "logging_level": logging.ERROR}
    if address is None:
        place, given = "A local Ray cannot be started", {"num_cpus": cpus, "include_dashboard": False}
    else:
        place, given = f"The Ray cluster at {address!r} cannot be joined", {"address": address}
        if address != "auto":
            _refuse_silent_port(address)
    try:
        ray.init(**given, **quiet)
    except Exception as error:  # whatever Ray makes of a wrong token, another version, a port of something else
        raise UserError(
            f"{place} ({_short(error)}); is the head running, does it have this version of Ray and of Python, and is "
            f"its token in RAY_AUTH_TOKEN or RAY_AUTH_TOKEN_PATH?"
        ) from error


def _refuse_silent_port(address: str) -> None:
    """UserError where nothing at the address speaks as Ray does: Ray itself would try for minutes."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 65536 or "/" in address:
        raise UserError(f"Ray address {address!r}; allowed: HOST:PORT of the cluster's head, as in 10.0.0.1:6379, auto.")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), _PROBE) as connection:
            connection.settimeout(_PROBE)
            connection.sendall(_GREETING)
            reply = connection.recv(9)
        reason = "" if len(reply) > 3 and reply[3] == _SETTINGS else "what answers there is not Ray"
    except OSError as error:
        reason = str(error)
    if reason:
        raise UserError(
            f"There is no Ray cluster at {address!r} ({reason}); start one with: ray start --head, or leave the address "
            f"out for a local one."
        )


def _bytes(value: Any) -> bytes:
    if type(value) is not bytes:
        raise TypeError(f"{type(value).__name__} in place of bytes")
    return value


def _short(error: BaseException) -> str:
    """The first lines of what Ray says, in one."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return " ".join(lines)[:400] or type(error).__name__
