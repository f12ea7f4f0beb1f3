"""The coordinator against workers that die, hang, answer twice or wrongly, join late, come back; time is simulated."""

import hashlib

import pytest

from anchorscope.errors import Incomplete, UserError
from anchorscope.execute.coordinator import DEPTH, Coordinator, Disagreement, Task
from anchorscope.execute.pool import Done, Failed, MemoryRanOut
from simulated_pool import Actor, SimulatedPool, packed, result

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


def test_what_came_with_the_event_that_ends_a_run_is_taken_too():
    """Workers outlive a run: one whose answer nobody took would be thought to be at it for ever."""
    found = Setting(Actor(), Actor())
    found.coordinator.ready(5.0)
    wait = found.pool.wait

    def together(seconds):
        events = wait(seconds)
        if any(isinstance(one, Done) for one in events):
            return [Failed("w0", "task-0", "memory", "no room"), *(one for one in events if one.worker != "w0")]
        return events

    found.pool.wait = together
    with pytest.raises(MemoryRanOut):
        found.run(4)
    assert "task-1" in found.results
    found.pool.wait = wait
    found.run(6, first=10)
    assert (found.counts.lost, found.counts.done) == (0, len(found.results))


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


def test_the_others_go_on_where_there_is_no_replacement():
    found = Setting(Actor(script=["die"]), Actor()).run(6)
    assert found.counts.workers == 1


def test_a_worker_that_hangs_is_ended_when_its_lease_is_over():
    found = Setting(Actor(script=["ok", "hang"]), Actor(), spare=[Actor()]).run(30)
    assert [name for name, _ in found.pool.discarded] == ["w0"]
    assert "took longer than 10 s for shard task-" in found.pool.discarded[0][1]
    assert found.counts.lost == 1, "the pool tells of it once more"
    assert found.pool.now < 40


def test_the_lease_runs_from_when_a_task_is_first_in_line():
    """Two of 9 s in one line: the second is handed out 18 s before it is done, and yet within its lease."""
    found = Setting(Actor(script=["slow"] * 4)).run(4)
    assert not found.pool.discarded
    assert found.pool.now == 37.0


def test_a_coordinator_that_was_late_itself_looks_at_what_came_before_it_ends_anyone():
    found = Setting(Actor(), Actor())
    take = found.take

    def slowly(task, body, sha256):
        found.pool.now += 60 if task == "task-0" else 0  # as if the disk had been slow
        take(task, body, sha256)

    found.take = slowly
    found.run(8)
    assert not found.pool.discarded
    assert found.counts.lost == 0


def test_a_hanging_worker_is_ended_though_others_send_results_all_the_time():
    found = Setting(Actor(script=["hang"]), Actor(seconds=0.25)).run(200)
    assert found.pool.discarded
    assert min(place for place, (_, task) in enumerate(found.pool.submitted) if found.had(task)[1:]) < 60


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


def test_a_task_that_fails_three_times_is_incomplete_with_the_errors_own_words():
    with pytest.raises(Incomplete, match=r"never came back whole .*worker w0: error in task-0"):
        Setting(Actor(script=["error"] * 20)).run()


def test_damaged_bytes_are_computed_again():
    found = Setting(Actor(script=["wrong"]), Actor()).run(5)
    assert found.counts.retried == 1
    assert any("their sha256 differs" in text for text in found.told)


def test_a_second_result_that_is_equal_is_counted_and_not_told():
    found = Setting(Actor(script=["twice"] * 9)).run(9)
    assert found.counts.duplicates > 3
    assert found.counts.done == 9


def test_a_worker_that_comes_back_after_it_was_ended_is_believed_or_compared():
    found = Setting(Actor(script=["late"]), Actor(), spare=[Actor(joins_after=700)])
    found.run(6)
    found.pool.now = 500.5
    found.run(3, first=6)
    assert found.counts.duplicates == 1
    alone = Setting(Actor(script=["late"]), spare=[Actor(joins_after=600)], lease=550.0).run(1)
    assert alone.counts.done == 1


def test_the_late_result_of_a_task_that_waits_again_is_taken():
    found = Setting(Actor(script=["late"]), spare=[Actor(joins_after=495.0, script=["slow"])], lease=499.0).run(1)
    assert found.pool.now == 501.0
    assert found.counts.done == 1


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


def test_failures_of_tasks_that_nobody_wants_any_more_are_not_looked_at():
    found = Setting(Actor(script=["user"]), Actor(script=["user"]))
    found.coordinator.ready(5.0)
    with pytest.raises(UserError, match="user in task-0"):
        found.run(2)
    found.run(4, first=10)


def test_what_the_caller_raises_goes_through_and_the_next_run_is_whole():
    found = Setting(Actor(), Actor())
    take, found.take = found.take, lambda task, body, sha256: 1 / 0
    with pytest.raises(ZeroDivisionError):
        found.run()
    found.take = take
    found.run()


def test_ready_waits_for_all():
    found = Setting(Actor(), Actor(joins_after=8))
    found.coordinator.ready(20.0)
    assert (found.pool.now, found.counts.workers) == (8.0, 2)


def test_fewer_workers_than_asked_is_one_line():
    found = Setting(Actor(), Actor(begins=False), n_workers=3)
    with pytest.raises(UserError, match=r"^3 workers .* and 1 came within 20 s \(lost: no room for it\)\. .*--workers"):
        found.coordinator.ready(20.0)
    assert found.pool.now == 20.0


def test_nobody_waits_for_workers_that_cannot_come():
    found = Setting(Actor(begins=False), spare=[Actor(begins=False)] * 3)
    with pytest.raises(UserError, match="1 workers were asked for, and 0 came"):
        found.coordinator.ready(2000.0)
    assert found.pool.now < 10


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
