"""Hands shards to workers, and again to others where a worker is lost, until every one is done exactly once."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from anchorscope.errors import UserError
from anchorscope.execute.pool import Pool
from anchorscope.execute.wire import Packed

TRIES = 3
"""How often a shard is handed out before the run gives up."""
DEPTH = 2
"""Tasks in a worker's line, so that it never waits."""


class Disagreement(UserError):
    """Two workers computed the same shard and got different bytes."""


@dataclass(frozen=True)
class Task:
    """A shard to be computed, packed only when its turn comes."""

    id: str
    make: Callable[[], Packed]


@dataclass
class Counts:
    """What the coordinator has seen and done, for the manifest."""

    workers: int = 0
    """Workers that are there now."""
    done: int = 0
    """Shards."""
    retried: int = 0
    """Shards that were handed out again."""
    lost: int = 0
    """Workers."""
    duplicates: int = 0
    """Second results of a shard, equal to the first."""
    bytes_sent: int = 0
    bytes_received: int = 0
    seconds: float = 0.0
    """Spent by the coordinator itself, not waiting for workers."""
    lost_because: list[str] = field(default_factory=list)


class Coordinator:
    """The queue of shards, and who has which of them."""

    def __init__(
        self,
        pool: Pool,
        admit: Callable[[Mapping[str, Any]], str | None],
        lease: float,
        tries: int = TRIES,
        depth: int = DEPTH,
        tell: Callable[[str], None] = lambda text: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.pool, self.lease, self.counts = pool, lease, Counts()

    def ready(self, patience: float) -> None:
        """Waits until as many workers as were asked for are there; UserError where they do not come in time."""
        raise NotImplementedError

    def run(self, tasks: Sequence[Task], done: Callable[[str, bytes], None]) -> None:
        """Computes all tasks; `done` is called once for each, in any order."""
        raise NotImplementedError
