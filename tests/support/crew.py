"""Workers, a coordinator and the right results: what every test of faults needs."""

import contextlib
import hashlib
import json
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from anchorscope.execute.coordinator import Coordinator, Task
from anchorscope.execute.pool import Pool
from anchorscope.execute.worker_job import WorkerJob
from faulty import FOLDER, part_of

LEASE = 6.0
PATIENCE = 300.0
SHARDS = 12


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """As every worker here computes."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class Plain(NamedTuple):
    """A packed shard of a stand-in."""

    body: bytes
    blobs: Mapping[str, bytes]


@dataclass
class Shards:
    """Packed shards of a model, and the sha256 of each one's part, computed in this process."""

    model: str
    packed: Mapping[str, Any]
    right: dict[str, str]
    refuse: Callable[[Mapping[str, Any]], str | None]
    """Why a worker that says this of itself may not join."""

    @property
    def job(self) -> WorkerJob:
        return WorkerJob(self.model, threads=1)

    @classmethod
    def of(cls, model: Path) -> "Shards":
        """Of a model in a folder."""
        from anchorscope.execute.numerics import hello, refuse
        from anchorscope.models.loading import load
        from small_shards import hashes_here, packed_shards, small_shards

        with one_thread():
            lm = load(str(model))
            packed = packed_shards(small_shards(lm, SHARDS))
            expected = hello(lm, WorkerJob(str(model), threads=1))
            return cls(str(model), packed, hashes_here(lm, packed), lambda told: refuse(told, expected, mixed=False))

    @classmethod
    def stand_ins(cls) -> "Shards":
        """Of no model: each names a blob of its own and one that all share."""
        blobs = {"all": b"shared" * 1000} | {f"b{number}": bytes([number]) * 100 for number in range(SHARDS)}
        packed = {
            f"t{number}": Plain(json.dumps([mine, "all"]).encode(), {name: blobs[name] for name in (mine, "all")})
            for number, mine in enumerate(f"b{number}" for number in range(SHARDS))
        }
        right = {name: hashlib.sha256(part_of(*one)).hexdigest() for name, one in packed.items()}
        return cls("none", packed, right, lambda told: None if told["weights"] == "none" else "other weights")


@dataclass
class Crew:
    """A pool whose workers fail as files in `folder` say, and its coordinator."""

    pool: Pool
    shards: Shards
    folder: Path
    lease: float = LEASE
    told: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.coordinator = Coordinator(self.pool, self._admit, self.lease, tell=self.told.append)

    def _admit(self, hello: Mapping[str, Any]) -> str | None:
        reason = self.shards.refuse(hello)
        if reason is not None:
            self.refused.append(reason)
        return reason

    def start(self) -> None:
        self.pool.start(self.shards.job.plain())
        self.coordinator.ready(PATIENCE)

    def fault(self, name: str, text: str = "") -> None:
        (self.folder / name).write_text(text, encoding="utf-8")

    def run(self) -> dict[str, str]:
        """Computes all shards; the sha256 of each one's part."""
        found: dict[str, str] = {}

        def done(task: str, body: bytes, sha256: str) -> None:
            assert task not in found, "done is called once for each"
            found[task] = hashlib.sha256(body).hexdigest()
            assert found[task] == sha256

        packed = self.shards.packed
        tasks = [Task(name, lambda name=name: packed[name]) for name in packed]  # type: ignore[misc]
        self.coordinator.run(tasks, done)
        return found

    @contextlib.contextmanager
    def inside_a_shard(self, strike: Callable[[list[int]], None], workers: int = 2) -> Iterator[None]:
        """Holds workers inside a shard until so many are, then strikes and lets them go on."""
        for file in self.folder.glob("begun-*"):
            file.unlink()
        self.fault("hold")
        struck: list[bool] = []

        def wait() -> None:
            until = time.monotonic() + PATIENCE
            while len(pids := self.begun()) < workers and time.monotonic() < until:
                time.sleep(0.02)
            try:
                if len(pids) >= workers:
                    strike(pids)
                    struck.append(True)
            finally:
                (self.folder / "hold").unlink()

        thread = threading.Thread(target=wait)
        thread.start()
        try:
            yield
        finally:
            thread.join()
        assert struck, "the fault has to strike inside a shard"

    def begun(self) -> list[int]:
        """Processes that are inside a shard."""
        return [int(file.name.split("-")[1]) for file in self.folder.glob("begun-*")]


def alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and is not waited for yet does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


@contextlib.contextmanager
def faults_at(folder: Path) -> Iterator[None]:
    """Tells workers that are started from now on where faults are."""
    folder.mkdir(exist_ok=True)
    before = os.environ.get(FOLDER)
    os.environ[FOLDER] = str(folder)
    try:
        yield
    finally:
        if before is None:
            del os.environ[FOLDER]
        else:
            os.environ[FOLDER] = before
