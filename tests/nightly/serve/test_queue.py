"""Where jobs wait: bounded in time, in turn, and removed once nobody waits for them."""

from typing import Any

import pytest

from anchorscope.detectors.answer_batch import AnswerRequest
from anchorscope.serve import model_thread
from anchorscope.serve.errors import ServiceError
from anchorscope.serve.model_thread import AnswerJob, JobQueue, ScoreJob, WorkJob

SCORES = {ScoreJob: 30, WorkJob: 0}


def job(n: int, tokens: int = 10, detector: str = "a", risk: float | None = None) -> ScoreJob:
    questions: Any = [f"item {number}" for number in range(n)]
    return ScoreJob(tokens=n * tokens, detector=detector, risk=risk, questions=questions)


def test_jobs_of_one_kind_run_together_as_far_as_they_fit() -> None:
    queue, chat = JobQueue(), AnswerJob(tokens=5, request=AnswerRequest((1,), 2, 2), on_piece=print)
    first, other, small, large, last = job(1), job(2, detector="b"), job(2), job(9), job(1)
    for each in (chat, first, other, small, large, last):
        queue.put(each)
    assert queue.take(SCORES) == [first, small], "a chat waits where there is no room for it"
    assert queue.take(SCORES) == [other]
    assert queue.take(SCORES) == [large], "one that is too large comes alone"
    queue.put(large)
    assert queue.take(SCORES) == [last]
    assert queue.take(SCORES) == [large], "and after each part others have their turn"
    assert queue.take({AnswerJob: 100}) == [chat]
    assert queue.take(SCORES) == []


def test_jobs_that_waited_too_long_are_refused_unless_they_were_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(model_thread.time, "monotonic", lambda: now)
    queue, begun, late = JobQueue(most_seconds=2.0), job(3), [job(1, detector="b") for _ in range(4)]
    work = WorkJob(tokens=100, work=lambda: None)
    for each in (begun, *late, work):
        each.since = now
        queue.put(each)
    assert queue.take(SCORES) == [begun]
    begun.scores.append(ServiceError(422, "item_failed", "no"))
    queue.put(begun)
    now += 3.0
    fresh = job(1)
    fresh.since = now
    queue.put(fresh)
    assert queue.take({ScoreJob: 10}) == [late[0]], "the next in turn runs however long it waited"
    for each in (*late[1:], work):
        refusal = each.result.exception(timeout=0)
        assert isinstance(refusal, ServiceError)
        assert (refusal.status, refusal.code) == (429, "queue_full")
        assert 1 <= int(refusal.headers["Retry-After"]) <= 60
    assert not any(each.result.done() for each in (begun, fresh, late[0])), "what was begun goes on"
