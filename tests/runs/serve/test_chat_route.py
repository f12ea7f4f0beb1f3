"""`/v1/chat/completions`: what a detector says offline, with OpenAI's own client, whole and in pieces."""

from typing import Any

import httpx
import openai
import pytest

from anchorscope.detectors.detector import Detector
from running import Running

CLOSE = 1e-4
QUESTION = "Who wrote Dracula?"


@pytest.fixture(scope="module")
def client(served: Running) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{served.address}/v1", api_key="none", max_retries=0, timeout=30)


def asked(**others: Any) -> dict[str, Any]:
    return {"model": "default", "messages": [{"role": "user", "content": QUESTION}], **others}


def chat(served: Running, **others: Any) -> httpx.Response:
    return served.client.post("/v1/chat/completions", json=asked(**others))


@pytest.mark.parametrize("name", ["probe", "anchor"])
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
