"""Faults of workers on a Ray cluster of two nodes: every shard ends with the right bytes, or one line says why not."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import needs
from anchorscope.errors import Incomplete, MemoryRanOut, UserError
from anchorscope.execute import ray_executor
from anchorscope.execute.choose import choose
from anchorscope.execute.ray_executor import Failure, RayExecutor, RayWorker, RayWorkers, WorkerJob, import_ray, pack
from anchorscope.execute.worker import Worker
from anchorscope.models.loading import load
from anchorscope.progress import Silent
from pass_cases import bits
from repo import SOURCES, SUPPORT
from small_shards import parts_here, small_shards

N = 24


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Two nodes with a core each, and a token."""
    needs.ray()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join([str(SOURCES), str(SUPPORT)]))
        import_ray(None)
        from ray.cluster_utils import Cluster

        made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
        try:
            made.second = made.add_node(num_cpus=1)
            yield made
        finally:
            made.shutdown()


@pytest.fixture(scope="module")
def model(save_tiny: Callable[[str], Path]) -> str:
    return str(save_tiny("llama"))


class Crew:
    """Two workers, their shards, and the right parts."""

    def __init__(self, address: str, model: str) -> None:
        lm = load(model, "float32", "cpu", False)
        self.told: list[str] = []
        self.shards = small_shards(lm, N)
        self.right = parts_here(lm, self.shards)
        self.workers = RayWorkers(choose(f"ray:{address}", 2), WorkerJob(model, threads=1), self.told.append)
        self.executor = RayExecutor(self.workers, lambda tokens: None, lambda: None)

    @property
    def pids(self) -> list[int]:
        return [facts.pid for facts in self.workers.admitted.values()]

    def run(self, strike: Callable[[], None] = lambda: None, after: int = 3) -> list[Any]:
        """The parts; after some of them something happens."""
        parts = []
        for part in self.executor.map(self.shards, Silent()):
            parts.append(bits(part))
            if len(parts) == after:
                strike()
        return parts


@pytest.fixture
def crew(cluster: Any, model: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Crew]:
    monkeypatch.setattr(ray_executor, "OVERDUE", (2.0, 2.0))
    monkeypatch.setattr(ray_executor, "PATIENCE", 60.0)
    made = Crew(cluster.address, model)
    yield made
    made.workers.close()


def test_no_fault(crew: Crew) -> None:
    assert crew.run() == crew.right
    assert crew.told == []


def test_a_worker_that_is_killed_starts_again(crew: Crew) -> None:
    crew.workers.description()
    first = crew.pids[0]
    assert crew.run(lambda: os.kill(first, signal.SIGKILL)) == crew.right
    assert crew.run() == crew.right
    assert any("was lost and started again" in line or "has not answered" in line for line in crew.told)


def test_a_worker_that_hangs_holds_nothing_up(crew: Crew) -> None:
    crew.workers.description()
    first = crew.pids[0]
    try:
        assert crew.run(lambda: os.kill(first, signal.SIGSTOP)) == crew.right
        assert crew.run() == crew.right, "and gets nothing more"
        assert sum("has not answered" in line for line in crew.told) <= 2
    finally:
        os.kill(first, signal.SIGCONT)


def test_a_worker_that_dies_every_time_ends_the_run_with_one_line(crew: Crew, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_executor, "RESTARTS", 0)
    crew.workers.description()
    with pytest.raises(
        Incomplete, match=r"No worker is left.* run the same command|workers were lost with the same shard"
    ) as error:
        crew.run(lambda: [os.kill(pid, signal.SIGKILL) for pid in crew.pids] and None)
    assert "\n" not in str(error.value)


def test_a_node_that_is_lost_holds_nothing_up(crew: Crew, cluster: Any) -> None:
    crew.workers.description()
    assert crew.run(lambda: cluster.remove_node(cluster.second, allow_graceful=False)) == crew.right
    assert crew.run() == crew.right, "with half of the capacity"
    cluster.second = cluster.add_node(num_cpus=1)
    assert crew.run() == crew.right


def test_other_weights_are_refused(crew: Crew) -> None:
    crew.workers.files = {"model.safetensors": {"sha256": "0" * 64}}
    with pytest.raises(UserError, match="has other weights"):
        crew.workers.description()


def test_a_cluster_with_another_token_is_not_joined(cluster: Any) -> None:
    text = (
        "import sys; from anchorscope.execute.ray_executor import *; join(import_ray(sys.argv[1]), sys.argv[1], None)"
    )
    wrong = {**os.environ, "RAY_AUTH_TOKEN": "another" * 8, "PYTHONPATH": str(SOURCES)}
    command = [sys.executable, "-c", text, cluster.address]
    done = subprocess.run(command, env=wrong, capture_output=True, text=True, check=False, timeout=100)
    assert done.returncode
    assert f"UserError: The Ray cluster at '{cluster.address}' cannot be joined" in done.stderr


def test_a_port_where_nothing_listens_is_one_line() -> None:
    needs.ray()
    with pytest.raises(UserError, match=r"There is no Ray cluster at '127\.0\.0\.1:1'"):
        ray_executor.join(import_ray("127.0.0.1:1"), "127.0.0.1:1", None)


@pytest.mark.parametrize(
    ("error", "kind"), [(MemoryRanOut("x"), MemoryRanOut), (UserError("x"), UserError), (ValueError("x"), RuntimeError)]
)
def test_what_fails_on_a_worker_is_its_answer(
    error: Exception, kind: type[Exception], model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise error

    monkeypatch.setattr(Worker, "run", fail)
    reply = RayWorker(WorkerJob(model)).run(pack(None))
    assert isinstance(reply.part, Failure)
    assert reply.part.kind is kind
