"""Overload, deadlines, clients that go, items that cannot be scored, memory that runs out: each ends as told."""

import http.client
import json
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import httpx
import pytest
import torch

from anchorscope.detectors.detector import Detector, Score
from anchorscope.engine.decode import DecodingBatch
from anchorscope.items import Item
from anchorscope.models.language_model import LanguageModel
from anchorscope.serve.processes import listen
from anchorscope.serve.server import ServiceServer
from anchorscope.serve.service import Limits, Service, by_id
from detector_cases import PAIRS
from running import Running, made_detectors, running


def before_scoring(
    patch: pytest.MonkeyPatch, act: Callable[[Sequence[Item]], object]
) -> None:
    """Does something with the items of every batch before they are scored."""
    run = Detector.score_items

    def score(
        self: Detector, items: Sequence[Item], *, risk: float | None = None
    ) -> list[Score]:
        act(items)
        return run(self, items, risk=risk)

    patch.setattr(Detector, "score_items", score)


@pytest.fixture(scope="module")
def small(tiny_llama: LanguageModel) -> Iterator[Running]:
    """A server that takes few requests at a time."""
    with running(tiny_llama, Limits(requests=8, batch_tokens=200)) as service:
        yield service


def eventually(test: Callable[[], bool], seconds: float = 10.0) -> bool:
    until = time.monotonic() + seconds
    while not test():
        if time.monotonic() > until:
            return False
        time.sleep(0.01)
    return True


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Holds every batch until it is opened; what was run is in `gate.batches`."""
    opened = threading.Event()
    opened.batches = []  # type: ignore[attr-defined]

    def hold(items: Sequence[Item]) -> None:
        opened.batches.append([item.question.question for item in items])  # type: ignore[attr-defined]
        opened.wait(20)

    before_scoring(monkeypatch, hold)
    yield opened
    opened.set()


def test_four_times_what_it_can_bear(
    small: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    # 50 items a second, at best
    before_scoring(monkeypatch, lambda items: time.sleep(0.02 * len(items)))
    statuses: list[int] = []
    body = json.dumps(
        {"items": [{"question": "Who wrote it?", "answer": "nobody"}] * 3}
    )

    def client(number: int) -> None:
        line, until = (
            http.client.HTTPConnection(small.address.removeprefix("http://")),
            time.monotonic() + 2.0,
        )
        while time.monotonic() < until:
            line.request(
                "POST", "/v1/score", body, {"content-type": "application/json"}
            )
            answer = line.getresponse()
            answer.read()
            statuses.append(answer.status)
            if answer.status == 429:
                assert 1 <= int(answer.headers["Retry-After"]) <= 60
                time.sleep(0.02)
        line.close()

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(client, range(16)))
    assert set(statuses) <= {200, 429, 504}
    assert statuses.count(200) > 5
    assert statuses.count(429) > 5
    began = time.monotonic()
    assert small.score(PAIRS[0]).status_code == 200
    assert time.monotonic() - began < 5
    assert eventually(lambda: small.service.queue.tokens == 0)


def test_the_deadline_ends_a_request_and_its_items_are_never_run(
    small: Running, gate: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = small.service.limits
    monkeypatch.setattr(small.service, "limits", replace(long, deadline=0.7))
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(small.score, PAIRS[0])
        assert eventually(lambda: len(gate.batches) == 1)
        second = pool.submit(small.score, ("Who is late?", "me"))
        answers = [first.result(), second.result()]
    assert [answer.status_code for answer in answers] == [504, 504]
    assert answers[0].json()["error"]["code"] == "deadline_exceeded"
    gate.set()
    monkeypatch.setattr(small.service, "limits", long)
    assert small.score(PAIRS[1]).status_code == 200
    assert not any("Who is late?" in batch for batch in gate.batches)
    assert eventually(lambda: small.service.queue.tokens == 0)


def test_a_poisoned_item_fails_alone(
    served: Running, offline: dict[str, Detector], monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = [offline["probe"].score(*pair) for pair in PAIRS]

    def fail(items: Sequence[Item]) -> None:
        if any("poison" in item.answer.text for item in items):
            raise RuntimeError("index out of range in poison")

    before_scoring(monkeypatch, fail)
    told = served.score(*PAIRS, ("Who?", "poison")).json()["items"]
    for found, one in zip(told[:-1], wanted, strict=True):
        assert found["log_odds"] == pytest.approx(one.log_odds, abs=1e-4)
        assert "error" not in found
    assert told[-1]["error"]["param"] == f"items[{len(PAIRS)}]"
    assert (told[-1]["truth_probability"], told[-1]["error"]["code"]) == (
        None,
        "item_failed",
    )
    alone = served.score(("Who?", "poison"))
    assert (alone.status_code, alone.json()["error"]["code"]) == (422, "item_failed")
    assert "index out of range" not in alone.text
    assert served.score(PAIRS[0]).status_code == 200


def test_memory_that_runs_out_halves_the_batch(
    small: Running, offline: dict[str, Detector], monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted, sizes = [offline["probe"].score(*pair) for pair in PAIRS], []

    def run_short(items: Sequence[Item]) -> None:
        sizes.append(len(items))
        if len(items) > 1:
            raise torch.OutOfMemoryError("CUDA out of memory")

    before_scoring(monkeypatch, run_short)
    monkeypatch.setattr(small.service.thread, "batch_tokens", 200)
    answer = small.score(*PAIRS)
    assert answer.status_code == 200, answer.text
    told = answer.json()["items"]
    assert [one["log_odds"] for one in told] == pytest.approx(
        [one.log_odds for one in wanted], abs=1e-4
    )
    assert small.service.thread.batch_tokens < 200
    assert max(sizes) > 1


def test_a_step_that_fails_ends_its_answers_only(
    served: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = {"messages": [{"role": "user", "content": "Why?"}], "max_tokens": 4}
    with monkeypatch.context() as patch:
        patch.setattr(
            DecodingBatch,
            "_choose",
            lambda self, step: (_ for _ in ()).throw(RuntimeError("secret words")),
        )
        answer = served.client.post("/v1/chat/completions", json=body)
        assert (answer.status_code, answer.json()["error"]["code"]) == (
            500,
            "internal_error",
        )
        assert "secret" not in answer.text
    assert served.client.post("/v1/chat/completions", json=body).status_code == 200


def test_a_lost_device_ends_the_service(
    tiny_llama: LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lose(items: Sequence[Item]) -> None:
        raise torch.AcceleratorError("an illegal memory access was encountered")

    with running(tiny_llama) as service:
        before_scoring(monkeypatch, lose)
        # nobody is told that the item was to blame
        with pytest.raises(httpx.HTTPError):
            service.score(PAIRS[0]).raise_for_status()
        assert eventually(lambda: service.server.should_exit)
        assert isinstance(service.service.thread.error, torch.AcceleratorError)


def test_it_ends_while_the_model_is_still_loading(tiny_llama: LanguageModel) -> None:
    loaded = threading.Event()

    def load() -> LanguageModel:
        loaded.wait(60)
        return tiny_llama

    service = Service(by_id(made_detectors(tiny_llama)), load)
    server, bound = ServiceServer(service, drain=5.0), listen("127.0.0.1", 0)
    thread = threading.Thread(target=lambda: server.run(sockets=[bound]), daemon=True)
    thread.start()
    try:
        assert eventually(lambda: server.started)
        server.handle_exit(signal.SIGTERM, None)
        thread.join(15)
        assert not thread.is_alive()
    finally:
        loaded.set()
        service.thread.join(60)


def test_requests_in_the_running_batch_learn_of_the_end(
    served: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, opened = threading.Event(), threading.Event()
    with monkeypatch.context() as patch, ThreadPoolExecutor(1) as pool:
        before_scoring(patch, lambda items: (begun.set(), opened.wait(20)))
        asked = pool.submit(served.score, PAIRS[0])
        try:
            assert begun.wait(10)
            served.service.thread.abandon()
            answer = asked.result(5)  # the pass goes on, and nobody waits for it
            assert not opened.is_set()
        finally:
            opened.set()
    assert (answer.status_code, answer.json()["error"]["code"]) == (
        503,
        "shutting_down",
    )
    assert served.score(PAIRS[0]).status_code == 200


def test_memory_that_runs_out_ends_a_chat_only(
    served: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    step, left = DecodingBatch._step, [None] * 2

    def short_of_memory(self: DecodingBatch, ids: torch.Tensor) -> torch.Tensor:
        if not left:
            raise torch.OutOfMemoryError("CUDA out of memory")
        left.pop()
        return step(self, ids)

    body = {
        "messages": [{"role": "user", "content": "Who wrote Dracula?"}],
        "max_tokens": 8,
    }
    with monkeypatch.context() as patch:
        patch.setattr(DecodingBatch, "_step", short_of_memory)
        answer = served.client.post(
            "/v1/chat/completions", json={**body, "stream": True}
        )
    assert answer.status_code == 422
    assert answer.json()["error"]["message"].startswith("Memory does not suffice")
    assert served.client.post("/v1/chat/completions", json=body).status_code == 200
