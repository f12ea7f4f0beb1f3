"""Faults of worker processes and of a Ray cluster of two nodes: every one ends with the right answer of every shard,
each reported once. Ray's workers are stand-ins without a model; `runs/test_ray_run.py` loses a node inside a real run.
"""

import hashlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import needs
from anchorscope.artefacts.shards import ShardStore, StoreWriter
from anchorscope.errors import Incomplete, UserError
from anchorscope.execute.coordinator import Disagreement
from anchorscope.execute.pool import MemoryRanOut
from anchorscope.execute.pool_executor import PoolExecutor
from anchorscope.execute.process_pool import ProcessPool
from anchorscope.execute.ray_cluster import import_ray
from anchorscope.execute.ray_pool import RayPool
from anchorscope.execute.wire import pack, unpack
from anchorscope.progress import Silent
from crew import LEASE, PATIENCE, Crew, Shards, alive, faults_at
from repo import SOURCES, SUPPORT

ENTRY = ("-P", str(SUPPORT / "faulty.py"))
STAND_IN = (*ENTRY, "stand-in")
processes = pytest.mark.parametrize("shared_crew", ["processes"], indirect=True)
on_ray = pytest.mark.parametrize("shared_crew", ["ray"], indirect=True)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Two nodes with a core each, and a token."""
    needs.ray()
    folder = tmp_path_factory.mktemp("faults")
    with faults_at(folder), pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join([str(SOURCES), str(SUPPORT)]))
        import_ray(None)  # token and loopback, as the product has them
        from ray.cluster_utils import Cluster

        made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
        try:
            made.second = made.add_node(num_cpus=1)
            made.faults = folder
            yield made
        finally:
            made.shutdown()


@pytest.fixture(scope="module", params=["processes", "ray"])
def shared_crew(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Crew]:
    if request.param == "ray":
        from faulty import FaultyRayWorker

        cluster = request.getfixturevalue("cluster")
        pool = RayPool(cluster.address, 2, replacements=20, worker_class=FaultyRayWorker)
        crew = Crew(pool, Shards.stand_ins(), cluster.faults)
    else:
        shards = Shards.of(request.getfixturevalue("save_tiny")("llama"))
        pool = ProcessPool(2, replacements=20, entry=ENTRY, copied=True)
        crew = Crew(pool, shards, tmp_path_factory.mktemp("faults"))
    with faults_at(crew.folder):
        try:
            crew.start()
            yield crew
        finally:
            crew.pool.close()


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
    assert any("SIGKILL" in line or "ActorDiedError" in line for line in crew.told)


def test_stopped_inside_a_shard(crew):
    stopped = []
    with crew.inside_a_shard(lambda pids: (stopped.append(pids[0]), os.kill(pids[0], signal.SIGSTOP))):
        began = time.monotonic()
        assert crew.run() == crew.shards.right
        assert time.monotonic() - began < LEASE + 60
    assert any("--lease" in line for line in crew.told)
    if isinstance(crew.pool, ProcessPool):
        assert not alive(stopped[0]), "a worker that was given up does not stay"


def test_memory_runs_out_on_one_worker(crew):
    lost = crew.coordinator.counts.lost
    crew.fault("memory")
    with pytest.raises(MemoryRanOut):
        crew.run()
    assert crew.run() == crew.shards.right
    assert crew.coordinator.counts.lost == lost, "the worker lives on"


@processes
def test_a_failure_is_tried_elsewhere(crew):
    crew.fault("error")
    assert crew.run() == crew.shards.right
    assert any("broken on purpose" in line for line in crew.told)


@processes
def test_a_shard_that_never_works_ends_in_one_line(crew):
    crew.fault("always shard 5")
    with pytest.raises(Incomplete, match="broken on purpose"):
        crew.run()
    (crew.folder / "always shard 5").unlink()
    assert crew.run() == crew.shards.right


@processes
def test_a_users_mistake_is_told_as_it_is(crew):
    crew.fault("user", "The thing is wrong; mend it.")
    with pytest.raises(UserError, match=r"^The thing is wrong; mend it\.$"):
        crew.run()


@processes
def test_the_same_answer_twice(crew):
    before = crew.coordinator.counts.duplicates
    crew.fault("twice")
    assert crew.run() == crew.shards.right
    assert crew.coordinator.counts.duplicates > before


@processes
def test_another_answer_to_the_same_shard(crew):
    crew.fault("twice otherwise")
    with pytest.raises(Disagreement, match=r"worker w\d+"):
        crew.run()
    assert crew.run() == crew.shards.right


@processes
def test_bytes_that_changed_on_their_way(crew):
    crew.fault("corrupt")
    assert crew.run() == crew.shards.right
    assert any("sha256" in line for line in crew.told)


@processes
def test_workers_with_other_weights_or_another_torch_are_refused(crew, save_tiny):
    crew.fault("weights", str(save_tiny("qwen2")))
    crew.fault("torch", "0.0.1")
    with crew.inside_a_shard(lambda pids: os.kill(pids[0], signal.SIGKILL)):
        assert crew.run() == crew.shards.right
    crew.coordinator.ready(PATIENCE)  # two came in its place and were refused, the third was not
    assert crew.run() == crew.shards.right
    weights, torch = crew.refused
    assert "other weights (config.json differs)" in weights
    assert "torch 0.0.1 instead of" in torch


@processes
def test_a_shard_in_the_store_that_is_cut_short_is_computed_again(crew, tmp_path):
    shards = [unpack(one.body, one.blobs) for one in crew.shards.packed.values()]
    store = ShardStore(tmp_path / "step.shards")

    def run() -> list[str]:
        with StoreWriter(store) as kept:
            parts = PoolExecutor(crew.coordinator, lambda: kept).map(shards, Silent())
            return [hashlib.sha256(pack(part).body).hexdigest() for part in parts]

    assert run() == list(crew.shards.right.values())
    done = crew.coordinator.counts.done
    assert run() == list(crew.shards.right.values())
    assert crew.coordinator.counts.done == done, "what is in the store is not computed again"
    file = sorted((tmp_path / "step.shards").iterdir())[0]
    file.write_bytes(file.read_bytes()[:-5])
    assert run() == list(crew.shards.right.values())
    assert crew.coordinator.counts.done == done + 1


def test_lost_capacity_and_then_all_of_it(tmp_path):
    """Of workers that are no copies of another process, as those on GPUs are."""
    with faults_at(tmp_path):
        crew = Crew(ProcessPool(2, replacements=0, entry=STAND_IN), Shards.stand_ins(), tmp_path, lease=2.0)
        try:
            crew.start()
            crew.fault("exit")
            assert crew.run() == crew.shards.right
            assert any("exit code 7" in line and "these are my last words" in line for line in crew.told)
            began = time.monotonic()
            with (
                crew.inside_a_shard(lambda pids: os.kill(pids[0], signal.SIGKILL), workers=1),
                pytest.raises(Incomplete, match="SIGKILL"),
            ):
                crew.run()
            assert time.monotonic() - began < LEASE + 60
        finally:
            crew.pool.close()


def test_workers_and_who_starts_them_end_with_the_coordinator(tmp_path):
    with faults_at(tmp_path):
        (tmp_path / "hold").touch()
        text = (
            "import sys; sys.path[:0] = sys.argv[2:]\n"
            "from crew import *; from anchorscope.execute.process_pool import ProcessPool\n"
            "entry = ('-P', sys.argv[2] + '/faulty.py', 'stand-in')\n"
            "crew = Crew(ProcessPool(1, entry=entry, copied=True), Shards.stand_ins(), Path(sys.argv[1]))\n"
            "crew.start(); crew.run()"
        )
        parent = subprocess.Popen([sys.executable, "-c", text, str(tmp_path), str(SUPPORT)])
        try:
            until = time.monotonic() + PATIENCE
            while not list(tmp_path.glob("begun-*")) and time.monotonic() < until:
                assert parent.poll() is None
                time.sleep(0.05)
            (pid,) = [int(file.name.split("-")[1]) for file in tmp_path.glob("begun-*")]
            starter = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
            assert starter != parent.pid
        finally:
            parent.kill()
            parent.wait()
        until = time.monotonic() + 20
        while (alive(pid) or alive(starter)) and time.monotonic() < until:
            time.sleep(0.05)
        assert not alive(pid)
        assert not alive(starter)


@on_ray
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


@on_ray
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
