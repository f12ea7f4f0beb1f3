"""An executor over a pool: the same bits as in one process, what is stored is not computed again, in any order."""

import hashlib
from dataclasses import replace

import pytest

from anchorscope.artefacts.shards import ShardStore, StoreWriter
from anchorscope.engine.sequences import CLEAN, Cut, Variant
from anchorscope.errors import Incomplete
from anchorscope.execute.coordinator import Coordinator
from anchorscope.execute.merging import merge_states
from anchorscope.execute.pool import Done, Failed, Joined, MemoryRanOut
from anchorscope.execute.pool_executor import PoolExecutor, task_id
from anchorscope.execute.wire import pack, unpack
from anchorscope.execute.worker import Worker
from anchorscope.progress import Silent
from made_items import planner_of
from pass_cases import PREFIX, make_probes, short_sequences

N = 24


class InlinePool:
    """Workers that share one model of this process and answer the last task first, or where told, the first."""

    def __init__(self, lm, n_workers=2, fails=None, answers=-1):
        self.n_workers, self._lm, self._fails, self._answers = n_workers, lm, fails or {}, answers
        self._events = [Joined(f"w{number}", {}) for number in range(n_workers)]
        self._workers = {f"w{number}": (Worker(lm), {}) for number in range(n_workers)}
        self._tasks, self.n_run, self.sent = [], 0, 0

    def submit(self, worker, task, body, blobs):
        self._tasks.append((worker, task, body))
        self._workers[worker][1].update(blobs)
        self.sent += len(body) + sum(map(len, blobs.values()))

    def wait(self, seconds):
        if self._events:
            events, self._events = self._events, []
            return events
        name, task, body = self._tasks.pop(self._answers)
        self.n_run += 1
        if self.n_run in self._fails:
            return [Failed(name, task, self._fails[self.n_run], "it went wrong")]
        worker, blobs = self._workers[name]
        part = pack(worker.run(unpack(body, blobs), Silent()), apart=False).body
        return [Done(name, task, hashlib.sha256(part).hexdigest(), part)]

    def discard(self, worker, reason):
        raise AssertionError(reason)


class Heard(Silent):
    def __init__(self):
        self.lines = []

    def start(self, title, total):
        self.lines.append((title, total))

    def advance(self, units):
        self.lines.append(units)

    def finish(self):
        self.lines.append("finish")


@pytest.fixture(scope="module")
def shards(tiny_llama):
    """One shard per batch of a pass: clean and cut, scored, some states kept."""
    variants = [CLEAN, Variant({item: Cut((6, 7 + item % 2)) for item in range(N)})]
    planned = planner_of(tiny_llama, 25).states("clean states", short_sequences(N), PREFIX, variants)
    work = replace(
        planned, probes=make_probes(tiny_llama, N), keep=(((1, 2),), ((0, 0),)), log_probs=True, answer_stats=True
    )
    found = [replace(work, batches=(batch,)) for batch in work.batches]
    assert len(found) > 5
    return found


@pytest.fixture(scope="module")
def alone(tiny_llama, shards):
    worker = Worker(tiny_llama)
    return [pack(worker.run(shard, Silent())).body for shard in shards]


def executor_of(lm, store=None, numerics="", **options):
    pool = InlinePool(lm, **options)
    made = PoolExecutor(Coordinator(pool, lambda hello: None, 60.0), lambda: store, lambda: numerics)
    return made, pool


def bodies(parts):
    return [pack(part).body for part in parts]


@pytest.mark.parametrize("n_workers", [1, 3])
def test_parts_come_in_the_order_of_the_shards_with_the_bits_of_one_process(tiny_llama, shards, alone, n_workers):
    executor, pool = executor_of(tiny_llama, n_workers=n_workers)
    heard = Heard()
    parts = list(executor.map(shards, heard))
    assert bodies(parts) == alone
    assert pack(merge_states(parts, N)).body == pack(merge_states([unpack(body, {}) for body in alone], N)).body
    assert heard.lines[0] == ("clean states on 0 workers", N)  # nobody waited for them here
    assert heard.lines[-1] == "finish"
    assert sum(heard.lines[1:-1]) == N
    status = executor.status()
    assert (status["done"], status["total"], status["workers"]) == (len(shards), len(shards), n_workers)
    assert (status["retried"], status["lost"]) == (0, 0)
    assert status["shards_per_second"] > 0
    blobs = sum(map(len, pack(shards[0]).blobs.values()))
    assert pool.sent == sum(len(pack(shard).body) for shard in shards) + n_workers * blobs, "probes go once to each"


def test_what_is_stored_is_not_computed_again(tiny_llama, shards, alone, tmp_path):
    store = ShardStore(tmp_path / "clean-0123456789ab.shards")
    with StoreWriter(store) as kept:
        first, pool = executor_of(tiny_llama, kept, fails={4: "memory"})
        with pytest.raises(MemoryRanOut):
            list(first.map(shards, Silent()))
    assert len(store.ids()) == 3
    (store.folder / f"{store.ids()[0]}.safetensors").write_bytes(b"damaged")
    store.write(store.ids()[1], b"whole, and yet no part")
    heard = Heard()
    with StoreWriter(store) as kept:
        again, pool = executor_of(tiny_llama, kept)
        assert bodies(again.map(shards, heard)) == alone
    assert pool.n_run == len(shards) - 1
    assert sum(heard.lines[1:-1]) == N
    assert len(store.ids()) == len(shards)
    third, pool = executor_of(tiny_llama, store)
    assert bodies(third.map(shards, Silent())) == alone
    assert pool.n_run == 0


def test_another_class_of_machines_and_another_shard_have_other_names(tiny_llama, shards, tmp_path):
    store = ShardStore(tmp_path / "clean-0123456789ab.shards")
    for numerics in ("cpu one thread", "cpu two threads"):
        executor, pool = executor_of(tiny_llama, store, numerics)
        list(executor.map(shards[:2], Silent()))
        assert pool.n_run == 2
    names = {task_id(pack(shard), "") for shard in shards}
    assert len(names) == len(shards)
    other = replace(shards[0], probes=replace(shards[0].probes, sets=shards[0].probes.sets[::-1]))
    assert pack(other).blobs.keys() == pack(shards[0]).blobs.keys()
    assert task_id(pack(other), "") not in names
    assert all(len(name) == 32 for name in names)


def test_a_pass_that_fails_ends_its_bar_and_keeps_what_it_has(tiny_llama, shards, tmp_path):
    store = ShardStore(tmp_path / "clean-0123456789ab.shards")
    heard = Heard()
    with StoreWriter(store) as kept:
        executor, _ = executor_of(tiny_llama, kept, fails={3: "error", 4: "error", 5: "error"}, n_workers=1)
        with pytest.raises(Incomplete, match="it went wrong"):
            list(executor.map(shards, heard))
    assert heard.lines[-1] == "finish"
    assert len(store.ids()) == 2


def test_a_pass_that_is_left_early_leaves_nothing_behind(tiny_llama, shards, alone, tmp_path):
    store, heard = ShardStore(tmp_path / "clean-0123456789ab.shards"), Heard()
    with StoreWriter(store) as kept:
        executor, pool = executor_of(tiny_llama, kept, answers=0)
        parts = executor.map(shards, heard)
        next(parts)
        parts.close()
    assert heard.lines[-1] == "finish"
    done = len(store.ids())
    assert 0 < done < len(shards)
    again, pool = executor_of(tiny_llama, store)
    assert bodies(again.map(shards, Silent())) == alone
    assert pool.n_run == len(shards) - done
