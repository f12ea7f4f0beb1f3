"""Where jobs wait: bounded in tokens, in turn, and gone with whoever asked."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from anchorscope.detectors.asking import Wish
from anchorscope.serve.errors import ServiceError
from anchorscope.serve.jobs import AskJob, Entry, ScoreJob, WorkJob
from anchorscope.serve.queue import Rate, TokenQueue


def in_loop(test: Callable[[], None]) -> None:
    """Jobs belong to an event loop; in a thread of its own, as a browser of other tests may have one in this one."""

    async def run() -> None:
        test()

    with ThreadPoolExecutor(1) as pool:
        pool.submit(lambda: asyncio.run(run())).result()


def job(n: int, tokens: int = 10, detector: str = "a", risk: float | None = None) -> ScoreJob:
    items: Any = [f"item {place}" for place in range(n)]
    return ScoreJob(tokens=n * tokens, detector=detector, risk=risk, items=items, costs=[tokens] * n)


def places(batch: Any) -> list[tuple[int, int]]:
    assert all(isinstance(one, Entry) for one in batch)
    return [(id(one.job), one.place) for one in batch]


def test_requests_take_turns_item_by_item() -> None:
    def test() -> None:
        queue, large, small = TokenQueue(1000), job(5), job(1)
        queue.put(large)
        queue.put(small)
        assert places(queue.take(30)) == [(id(large), 0), (id(small), 0), (id(large), 1)]
        assert places(queue.take(1000)) == [(id(large), 2), (id(large), 3), (id(large), 4)]
        assert queue.take(1000) is None

    in_loop(test)


def test_a_batch_is_for_one_detector_and_one_risk_and_the_others_come_next() -> None:
    def test() -> None:
        queue = TokenQueue(1000)
        first, other, strict, same = job(1), job(1, detector="b"), job(1, risk=0.1), job(1)
        work = WorkJob(tokens=5, work=lambda: None)
        for one in (first, other, strict, work, same):
            queue.put(one)
        assert places(queue.take(100)) == [(id(first), 0), (id(same), 0)]
        assert places(queue.take(100)) == [(id(other), 0)]
        assert places(queue.take(100)) == [(id(strict), 0)]
        assert queue.take(100) is work

    in_loop(test)


def test_an_item_larger_than_a_batch_is_run_alone() -> None:
    def test() -> None:
        queue, large, small = TokenQueue(1000), job(2, tokens=50), job(1)
        queue.put(large)
        queue.put(small)
        assert places(queue.take(20)) == [(id(large), 0)]
        assert places(queue.take(20)) == [(id(small), 0)]
        assert places(queue.take(20)) == [(id(large), 1)]

    in_loop(test)


def test_a_full_queue_says_when_there_will_be_room() -> None:
    def test() -> None:
        queue, one = TokenQueue(100), job(9)
        queue.rate.add(tokens=50, seconds=2.0)  # 25 a second
        queue.put(one)
        with pytest.raises(ServiceError) as full:
            queue.put(refused := job(6))
        queue.end(refused)
        assert queue.tokens == 90  # who was not taken in gives nothing back
        assert (full.value.status, full.value.headers) == (429, {"Retry-After": "2"})
        with pytest.raises(ServiceError) as never:
            queue.put(job(11))
        assert never.value.status == 413
        queue.release(one, 50)
        queue.put(job(6))
        assert queue.tokens == 100

    in_loop(test)


def test_who_would_wait_too_long_is_told_when_to_come() -> None:
    def test() -> None:
        queue, large = TokenQueue(100_000, most_seconds=2.0), job(500)
        queue.put(large)
        for _ in range(7):
            queue.put(job(1))  # however slow the model is
        queue.rate.add(tokens=10, seconds=1.0)
        with pytest.raises(ServiceError) as late:
            queue.put(job(1))
        assert (late.value.status, late.value.headers) == (429, {"Retry-After": "6"})  # one item of each of 8, less 2 s
        batch = queue.take(100)
        assert len(places(batch)) == 10
        with pytest.raises(ServiceError):  # what is being run counts too: eight requests are under way
            queue.put(job(1))
        for one in batch:
            one.job.put(one.place, ServiceError(422, "item_failed", "done"))
            queue.release(one.job, one.tokens)
        queue.put(last := job(1))  # what was run is over, though the next batch has not begun
        assert places(queue.take(20)) == [(id(large), 3), (id(last), 0)]

    in_loop(test)


def test_answers_wait_by_a_rate_of_their_own() -> None:
    def ask() -> AskJob:
        return AskJob(tokens=100, wish=Wish("Who?"), detector=None, hear=lambda written: None)

    def test() -> None:
        queue = TokenQueue(100_000, most_seconds=2.0)
        queue.rate.add(tokens=1, seconds=100.0)  # scores are slow
        queue.answer_rate.add(tokens=1000, seconds=1.0)
        for _ in range(21):
            queue.put(ask())
        with pytest.raises(ServiceError) as late:
            queue.put(ask())
        assert late.value.headers == {"Retry-After": "1"}
        queue.take_asks()
        queue.put(ask())

    in_loop(test)


def test_who_is_gone_leaves_nothing_behind() -> None:
    def test() -> None:
        queue, gone, here = TokenQueue(1000), job(4), job(1)
        queue.put(gone)
        queue.put(here)
        queue.take(10)
        queue.end(gone)
        queue.end(gone)
        assert queue.tokens == 10
        assert places(queue.take(1000)) == [(id(here), 0)]

    in_loop(test)


def test_the_rate_forgets_what_is_long_ago() -> None:
    rate = Rate()
    assert rate.wait(1_000_000) == 1.0  # nothing is known yet
    rate.add(1000, 10.0)
    for _ in range(100):
        rate.add(1000, 1.0)
    assert rate.wait(1000) == pytest.approx(1.0, rel=0.01)
