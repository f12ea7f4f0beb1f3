"""The coordinator against workers that die, hang, answer twice or wrongly, join late, come back; time is simulated."""

import contextlib
import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anchorscope.errors import Incomplete, UserError
from anchorscope.execute.coordinator import DEPTH, Coordinator, Disagreement, Task
from anchorscope.execute.pool import Done, MemoryRanOut
from simulated_pool import FAULTS, Actor, SimulatedPool, packed, result

LEASE = 10.0


class Setting:
    """A coordinator over a simulated pool, and what it brought."""

    def __init__(self, *actors, spare=(), n_workers=None, admit=lambda hello: None, **options):
        self.pool = SimulatedPool(actors, spare, n_workers)
        self.told = []
        options = {"tell": self.told.append, "clock": self.pool.clock, "lease": LEASE, **options}
        self.coordinator = Coordinator(self.pool, admit, **options)
        self.results = {}

    def run(self, n=6, first=0, blobs=()):
        tasks = [
            Task(f"task-{number}", lambda number=number: packed(f"task-{number}", *blobs))
            for number in range(first, first + n)
        ]
        self.coordinator.run(tasks, self.take)
        for task in tasks:
            assert self.results[task.id] == result(task.id)
        return self

    def take(self, task, body, sha256):
        assert task not in self.results, "done twice"
        self.results[task] = body

    @property
    def counts(self):
        return self.coordinator.counts

    def had(self, task):
        return [worker for worker, one in self.pool.submitted if one == task]


def test_every_task_is_done_once_and_the_work_is_shared():
    found = Setting(Actor(), Actor()).run(20)
    assert found.counts.done == len(found.pool.submitted) == len(found.results) == 20
    assert {worker for worker, _ in found.pool.submitted} == {"w0", "w1"}
    assert found.pool.now == 11.0, "both at work all the time"
    assert (found.counts.retried, found.counts.lost, found.counts.duplicates) == (0, 0, 0)
    assert found.counts.bytes_received == sum(map(len, found.results.values()))
    assert not found.told


def test_a_blob_is_sent_to_each_worker_once_and_again_to_its_replacement():
    found = Setting(Actor(script=["ok", "ok", "die"]), spare=[Actor()]).run(8, blobs=("probes",))
    sent = [(worker, blobs) for worker, _, blobs in found.pool.blobs if blobs]
    assert sent == [("w0", ("probes",)), ("w1", ("probes",))]
    body = sum(len(task) for _, task in found.pool.submitted)
    assert found.counts.bytes_sent == body + 2 * len("probes")


def test_a_worker_that_dies_is_replaced_and_its_tasks_go_first():
    found = Setting(Actor(script=["ok", "die"]), Actor(seconds=3), spare=[Actor()]).run(12)
    assert found.counts.lost == 1
    assert found.counts.retried == DEPTH
    assert f"worker w0 is lost: killed by signal 9; {DEPTH} of its shards go to others" in found.told
    lost = [task for worker, task in found.pool.submitted if worker == "w0"][-DEPTH:]
    after = found.pool.submitted[found.pool.submitted.index(("w0", lost[-1])) + 1 :]
    assert {task for _, task in after[:3]} >= {lost[0]}
    assert all(len(found.had(task)) == 2 for task in lost)


def test_a_worker_that_hangs_is_ended_when_its_lease_is_over():
    found = Setting(Actor(script=["ok", "hang"]), Actor(), spare=[Actor()]).run(30)
    assert [name for name, _ in found.pool.discarded] == ["w0"]
    assert "took longer than 10 s for shard task-" in found.pool.discarded[0][1]
    assert found.counts.lost == 1, "the pool tells of it once more"
    assert found.pool.now < 40


def test_a_task_that_ends_three_workers_ends_the_run_and_its_neighbours_do_not():
    found = Setting(Actor(script=["ok", "ok", "die"]), spare=[Actor(script=["die"]), Actor(script=["die"]), Actor()])
    with pytest.raises(Incomplete, match=r"was handed out 3 times .*2 of 9 shards of this step are done and kept; run"):
        found.run(9)
    assert found.counts.lost == 3
    assert len(found.results) == 2
    spare = [Actor(script=["die"]), Actor(script=["ok", "die"]), Actor()]
    innocent = Setting(Actor(script=["die"]), spare=spare).run(9)
    assert innocent.had("task-1") == ["w0", "w1", "w2", "w3"], "behind another one twice, and only then itself lost"


@pytest.mark.parametrize("spare", [0, 2])
def test_no_worker_left_is_incomplete_within_the_lease(spare):
    stubborn = [Actor(begins=False)] * spare
    found = Setting(Actor(script=["ok", "ok", "die"]), spare=stubborn)
    with pytest.raises(Incomplete, match=r"No worker is left and none came within 10 s \(lost: killed by signal 9"):
        found.run()
    assert found.pool.now == 4.0 + LEASE
    assert len(found.results) == 2


def test_a_worker_that_fails_a_task_does_not_get_it_again_while_there_are_others():
    found = Setting(Actor(script=["error"]), Actor())
    found.coordinator.ready(5.0)
    found.run(8)
    assert found.had("task-0") == ["w0", "w1"]
    assert "shard task-0 is computed again: worker w0: error in task-0" in found.told
    alone = Setting(Actor(script=["error", "ok", "error"])).run(4)
    assert alone.counts.retried == 2


def test_damaged_bytes_are_computed_again():
    found = Setting(Actor(script=["wrong"]), Actor()).run(5)
    assert found.counts.retried == 1
    assert any("their sha256 differs" in text for text in found.told)


def test_two_results_that_differ_end_the_run_and_name_both_workers():
    found = Setting(
        Actor(script=["late"], hello={"host": "alpha", "device": "cpu"}),
        Actor(script=["ok", "lie"], hello={"host": "beta"}),
    )
    found.coordinator.ready(5.0)
    found.coordinator.run([Task(f"task-{n}", lambda n=n: packed(f"task-{n}")) for n in range(3)], found.take)
    assert found.results["task-0"] != result("task-0"), "whose result is wrong, nobody can know yet"
    found.pool.now = 500.5
    with pytest.raises(Disagreement, match=r"shard task-0 differ: worker w1 \(beta\) .* worker w0 \(alpha, cpu\)"):
        found.run(9, first=10)
    assert issubclass(Disagreement, UserError)


def test_memory_that_ran_out_takes_everything_back_and_the_next_run_goes_on():
    found = Setting(Actor(script=["ok", "memory"]), Actor(seconds=3))
    with pytest.raises(MemoryRanOut, match="memory in task-"):
        found.run(8)
    before = len(found.results)
    found.run(8, first=100)
    assert len(found.results) == before + 8, "what came of the earlier tasks is nobody's"


def test_a_users_mistake_ends_the_run_with_its_line():
    with pytest.raises(UserError, match=r"^user in task-0$"):
        Setting(Actor(script=["user"])).run()


def test_fewer_workers_than_asked_is_one_line():
    found = Setting(Actor(), Actor(begins=False), n_workers=3)
    with pytest.raises(UserError, match=r"^3 workers .* and 1 came within 20 s \(lost: no room for it\)\. .*--workers"):
        found.coordinator.ready(20.0)
    assert found.pool.now == 20.0


def test_a_worker_that_is_refused_is_ended_and_its_results_are_not_looked_at():
    found = Setting(
        Actor(hello={"host": "old", "version": 1}),
        Actor(hello={"version": 2}),
        spare=[Actor(hello={"version": 2}, joins_after=3.0)],
        admit=lambda hello: None if hello["version"] == 2 else "its version is 1, here it is 2",
    )
    found.coordinator.ready(20.0)
    assert found.pool.discarded == [("w0", "its version is 1, here it is 2")]
    assert found.told == ["worker w0 (old) is refused: its version is 1, here it is 2"]
    assert (found.counts.refused, found.counts.lost, found.counts.workers) == (1, 0, 2)
    found.pool._later(0.5, Done("w0", "task-0", hashlib.sha256(b"old").hexdigest(), b"old"))
    found.run()
    assert "w0" not in {worker for worker, _ in found.pool.submitted}


# Whatever workers do.


def actors(faults, min_size=1, max_size=4):
    one = st.builds(
        Actor,
        script=st.lists(st.sampled_from(faults), max_size=6),
        joins_after=st.sampled_from([0.0, 1.0, 5.0, 40.0]),
        seconds=st.sampled_from([0.25, 1.0, 1.0]),
        begins=st.sampled_from([True, True, True, False]),
    )
    return st.lists(one, min_size=min_size, max_size=max_size)


def play(pool, n_tasks, depth, runs=1):
    """Runs of tasks after each other; what came of each, and how they ended."""
    coordinator = Coordinator(pool, lambda hello: None, LEASE, depth=depth, clock=pool.clock)
    results = {}

    def take(task, body, sha256):
        assert task not in results, "done twice"
        results[task] = body

    ended = None
    for run in range(runs):
        tasks = [f"{run}-{number}" for number in range(n_tasks)]
        try:
            coordinator.run([Task(one, lambda one=one: packed(one)) for one in tasks], take)
            assert set(results) >= set(tasks), "a run that ends has done all of its tasks"
        except (Incomplete, Disagreement) as error:
            ended = error
    return coordinator, results, ended


@given(actors(FAULTS), actors(FAULTS, 0, 8), st.integers(0, 25), st.integers(1, 3))
def test_every_task_is_done_once_and_rightly_or_the_run_is_incomplete(first, spare, n_tasks, depth):
    pool = SimulatedPool(first, spare)
    coordinator, results, ended = play(pool, n_tasks, depth, runs=2)
    assert all(body == result(task) for task, body in results.items())
    assert not isinstance(ended, Disagreement), "nobody gave a wrong result"
    assert coordinator.counts.done == len(results)
    assert len(pool.submitted) <= 2 * n_tasks + coordinator.counts.retried
    assert len(results) == 2 * n_tasks or ended is not None


@given(actors((*FAULTS, "lie")), actors((*FAULTS, "lie"), 0, 6), st.integers(1, 25), st.integers(1, 3))
def test_a_wrong_result_is_found_wherever_there_are_two(first, spare, n_tasks, depth):
    pool = SimulatedPool(first, spare)
    told, wait = {}, pool.wait

    def listening(seconds):
        events = wait(seconds)
        for event in events:
            if hasattr(event, "body") and not event.body.endswith(b"!"):
                told.setdefault(event.task, set()).add(event.body)
        return events

    pool.wait = listening
    _, _, ended = play(pool, n_tasks, depth)
    if isinstance(ended, Disagreement):
        assert any(len(bodies) > 1 for bodies in told.values())
    elif ended is None:
        assert all(len(bodies) == 1 for bodies in told.values())


@given(actors(("die", "hang", "wrong", "error")), actors(("die", "hang", "wrong", "error"), 0, 6))
def test_a_run_that_cannot_end_says_so_soon_after_the_last_worker_went(first, spare):
    """Nobody ever does anything right, as far as the scripts go."""
    pool = SimulatedPool(first, spare)
    last, wait = [0.0], pool.wait

    def listening(seconds):
        before = pool.now
        events = wait(seconds)
        last[0] = max(last[0], pool.now if events else before)
        return events

    pool.wait = listening
    with contextlib.suppress(Incomplete):
        play(pool, 5, 2)
    assert pool.now <= last[0] + LEASE + 60
