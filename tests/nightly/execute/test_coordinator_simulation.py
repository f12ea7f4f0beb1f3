"""Whatever workers do: every task is done exactly once with its own result, or the run says that it cannot end."""

import contextlib

from hypothesis import given, settings
from hypothesis import strategies as st

from anchorscope.errors import Incomplete
from anchorscope.execute.coordinator import Coordinator, Disagreement, Task
from simulated_pool import FAULTS, Actor, SimulatedPool, packed, result

LEASE = 12.0


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


@settings(max_examples=300)
@given(actors(FAULTS), actors(FAULTS, 0, 8), st.integers(0, 25), st.integers(1, 3))
def test_every_task_is_done_once_and_rightly_or_the_run_is_incomplete(first, spare, n_tasks, depth):
    pool = SimulatedPool(first, spare)
    coordinator, results, ended = play(pool, n_tasks, depth, runs=2)
    assert all(body == result(task) for task, body in results.items())
    assert not isinstance(ended, Disagreement), "nobody gave a wrong result"
    assert coordinator.counts.done == len(results)
    assert len(pool.submitted) <= 2 * n_tasks + coordinator.counts.retried
    assert len(results) == 2 * n_tasks or ended is not None


@settings(max_examples=200)
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


@settings(max_examples=100)
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
