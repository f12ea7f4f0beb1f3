"""Where jobs wait: bounded in tokens, in turn, and gone with whoever asked."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from anchorscope.detectors.asking import Wish
from anchorscope.serve import queue as queue_file
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


def test_who_has_waited_too_long_when_a_batch_is_full_is_told_when_to_come(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(queue_file.time, "monotonic", lambda: now)

    def ask() -> AskJob:
        return AskJob(tokens=10, wish=Wish("Who?"), detector=None, hear=lambda written: None)

    async def test() -> None:
        nonlocal now
        queue, begun, late = TokenQueue(100_000, most_seconds=2.0), job(3), [job(1) for _ in range(4)]
        for one in (begun, *late):
            queue.put(one)
        work = WorkJob(tokens=100, work=lambda: None)
        queue.put(work)
        assert places(queue.take(30)) == [(id(begun), 0), (id(late[0]), 0), (id(late[1]), 0)]
        now += 3.0
        queue.put(fresh := job(1))
        assert places(queue.take(10)) == [(id(late[2]), 0)], "whose turn has come is run however long it waited"
        await asyncio.sleep(0)
        with pytest.raises(ServiceError) as refused:
            late[3].done.result()
        assert (refused.value.status, refused.value.code) == (429, "queue_full")
        assert isinstance(work.done.exception(), ServiceError)
        queue.end(late[3])
        queue.end(work)
        assert not any(one.done.done() for one in (begun, fresh, *late[:3])), "what was begun goes on"
        assert places(queue.take(1000)) == [(id(begun), 1), (id(fresh), 0), (id(begun), 2)]
        assert queue.take(1000) is None
        asks = [ask(), ask()]
        for one in asks:
            queue.put(one)
        queue.put_back(queue.take_asks())
        assert queue.take_asks() == asks
        now += 3.0
        queue.put_back(asks)
        await asyncio.sleep(0)
        assert [one.done.exception().status for one in asks] == [429, 429]  # type: ignore[union-attr]
        assert queue.take_asks() == []

    with ThreadPoolExecutor(1) as pool:
        pool.submit(lambda: asyncio.run(test())).result()


def test_a_batch_takes_a_third_of_the_time_that_requests_may_wait_or_has_few_items() -> None:
    def test() -> None:
        queue, large = TokenQueue(100_000, most_seconds=3.0), job(500)
        queue.put(large)
        assert len(queue.take(1000) or ()) == 100, "nothing is known of the rate yet"  # type: ignore[arg-type]
        queue.rate.add(tokens=300, seconds=1.0)
        assert len(queue.take(1000) or ()) == 30  # type: ignore[arg-type]
        queue.rate.add(tokens=0, seconds=1e6)  # a stall
        queue.rate.add(tokens=10, seconds=10.0)
        assert len(queue.take(1000) or ()) == 8  # type: ignore[arg-type]
        assert len(queue.take(50) or ()) == 5  # type: ignore[arg-type]

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
    assert rate.wait(1_000_000) == 0.0  # nothing is known yet
    rate.add(1000, 10.0)
    for _ in range(100):
        rate.add(1000, 1.0)
    assert rate.wait(1000) == pytest.approx(1.0, rel=0.01)
    rate.add(100, 600.0)  # a stall counts as ten seconds of work
    for _ in range(30):
        rate.add(1000, 1.0)
    assert rate.wait(1000) == pytest.approx(1.0, rel=0.3)
    assert rate.wait(10**9) == 60.0
