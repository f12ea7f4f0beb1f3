"""The coordinator alone, with synthetic shards and workers that answer from memory: how fast, and where it saturates.

    python tools/simulate_coordinator.py --shards 10000 --workers 64 --seconds 5 --bytes 100000 [--store] [--json]

Every shard is packed, handed out, its result hashed, compared and unpacked, as in a run; `--store` also keeps it on the
disk. Workers take `--seconds` per shard, which pass at once: the clock is moved on, while the coordinator's own time is
real. So the rate is that of a cluster of so many workers whose network and disk cost nothing. The results of a step are
not held here; a run holds them until it has merged them.
"""

import argparse
import contextlib
import hashlib
import heapq
import json
import sys
import tempfile
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from anchorscope.artefacts.shards import ShardStore
from anchorscope.artefacts.step import peak_memory_mb
from anchorscope.artefacts.store_writer import StoreWriter
from anchorscope.execute.coordinator import Coordinator, Task
from anchorscope.execute.pool import Done, Event, Joined
from anchorscope.execute.wire import Packed, known, pack, unpack


@known
@dataclass(frozen=True)
class SyntheticShard:
    """Token ids, as a shard has them."""

    number: int
    ids: tuple[tuple[int, ...], ...]


@known
@dataclass(frozen=True)
class SyntheticPart:
    """States, as a part has them."""

    states: torch.Tensor


class MemoryPool:
    """Workers that all answer with the same bytes, each one task after the other."""

    def __init__(self, n_workers: int, seconds: float, answer: bytes) -> None:
        self.n_workers, self._seconds, self._answer = n_workers, seconds, answer
        self._digest, self._skipped = hashlib.sha256(answer).hexdigest(), 0.0
        self._coming: list[tuple[float, int, Event]] = []
        self._lines: dict[str, deque[str]] = {f"w{number}": deque() for number in range(n_workers)}
        self._number = 0
        self.most_at_once = 0
        for worker in self._lines:
            self._later(0.0, Joined(worker, {}))

    def clock(self) -> float:
        """Real time, and that which was skipped."""
        return time.perf_counter() + self._skipped

    def start(self, job: Mapping[str, Any]) -> None:
        """They are there from the start."""

    def submit(self, worker: str, task: str, body: bytes, blobs: Mapping[str, bytes]) -> None:
        """A task at the end of a line."""
        line = self._lines[worker]
        line.append(task)
        if len(line) == 1:
            self._later(self._seconds, Done(worker, task, self._digest, self._answer))

    def _later(self, seconds: float, event: Event) -> None:
        self._number += 1
        heapq.heappush(self._coming, (self.clock() + seconds, self._number, event))

    def wait(self, seconds: float) -> list[Event]:
        """What is due; the clock is moved on to the next event where nothing is."""
        if not self._coming:
            return []
        self._skipped += max(0.0, self._coming[0][0] - self.clock())
        events, now = [], self.clock()
        while self._coming and self._coming[0][0] <= now:
            due, _, event = heapq.heappop(self._coming)
            events.append(event)
            if isinstance(event, Done):
                line = self._lines[event.worker]
                line.popleft()
                if line:  # it went on at once, while the coordinator was busy
                    again = Done(event.worker, line[0], self._digest, self._answer)
                    self._number += 1
                    heapq.heappush(self._coming, (due + self._seconds, self._number, again))
        self.most_at_once = max(self.most_at_once, len(events))
        return events

    def discard(self, worker: str, reason: str) -> None:
        """Nobody is ever late."""
        raise AssertionError(reason)

    def close(self) -> None:
        """Nothing is held."""


def simulate(n_shards: int, n_workers: int, seconds: float, size: int, folder: Path | None = None) -> dict[str, Any]:
    """Runs so many shards; what was seen. Results are kept in the folder, if there is one."""
    answer = pack(SyntheticPart(torch.zeros(max(1, size // 4))), apart=False).body
    pool = MemoryPool(n_workers, seconds, answer)
    writer = None if folder is None else StoreWriter(ShardStore(folder / "synthetic-000000000000.shards"))
    ids = tuple(tuple(range(100_000, 100_080)) for _ in range(64))  # a batch of 64 sequences of 80 tokens

    def made(number: int) -> Packed:
        return pack(SyntheticShard(number, ids))

    def take(task: str, body: bytes, sha256: str) -> None:
        assert isinstance(unpack(body, {}), SyntheticPart)
        if writer is not None:
            writer.write(task, body, sha256)

    tasks = [Task(f"{number:032x}", partial(made, number)) for number in range(n_shards)]
    coordinator = Coordinator(pool, lambda hello: None, lease=1e9, clock=pool.clock)
    coordinator.ready(1.0)
    began, used = pool.clock(), time.process_time()
    with writer or contextlib.nullcontext():
        coordinator.run(tasks, take)
        ended = pool.clock()
    own = (coordinator.counts.seconds + pool.clock() - ended) / n_shards  # with the wait for the disk at the end
    wall, used = pool.clock() - began, time.process_time() - used
    counts = coordinator.counts
    assert counts.done == n_shards, counts
    ideal = -(-n_shards // n_workers) * seconds
    return {
        "shards": n_shards,
        "workers": n_workers,
        "seconds_per_shard": seconds,
        "bytes_per_result": len(answer),
        "bytes_per_shard": counts.bytes_sent // n_shards,
        "simulated_seconds": wall,
        "shards_per_second": n_shards / wall,
        "efficiency": ideal / wall,
        "coordinator_ms_per_shard": 1e3 * own,
        "coordinator_cpu_ms_per_shard": 1e3 * used / n_shards,
        "coordinator_share": own * n_shards / wall,
        "most_shards_per_second": 1 / own,
        "most_megabytes_per_second": (counts.bytes_received + counts.bytes_sent) / (own * n_shards) / 1e6,
        "peak_memory_mb": peak_memory_mb()["host"],
        "saturates_at_workers": int(seconds / own),
    }


def told(found: Mapping[str, Any]) -> str:
    """For people."""
    return (
        f"{found['shards']:,} shards, {found['workers']:,} workers, {found['seconds_per_shard']:g} s per shard, "
        f"{found['bytes_per_shard'] / 1e3:,.0f} kB out and {found['bytes_per_result'] / 1e3:,.0f} kB back per shard\n"
        f"  rate          {found['shards_per_second']:,.1f} shards/s, {found['efficiency']:.1%} of what so many "
        f"workers can do\n"
        f"  coordinator   {found['coordinator_ms_per_shard']:.3f} ms per shard "
        f"({found['coordinator_cpu_ms_per_shard']:.3f} ms CPU), busy {found['coordinator_share']:.1%} of the time\n"
        f"  at most       {found['most_shards_per_second']:,.0f} shards/s, "
        f"{found['most_megabytes_per_second']:,.0f} MB/s\n"
        f"  peak memory   {found['peak_memory_mb']:,.0f} MB\n"
        f"  saturates at  {found['saturates_at_workers']:,} workers of {found['seconds_per_shard']:g} s per shard\n"
    )


def main(words: Sequence[str] | None = None) -> int:
    """The program."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shards", type=int, default=10_000)
    parser.add_argument("--workers", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=5.0, help="that a worker takes for a shard")
    parser.add_argument("--bytes", type=int, default=100_000, help="of each result")
    parser.add_argument("--store", action="store_true", help="keep every result on the disk, as a run does")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(words)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) if given.store else None
        found = simulate(given.shards, given.workers, given.seconds, given.bytes, place)
    sys.stdout.write(json.dumps(found) + "\n" if given.json else told(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
