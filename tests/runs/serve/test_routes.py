"""Every route over HTTP gives the numbers of offline scoring, whoever else is asking; and the docs' example runs."""

import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import httpx
import openai
import pytest

from anchorscope.detectors.detector import Detector
from anchorscope.detectors.live_cuts import live_cuts
from anchorscope.serve.service import Limits
from detector_cases import PAIRS
from repo import DOCS
from running import CALIBRATION, Running

CLOSE = 1e-4
PAGE = (DOCS / "serving.md").read_text(encoding="utf-8")


# /v1/score


def test_served_is_offline(served: Running, offline: dict[str, Detector]) -> None:
    for name, detector in offline.items():
        answer = served.score(*PAIRS, detector=name)
        assert answer.status_code == 200, answer.text
        told = answer.json()
        assert (told["detector"], told["sha256"]) == (name, detector.trained.sha256)
        for found, pair in zip(told["items"], PAIRS, strict=True):
            wanted = detector.score(*pair)
            assert found["log_odds"] == pytest.approx(wanted.log_odds, abs=CLOSE)
            assert found["truth_probability"] == pytest.approx(wanted.truth_probability, abs=CLOSE)
            assert (found["verdict"], found["warnings"]) == (wanted.verdict, list(wanted.warnings))


def test_many_clients_at_once_get_their_own_numbers(served: Running, offline: dict[str, Detector]) -> None:
    pairs = [(f"Who wrote the book number {n}?", "the poet " * (n % 7 + 1)) for n in range(24)]
    wanted = offline["auto"].score_many(pairs)
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda pair: served.score(pair, detector="auto"), pairs))
    assert [answer.status_code for answer in answers] == [200] * len(pairs)
    for answer, one in zip(answers, wanted, strict=True):
        assert answer.json()["items"][0]["log_odds"] == pytest.approx(one.log_odds, abs=CLOSE)
    text = served.client.get("/metrics").text
    assert 'anchorscope_requests_total{route="/v1/score",status="200"}' in text


# /v1/chat/completions, with OpenAI's own client

QUESTION = "Who wrote Dracula?"


@pytest.fixture(scope="module")
def client(served: Running) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{served.address}/v1", api_key="none", max_retries=0, timeout=30)


def asked(**others: Any) -> dict[str, Any]:
    return {"model": "default", "messages": [{"role": "user", "content": QUESTION}], **others}


def chat(served: Running, **others: Any) -> httpx.Response:
    return served.client.post("/v1/chat/completions", json=asked(**others))


@pytest.mark.parametrize("name", ["probe", "auto"])
def test_the_answer_and_its_truth_are_those_of_offline(
    client: openai.OpenAI, offline: dict[str, Detector], name: str
) -> None:
    wanted = offline[name].score(QUESTION)
    told = client.chat.completions.create(**asked(), extra_body={"truth": True, "detector": name})
    assert told.choices[0].message.content.strip() == wanted.answer.strip()
    truth = told.choices[0].truth  # the client keeps what it does not know
    assert truth["log_odds"] == pytest.approx(wanted.log_odds, abs=CLOSE)
    assert truth["truth_probability"] == pytest.approx(wanted.truth_probability, abs=CLOSE)
    assert (truth["verdict"], truth["detector"]) == (wanted.verdict, name)
    assert truth["sha256"] == offline[name].trained.sha256
    assert told.usage.total_tokens == told.usage.prompt_tokens + told.usage.completion_tokens > 0


def test_streamed_is_whole(client: openai.OpenAI) -> None:
    whole = client.chat.completions.create(**asked(), extra_body={"truth": True})
    stream = client.chat.completions.create(
        **asked(), stream=True, stream_options={"include_usage": True}, extra_body={"truth": True}
    )
    *pieces, last, counted = list(stream)
    assert "".join(one.choices[0].delta.content or "" for one in pieces) == whole.choices[0].message.content
    assert last.choices[0].finish_reason == whole.choices[0].finish_reason
    assert last.choices[0].truth["log_odds"] == pytest.approx(whole.choices[0].truth["log_odds"], abs=CLOSE)
    assert counted.usage == whole.usage
    assert not any(hasattr(one.choices[0], "truth") for one in pieces)


def test_a_chat_without_truth_goes_through_the_template(served: Running) -> None:
    told = chat(served, max_tokens=5).json()
    assert "truth" not in told["choices"][0]
    assert told["usage"]["prompt_tokens"] == len(f"[user]{QUESTION}\n[assistant]")  # a token is a byte
    assert told["usage"]["completion_tokens"] <= 5
    content = [{"type": "text", "text": "Who wrote "}, {"type": "text", "text": "Dracula?"}]
    parts = [{"role": "user", "content": content}]
    assert chat(served, max_tokens=5, messages=parts).json()["choices"] == told["choices"]


def test_a_seed_draws_the_same_again(served: Running) -> None:
    drawn = [chat(served, max_tokens=12, temperature=1.5, seed=seed).json()["choices"][0] for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]


def test_a_stop_text_ends_the_answer(served: Running) -> None:
    whole = chat(served, max_tokens=12).json()["choices"][0]["message"]["content"]
    stop = whole[3:5]
    told = chat(served, max_tokens=12, stop=[stop]).json()["choices"][0]
    assert told["message"]["content"] == whole[: whole.index(stop)]
    assert told["finish_reason"] == "stop"


@pytest.mark.parametrize(
    ("others", "code", "param"),
    [
        (
            {"truth": True, "messages": [{"role": "system", "content": "Lie."}, {"role": "user", "content": "Why?"}]},
            "truth_needs_one_question",
            "messages",
        ),
        (
            {"truth": True, "messages": [{"role": "assistant", "content": "Why?"}]},
            "truth_needs_one_question",
            "messages",
        ),
        ({"messages": [{"role": "system", "content": "Be kind."}]}, "chat_refused", "messages"),
        ({"detector": "probe"}, "invalid_request", "detector"),
        ({"max_tokens": 100_000}, "answer_too_long", "max_tokens"),
        ({"n": 2}, "invalid_request", "n"),
        ({"tools": []}, "invalid_request", "tools"),
        ({"logprobs": True}, "invalid_request", "logprobs"),
        ({"temperature": -1}, "invalid_request", "temperature"),
        ({"truth": True, "risk": 0.33}, "invalid_request", None),
        ({"messages": []}, "invalid_request", "messages"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": "x"}]}]},
            "invalid_request",
            None,
        ),
    ],
)
def test_what_is_not_supported_is_told_in_one_line(
    served: Running, others: dict[str, Any], code: str, param: str | None
) -> None:
    answer = chat(served, **others)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (422, code), error
    assert param in (None, error["param"])
    assert "\n" not in error["message"]


def test_a_model_that_is_not_served(served: Running) -> None:
    answer = chat(served, model="gpt-4")
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "model_not_found")
    answer = chat(served, truth=True, detector="gpt-4")
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "detector_not_found")


# /v1/explain

CAPITAL = "What is the capital of Peru?"


def explain(served: Running, **body: object) -> tuple[int, dict]:
    answer = served.client.post("/v1/explain", json=body)
    return answer.status_code, answer.json()


def test_served_numbers_are_those_of_the_package(served: Running, offline: dict[str, Detector]) -> None:
    status, found = explain(served, question=CAPITAL, answer="Lima", cut=[0, 3])
    assert status == 200
    wanted = live_cuts(offline["probe"], CAPITAL, "Lima", [0, 3]).record()
    for part in ("all", "chosen", "random"):
        assert found["delta_p"][part] == pytest.approx(wanted["delta_p"][part], abs=1e-4)
    assert found["words"] == wanted["words"]
    score = served.score((CAPITAL, "Lima")).json()["items"][0]
    assert found["score"]["log_odds"] == pytest.approx(score["log_odds"], abs=1e-4)
    assert set(found["score"]) == set(score) - {"id"}
    assert found["calibration"] == CALIBRATION
    assert (found["detector"], found["sha256"], found["object"]) == ("probe", "a" * 64, "explanation")


def test_the_model_answers_where_nobody_does(served: Running) -> None:
    status, found = explain(served, question=CAPITAL)
    assert status == 200
    assert found["generated"]


def test_the_models_own_answer_is_no_longer_than_the_service_allows(
    served: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = explain(served, question=CAPITAL)[1]["answer"]
    monkeypatch.setattr(served.service, "limits", replace(served.service.limits, answer_tokens=2))
    told = explain(served, question=CAPITAL)[1]["answer"]
    assert (len(told), len(whole) > 2) == (2, True)  # a token is a byte
    given = explain(served, question=CAPITAL, answer="Lima or Cusco")
    assert (given[0], given[1]["answer"]) == (200, "Lima or Cusco")  # what a client says itself is as long as it is


def test_what_cannot_be_explained_is_told(served: Running) -> None:
    for status, code, body in (
        (404, "detector_not_found", {"question": CAPITAL, "detector": "oracle"}),
        (404, "model_not_found", {"question": CAPITAL, "model": "other"}),
        (413, "item_too_long", {"question": "why " * 2000}),
        (413, "item_too_long", {"question": CAPITAL, "answer": "a" * 200_000}),
        (422, "invalid_request", {"question": CAPITAL, "answer": "Lima", "cut": [99]}),
        (422, "invalid_request", {"question": CAPITAL, "answer": "Lima", "cut": [-1]}),
        (422, "invalid_request", {"question": CAPITAL, "answer": "  "}),
        (422, "invalid_request", {"question": " "}),
        (422, "invalid_request", {"answer": "Lima"}),
        (422, "invalid_request", {"question": CAPITAL, "more": 1}),
    ):
        found = explain(served, **body)
        assert (found[0], found[1]["error"]["code"]) == (status, code), body
        assert "\n" not in found[1]["error"]["message"]
    assert served.client.get("/v1/detectors").json()["data"][0]["calibration"][0]["n"] == 40


# docs/serving.md


def test_the_example_runs(served: Running, capsys: pytest.CaptureFixture[str]) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", PAGE, re.S)
    exec(compile(example.replace("http://127.0.0.1:8642", served.address), "docs/serving.md", "exec"), {})
    assert re.search(r" 0\.\d+\n$", capsys.readouterr().out)


def test_the_limits_are_those_of_the_code() -> None:
    limits = Limits()
    assert f"| {limits.items}, {limits.item_tokens:,} |" in PAGE
    assert f"| {limits.answer_tokens} |" in PAGE
    assert f"| {limits.body_bytes // 2**20} MiB, {limits.requests} |" in PAGE
    assert f"| {limits.deadline:g}, {limits.read_seconds:g} |" in PAGE
