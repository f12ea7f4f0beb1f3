"""A whole run on a Ray of two nodes gives the same bytes as one process."""

import json
import os
from pathlib import Path

import pytest

from anchorscope.execute.choose import choose
from anchorscope.execute.ray_cluster import import_ray
from anchorscope.recipe import Recipe
from whole_runs import SmallRun, quick, tables_of

pytest.importorskip("ray")
SOURCES = Path(__file__).parents[2] / "src"


def test_a_ray_of_two_nodes_gives_the_same_bytes_as_one_process(
    small_recipe: Recipe, small_run: SmallRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(SOURCES), os.environ.get("PYTHONPATH", "")]))
    import_ray(None)  # token and loopback, as the product has them
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    try:
        cluster.add_node(num_cpus=1)
        quick(small_recipe, tmp_path / "run", choice=choose(f"ray:{cluster.address}", 2, lease=60))
    finally:
        cluster.shutdown()
    assert tables_of(tmp_path / "run") == small_run.tables
    workers = json.loads((tmp_path / "run" / "manifest.json").read_text())["workers"]
    assert (workers["executor"], workers["workers"], workers["lost"], workers["retried"]) == ("ray", 2, 0, 0)
    assert workers["done"] > 10
