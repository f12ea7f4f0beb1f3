"""Faults inside an answer or a batch that is being run: who waits is told what it is, and the service goes on."""

import json
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch

from anchorscope.detectors.detector import Detector
from anchorscope.detectors.trained import Score
from anchorscope.engine.continuous import Continuous
from anchorscope.items import Item
from detector_cases import PAIRS
from running import Running

QUESTION = {"model": "default", "messages": [{"role": "user", "content": "Who wrote Dracula?"}], "truth": True}


def short_of_memory_after(steps: int) -> Callable[..., Any]:
    """A step that memory suffices for so many times."""
    feed, left = Continuous._feed_rows, [None] * steps

    def sometimes(self: Continuous, *given: Any) -> Any:
        if not left:
            raise torch.OutOfMemoryError("CUDA out of memory")
        left.pop()
        return feed(self, *given)

    return sometimes


def test_an_answer_that_memory_ends_inside_a_stream_says_so(served: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Continuous, "_feed_rows", short_of_memory_after(2))
        answer = served.client.post("/v1/chat/completions", json={**QUESTION, "stream": True})
    lines = [line.removeprefix("data: ") for line in answer.text.split("\n") if line]
    assert (answer.status_code, lines[-1]) == (200, "[DONE]")
    *pieces, error = [json.loads(line) for line in lines[:-1]]
    assert pieces[0]["choices"][0]["delta"]["role"] == "assistant"
    assert (error["error"]["code"], error["error"]["type"]) == ("invalid_request", "invalid_request_error")
    assert error["error"]["message"].startswith("Memory does not suffice")
    assert served.client.post("/v1/chat/completions", json=QUESTION).status_code == 200


def test_who_is_in_the_batch_that_is_being_run_is_told_of_the_end(
    served: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, opened, run = threading.Event(), threading.Event(), Detector.score_items

    def held(self: Detector, items: Sequence[Item], *, risk: float | None = None) -> list[Score]:
        begun.set()
        opened.wait(20)
        return run(self, items, risk=risk)

    with monkeypatch.context() as patch, ThreadPoolExecutor(1) as pool:
        patch.setattr(Detector, "score_items", held)
        asked = pool.submit(served.score, PAIRS[0])
        try:
            assert begun.wait(10)
            served.service.thread.abandon()
            answer = asked.result(5)  # the pass goes on, and nobody waits for it
            assert not opened.is_set()
        finally:
            opened.set()
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "shutting_down")
    assert served.score(PAIRS[0]).status_code == 200
