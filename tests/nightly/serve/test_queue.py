"""Where jobs wait: bounded in tokens and time, in turn, and removed once nobody waits for them."""

from typing import Any

import pytest

from anchorscope.serve import model_thread
from anchorscope.serve.errors import ServiceError
from anchorscope.serve.model_thread import Entry, JobQueue, ScoreJob, WorkJob


def job(n: int, tokens: int = 10, detector: str = "a", risk: float | None = None) -> ScoreJob:
    questions: Any = [f"item {number}" for number in range(n)]
    return ScoreJob(tokens=n * tokens, detector=detector, risk=risk, questions=questions)


def taken(batch: Any) -> list[tuple[int, int]]:
    assert all(isinstance(entry, Entry) for entry in batch)
    return [(id(entry.job), entry.number) for entry in batch]


def test_requests_take_turns_item_by_item() -> None:
    queue, large, small, other = JobQueue(1000), job(5), job(1), job(2, detector="b")
    for each in (large, other, small):
        queue.put(each)
    assert taken(queue.take(30)) == [(id(large), 0), (id(small), 0), (id(large), 1)]
    assert taken(queue.take(1000)) == [(id(other), 0), (id(other), 1)]
    assert taken(queue.take(1000)) == [(id(large), 2), (id(large), 3), (id(large), 4)]
    assert queue.take(1000) == []


def test_a_full_queue_says_when_there_will_be_room() -> None:
    queue, waiting = JobQueue(100), job(9)
    queue.note_rate(tokens=50, seconds=2.0)  # 25 a second
    queue.put(waiting)
    with pytest.raises(ServiceError) as full:
        queue.put(job(6))
    assert queue.tokens == 90
    assert (full.value.status, full.value.headers) == (429, {"Retry-After": "2"})
    with pytest.raises(ServiceError) as never:
        queue.put(job(11))
    assert never.value.status == 413
    waiting.result.cancel()
    queue.put(job(6))
    assert queue.tokens == 60


def test_jobs_that_waited_too_long_are_refused_unless_they_were_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(model_thread.time, "monotonic", lambda: now)
    queue, begun, late = JobQueue(100_000, most_seconds=2.0), job(3), [job(1) for _ in range(4)]
    for each in (begun, *late):
        each.since = now
        queue.put(each)
    work = WorkJob(tokens=100, work=lambda: None, since=now)
    queue.put(work)
    assert taken(queue.take(30)) == [(id(begun), 0), (id(late[0]), 0), (id(late[1]), 0)]
    now += 3.0
    fresh = job(1)
    fresh.since = now
    queue.put(fresh)
    assert taken(queue.take(10)) == [(id(late[2]), 0)], "the next in turn runs however long it waited"
    refusal = late[3].result.exception()
    assert isinstance(refusal, ServiceError)
    assert (refusal.status, refusal.code) == (429, "queue_full")
    assert isinstance(work.result.exception(), ServiceError)
    assert not any(each.result.done() for each in (begun, fresh, *late[:3])), "what was begun goes on"
    assert taken(queue.take(1000)) == [(id(begun), 1), (id(fresh), 0), (id(begun), 2)]


def test_a_cancelled_job_leaves_nothing_behind() -> None:
    queue, gone, waiting = JobQueue(1000), job(4), job(1)
    queue.put(gone)
    queue.put(waiting)
    queue.take(10)
    gone.result.cancel()
    assert queue.tokens == 10
    assert taken(queue.take(1000)) == [(id(waiting), 0)]
