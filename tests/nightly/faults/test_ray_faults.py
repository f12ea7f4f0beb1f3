"""Faults on a Ray cluster of two nodes: every one ends with the right answer of every shard, each told once.

Workers are stand-ins without a model; `runs/test_ray_run.py` loses a node in the middle of a real run."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest

import needs
from anchorscope.execute.pool import MemoryRanOut
from anchorscope.execute.ray_cluster import import_ray
from anchorscope.execute.ray_pool import RayPool
from crew import LEASE, PATIENCE, Crew, Shards, alive, faults_at
from repo import SUPPORT

HERE = SUPPORT
SOURCES = HERE.parents[1] / "src"


@pytest.fixture(scope="module", autouse=True)
def _ray() -> None:
    needs.ray()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Two nodes with a core each, and a token."""
    folder = tmp_path_factory.mktemp("faults")
    with faults_at(folder), pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join([str(SOURCES), str(HERE)]))
        import_ray(None)  # token and loopback, as the product has them
        from ray.cluster_utils import Cluster

        made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
        try:
            made.second = made.add_node(num_cpus=1)
            made.faults = folder
            yield made
        finally:
            made.shutdown()


@pytest.fixture(scope="module")
def shared_crew(cluster: Any) -> Iterator[Crew]:
    from faulty import FaultyRayWorker

    pool = RayPool(cluster.address, 2, replacements=20, worker_class=FaultyRayWorker)
    crew = Crew(pool, Shards.stand_ins(), cluster.faults)
    try:
        crew.start()
        yield crew
    finally:
        pool.close()


@pytest.fixture
def crew(shared_crew: Crew) -> Crew:
    """All workers there, no fault left over."""
    for file in shared_crew.folder.iterdir():
        file.unlink()
    shared_crew.told.clear()
    shared_crew.refused.clear()
    shared_crew.coordinator.ready(PATIENCE)
    return shared_crew


def test_no_fault(crew):
    assert crew.run() == crew.shards.right
    assert not crew.told


def test_killed_inside_a_shard(crew):
    with crew.inside_a_shard(lambda pids: os.kill(pids[0], signal.SIGKILL)):
        assert crew.run() == crew.shards.right
    assert any("ActorDiedError" in line for line in crew.told)


def test_memory_runs_out_on_one_worker(crew):
    lost = crew.coordinator.counts.lost
    crew.fault("memory")
    with pytest.raises(MemoryRanOut):
        crew.run()
    assert crew.run() == crew.shards.right
    assert crew.coordinator.counts.lost == lost, "the worker lives on"


def test_stopped_inside_a_shard(crew):
    with crew.inside_a_shard(lambda pids: os.kill(pids[0], signal.SIGSTOP)):
        began = time.monotonic()
        assert crew.run() == crew.shards.right
        assert time.monotonic() - began < LEASE + 60
    assert any("--lease" in line for line in crew.told)


def test_a_node_is_lost_inside_a_shard_and_another_one_comes(crew, cluster):
    crew.fault("weights", "others")

    def strike(pids: list[int]) -> None:
        cluster.remove_node(cluster.second, allow_graceful=False)
        while all(map(alive, pids)):  # a worker notices a moment later that its node is gone
            time.sleep(0.02)

    with crew.inside_a_shard(strike):
        began = time.monotonic()
        assert crew.run() == crew.shards.right
        assert time.monotonic() - began < LEASE + 60
    assert crew.coordinator.counts.workers == 1
    assert crew.run() == crew.shards.right, "with half of the capacity"
    cluster.second = cluster.add_node(num_cpus=1)
    crew.coordinator.ready(PATIENCE)
    assert crew.run() == crew.shards.right
    (refused,) = crew.refused
    assert "other weights" in refused


def test_a_cluster_with_another_token_is_not_joined(crew, cluster):
    text = "import sys; from anchorscope.execute.ray_pool import RayPool; RayPool(sys.argv[1], 1).start({'model': 'm'})"
    wrong = {**os.environ, "RAY_AUTH_TOKEN": "another" * 8}
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", text, cluster.address], env=wrong, capture_output=True, text=True, check=False
    )
    assert done.returncode
    assert f"UserError: The Ray cluster at '{cluster.address}' cannot be joined" in done.stderr
    assert time.monotonic() - began < 60
