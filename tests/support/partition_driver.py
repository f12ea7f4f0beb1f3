"""A coordinator beside a Ray head, and a worker behind a network that goes away inside a pass: run by the test."""

import json
import subprocess
import sys
import time
from typing import Any

from anchorscope.execute.choose import choose
from anchorscope.execute.ray_executor import RayExecutor, WorkerJob, import_ray
from anchorscope.models.loading import load
from anchorscope.progress import Silent
from pass_cases import bits
from small_shards import StrikeAfter, parts_here, small_shards


def main(model: str, address: str, link: str) -> dict[str, Any]:
    """Whether the parts are right before and after, and how long it took."""
    ray = import_ray(address)
    ray.init(
        address,
        _node_ip_address=address.rpartition(":")[0],
        log_to_driver=False,
        logging_level="ERROR",
    )
    executor = RayExecutor(choose(f"ray:{address}", 2), WorkerJob(model, threads=1))
    lm = load(model, "float32", "cpu", False)
    shards = small_shards(lm, 24)
    right = parts_here(lm, shards)
    before = [bits(part) for part in executor.map(shards, Silent())] == right
    nodes = sorted(node["NodeManagerAddress"] for node in ray.nodes() if node["Alive"])
    began = time.monotonic()
    cut = StrikeAfter(
        3, lambda: subprocess.run(["ip", "link", "set", link, "down"], check=True)
    )
    parts = [bits(part) for part in executor.map(shards, cut)]
    took = time.monotonic() - began
    return {"nodes": nodes, "before": before, "after": parts == right, "took": took}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(*sys.argv[1:])) + "\n")
    sys.stdout.flush()
    import os

    os._exit(0)  # Ray would look for the other machine first
