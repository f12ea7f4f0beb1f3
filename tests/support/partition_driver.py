"""A coordinator beside a Ray head, and a worker behind a network that goes away inside a shard: run by the test."""

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from anchorscope.execute.ray_cluster import import_ray
from anchorscope.execute.ray_pool import RayPool
from crew import Crew, Shards, faults_at
from faulty import FaultyRayWorker


def main(folder: Path, address: str, link: str) -> dict[str, Any]:
    """What became of the shards, and how long it took."""
    ray = import_ray(address)
    ray.init(address, _node_ip_address=address.rpartition(":")[0], log_to_driver=False, logging_level="ERROR")
    with faults_at(folder):
        crew = Crew(RayPool(address, 2, worker_class=FaultyRayWorker), Shards.stand_ins(), folder)
        crew.start()
        nodes = {one["NodeManagerAddress"] for one in ray.nodes() if one["Alive"]}
        before = crew.run() == crew.shards.right
        with crew.inside_a_shard(lambda pids: subprocess.run(["ip", "link", "set", link, "down"], check=True)):
            began = time.monotonic()
            after = crew.run() == crew.shards.right
            took = time.monotonic() - began
        crew.pool.close()
    return {"nodes": sorted(nodes), "before": before, "after": after, "took": took, "told": crew.told}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(Path(sys.argv[1]), *sys.argv[2:])) + "\n")
