"""An executor over a pool of workers: packs shards, asks the step's store first, and hands back parts in order.

A shard's name is the hash of all that its result hangs on: the packed shard, what it shares with others, and the class
of machines that compute it. So a store that was left by a stopped run is asked by content, never by number.
"""

import contextlib
import hashlib
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any

from anchorscope.execute.content_hash import Body
from anchorscope.execute.coordinator import Coordinator, Task
from anchorscope.execute.parts import Part
from anchorscope.execute.store import Store
from anchorscope.execute.wire import Packed, pack, unpack
from anchorscope.execute.worker import Shard
from anchorscope.progress import Progress

_HELD = 2**28  # bytes of packed shards that are held for their turn; others are packed once more


class PoolExecutor:
    """Runs shards on the workers of a pool."""

    def __init__(
        self,
        coordinator: Coordinator,
        store: Callable[[], Store | None] = lambda: None,
        numerics: Callable[[], str] = lambda: "",
    ) -> None:
        """`store` is asked for with every pass: the step under way has its own. `numerics` is the class of workers."""
        self.coordinator, self._store, self._numerics = coordinator, store, numerics
        self._done = self._total = 0
        self._began = self._ended = time.monotonic()
        self._n_computed = 0

    def map(self, shards: Sequence[Shard], progress: Progress) -> Generator[Part, None, None]:
        """The part of each shard, in their order, as they are done; the step's store has been told of all.

        A shard is packed when a worker has room for it, so that the first ones are computed while others are packed.
        """
        store, held = self._store(), _Held()
        names = list[str]()  # of the shards that were packed so far
        owed: dict[str, list[int]] = {}  # the shards whose part was not given yet, by name
        parts: dict[str, Any] = {}

        def advance(done: Sequence[int]) -> None:
            self._done += len(done)
            progress.advance(sum(_items(shards[place]) for place in done))

        def take(name: str, body: Body, sha256: str | None = None) -> None:
            parts[name] = unpack(body, {})
            if store is not None and sha256 is not None:
                store.write(name, body, sha256)
            held.let_go(name)
            if sha256 is not None:
                self._n_computed += 1
                self._ended = time.monotonic()
            advance(owed[name])

        def tasks() -> Iterator[Task | None]:
            for place, shard in enumerate(shards):
                packed = pack(shard)
                name = task_id(packed, self._numerics())
                names.append(name)
                owed.setdefault(name, []).append(place)
                if name in parts:
                    advance([place])
                elif len(owed[name]) == 1 and not self._is_kept(store, name, take):
                    held.keep(name, packed)
                    yield Task(name, lambda name=name, shard=shard: held.take(name) or pack(shard))  # type: ignore[misc]
                    continue
                yield None

        n_given = 0

        def ready() -> Iterator[Part]:
            nonlocal n_given
            while owed and (name := names[n_given]) in parts:
                n_given += 1
                owed[name].pop(0)
                if not owed[name]:
                    del owed[name]
                yield parts[name] if name in owed else parts.pop(name)

        progress.start(self._title(shards), sum(map(_items, shards)))
        self._begin(len(shards))
        with contextlib.ExitStack() as until_done:
            until_done.callback(progress.finish)
            steps = until_done.enter_context(contextlib.closing(self.coordinator.steps(tasks(), take, len(shards))))
            for _ in steps:
                yield from ready()
            yield from ready()

    def _is_kept(self, store: Store | None, name: str, take: Callable[[str, Body], None]) -> bool:
        """Whether the store has a result; then it is taken."""
        body = store.read(name) if store is not None else None
        if body is None:
            return False
        try:
            take(name, body)
        except ValueError:  # of a version that packed otherwise
            return False
        if not self._n_computed:  # reading is not computing
            self._began = time.monotonic()
        return True

    def _title(self, shards: Sequence[Shard]) -> str:
        """What is done by how many workers, and what went wrong so far, for the line that tells how far it is."""
        counts = self.coordinator.counts
        workers = f"{counts.workers} worker{'s' * (counts.workers != 1)}"
        wrong = {"lost": counts.lost, "shards retried": counts.retried}
        told = ", ".join(f"{number} {what}" for what, number in wrong.items() if number)
        title = str(getattr(shards[0], "title", "shards")) if shards else "shards"
        return f"{title} on {workers}" + (f" ({told})" if told else "")

    def _begin(self, total: int) -> None:
        self._done, self._total, self._n_computed = 0, total, 0
        self._began = self._ended = time.monotonic()

    def status(self) -> dict[str, Any]:
        """How far the pass is: workers, shards done and in all, retried, workers lost, shards per second."""
        counts, seconds = self.coordinator.counts, self._ended - self._began
        return {
            "workers": counts.workers,
            "done": self._done,
            "total": self._total,
            "retried": counts.retried,
            "lost": counts.lost,
            "shards_per_second": self._n_computed / seconds if seconds > 0 else 0.0,
        }


def task_id(packed: Packed, numerics: str) -> str:
    """The name of a shard's result: the first 32 hexadecimal digits of the hash of all that it hangs on."""
    digest = hashlib.sha256(packed.body)
    for blob in sorted(packed.blobs):
        digest.update(bytes.fromhex(blob))
    digest.update(numerics.encode())
    return digest.hexdigest()[:32]


class _Held:
    """Packed shards that wait for their turn, up to a limit: the first ones, whose turn comes soon."""

    def __init__(self) -> None:
        self._packed: dict[str, Packed] = {}
        self._size = 0

    def keep(self, name: str, packed: Packed) -> None:
        if name not in self._packed and self._size + len(packed.body) <= _HELD:
            self._packed[name] = packed
            self._size += len(packed.body)

    def take(self, name: str) -> Packed | None:
        """It stays until it is done: it may be handed out again."""
        return self._packed.get(name)

    def let_go(self, name: str) -> None:
        if (one := self._packed.pop(name, None)) is not None:
            self._size -= len(one.body)


def _items(shard: Any) -> int:
    """How many units of progress a shard is."""
    return int(getattr(shard, "n_items", 1))
