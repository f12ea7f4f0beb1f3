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
from anchorscope.serve.queue import TokenQueue


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
