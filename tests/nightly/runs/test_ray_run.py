"""A whole run on a Ray of two nodes, one of which is lost half-way, gives the same bytes as one process."""

import json
import os
import time
from pathlib import Path

import pytest

import needs
from anchorscope.execute.choose import choose
from anchorscope.execute.coordinator import DEPTH, Coordinator
from anchorscope.execute.pool import Done, Joined
from anchorscope.execute.ray_cluster import import_ray
from anchorscope.recipe import Recipe
from repo import SOURCES
from whole_runs import SmallRun, quick, tables_of

BEFORE = 5
"""Shards that are done before a node is lost."""


@pytest.fixture(scope="module", autouse=True)
def _ray() -> None:
    needs.ray()


def test_a_ray_of_two_nodes_gives_the_same_bytes_as_one_process(
    small_recipe: Recipe, small_run: SmallRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(SOURCES), os.environ.get("PYTHONPATH", "")]))
    import_ray(None)  # token and loopback, as the product has them
    from ray.cluster_utils import Cluster

    join, take = Coordinator._take_worker, Coordinator._take_result
    processes: list[Path] = []
    done: list[str] = []

    def joined(self: Coordinator, event: Joined) -> None:
        join(self, event)
        processes.append(Path(f"/proc/{event.hello['pid']}"))

    def taken(self: Coordinator, event: Done) -> None:
        take(self, event)
        done.append(event.worker)
        if len(done) == BEFORE:
            cluster.remove_node(second, allow_graceful=False)
            while all(one.exists() for one in processes):  # a worker notices a moment later that its node is gone
                time.sleep(0.02)

    monkeypatch.setattr(Coordinator, "_take_worker", joined)
    monkeypatch.setattr(Coordinator, "_take_result", taken)
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    try:
        second = cluster.add_node(num_cpus=1)
        told = quick(small_recipe, tmp_path / "run", choice=choose(f"ray:{cluster.address}", 2, lease=60))
    finally:
        cluster.shutdown()
    assert tables_of(tmp_path / "run") == small_run.tables
    assert len(set(done[:BEFORE])) == 2, "both nodes have taken part"
    after = done[BEFORE + 2 * DEPTH :]  # what was in their lines may have come from both
    assert len(set(after)) == 1, "the other one goes on alone"
    assert any("is lost" in line for line in told)
    workers = json.loads((tmp_path / "run" / "manifest.json").read_text())["workers"]
    assert (workers["executor"], workers["workers_asked"], workers["workers"], workers["lost"]) == ("ray", 2, 1, 1)
    assert workers["done"] > BEFORE
