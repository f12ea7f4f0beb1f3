"""Every route over HTTP gives the numbers of offline scoring, whoever else is asking; and the docs' example runs."""

import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import httpx
import openai
import pytest

from anchorscope.datasets.question import asked as ask
from anchorscope.datasets.question import question_from_row
from anchorscope.detecting.score import measure_uses
from anchorscope.detectors.detector import Detector, live_cuts
from anchorscope.serve.service import Limits
from detector_cases import PAIRS
from repo import DOCS
from running import Running

CLOSE = 1e-4
PAGE = (DOCS / "serving.md").read_text(encoding="utf-8")


def test_served_is_offline(served: Running, offline: dict[str, Detector]) -> None:
    for name, detector in offline.items():
        answer = served.score(*PAIRS, detector=name)
        assert answer.status_code == 200, answer.text
        told = answer.json()
        assert (told["detector"], told["sha256"]) == (name, detector.trained.sha256)
        for found, pair in zip(told["items"], PAIRS, strict=True):
            wanted = detector.score(*pair)
            assert found["log_odds"] == pytest.approx(wanted.log_odds, abs=CLOSE)
            assert found["truth_probability"] == pytest.approx(
                wanted.truth_probability, abs=CLOSE
            )
            assert (found["verdict"], found["warnings"]) == (
                wanted.verdict,
                list(wanted.warnings),
            )


def test_many_clients_at_once_get_their_own_numbers(
    served: Running, offline: dict[str, Detector]
) -> None:
    pairs = [
        (f"Who wrote the book number {n}?", "the poet " * (n % 7 + 1))
        for n in range(24)
    ]
    wanted = offline["auto"].score_many(pairs)
    with ThreadPoolExecutor(8) as pool:
        answers = list(
            pool.map(lambda pair: served.score(pair, detector="auto"), pairs)
        )
    assert [answer.status_code for answer in answers] == [200] * len(pairs)
    for answer, one in zip(answers, wanted, strict=True):
        assert answer.json()["items"][0]["log_odds"] == pytest.approx(
            one.log_odds, abs=CLOSE
        )
    text = served.client.get("/metrics").text
    assert 'anchorscope_requests_total{route="/v1/score",status="200"}' in text


PASSAGE = "Veltra was founded by Ann Lee."


def test_a_passage_and_thinking_are_read_and_the_answers_use_of_the_passage_is_that_of_the_command(
    served: Running, offline: dict[str, Detector]
) -> None:
    """`context` is a passage or several; thinking is a field, or stands between marks of the answer."""
    item = {"question": "Who founded Veltra?", "answer": "Ann Lee"}
    sources = [
        {"context": PASSAGE},
        {"context": [PASSAGE, "Sand is dry."], "thinking": "It was Ann."},
        {},
    ]
    items = [{**item, **added} for added in sources] + [{**item, "thinking": "A."}]
    marked = {**item, "answer": "<think>A.</think>Ann Lee"}
    answer = served.client.post("/v1/score", json={"items": [*items, marked]})
    assert answer.status_code == 200, answer.text
    told = answer.json()["items"]
    questions = [
        question_from_row(
            {"model_answer": one["answer"], **one}, "score", 1, graded=False
        )
        for one in items
    ]
    wanted = offline["probe"].score_questions(questions)
    uses = measure_uses(offline["probe"], questions, wanted)
    for found, score, use in zip(told[:-1], wanted, uses, strict=True):
        assert found["log_odds"] == pytest.approx(score.log_odds, abs=CLOSE)
        share = use["context_used"]
        assert found.get("context_used") == (
            None if share is None else pytest.approx(share, abs=1e-3)
        )
        assert found.get("passage") == use["passage"]
    assert len({found["log_odds"] for found in told[:-1]}) == len(items), (
        "every source is read"
    )
    assert ["context_used" in found for found in told] == [
        True,
        True,
        False,
        False,
        False,
    ]
    assert told[-1]["log_odds"] == pytest.approx(told[-2]["log_odds"], abs=CLOSE)
    unaware = [
        "not trained on answers that follow" in str(one["warnings"]) for one in told
    ]
    assert unaware == [bool(one.get("context")) for one in [*items, marked]]


def test_every_route_takes_a_passage(
    served: Running, offline: dict[str, Detector]
) -> None:
    asked_with = question_from_row(
        {"question": QUESTION, "context": PASSAGE}, "score", 1, graded=False
    )
    (wanted,) = offline["probe"].score_questions([asked_with])
    (used,) = measure_uses(offline["probe"], [asked_with], [wanted])
    told = chat(served, context=PASSAGE).json()["choices"][0]["truth"]
    explained = explain(served, question=QUESTION, context=PASSAGE)[1]["score"]
    for found in (told, explained):
        assert found["log_odds"] == pytest.approx(wanted.log_odds, abs=CLOSE)
        assert found["context_used"] == pytest.approx(used["context_used"], abs=1e-3)


@pytest.mark.parametrize(
    ("sources", "why"),
    [
        ({"context": ""}, "empty passage"),
        ({"context": []}, "empty list"),
        ({"context": ["a", " "]}, "empty passage"),
        ({"context": 7}, "valid string"),
        ({"context": "42"}, "a text or a list of texts"),
        ({"answer": "<think>never"}, "never closes it"),
        ({"answer": "<think>a</think>b", "thinking": "c"}, "given twice"),
    ],
)
def test_bad_sources_are_one_line(
    served: Running, sources: dict[str, Any], why: str
) -> None:
    answer = served.client.post(
        "/v1/score", json={"items": [{"question": "Who?", "answer": "me", **sources}]}
    )
    assert answer.status_code == 422
    assert why in answer.json()["error"]["message"]


# /v1/chat/completions, with OpenAI's own client

QUESTION = "Who wrote Dracula?"


@pytest.fixture(scope="module")
def client(served: Running) -> openai.OpenAI:
    return openai.OpenAI(
        base_url=f"{served.address}/v1", api_key="none", max_retries=0, timeout=30
    )


def asked(**others: Any) -> dict[str, Any]:
    return {
        "model": "default",
        "messages": [{"role": "user", "content": QUESTION}],
        **others,
    }


def chat(served: Running, **others: Any) -> httpx.Response:
    return served.client.post("/v1/chat/completions", json=asked(**others))


@pytest.mark.parametrize("name", ["probe", "auto"])
def test_the_answer_and_its_truth_are_those_of_offline(
    client: openai.OpenAI, offline: dict[str, Detector], name: str
) -> None:
    wanted = offline[name].score(QUESTION)
    told = client.chat.completions.create(
        **asked(), extra_body={"truth": True, "detector": name}
    )
    assert told.choices[0].message.content.strip() == wanted.answer.strip()
    truth = told.choices[0].truth  # the client keeps what it does not know
    assert truth["log_odds"] == pytest.approx(wanted.log_odds, abs=CLOSE)
    assert truth["truth_probability"] == pytest.approx(
        wanted.truth_probability, abs=CLOSE
    )
    assert (truth["verdict"], truth["detector"]) == (wanted.verdict, name)
    assert truth["sha256"] == offline[name].trained.sha256
    assert (
        told.usage.total_tokens
        == told.usage.prompt_tokens + told.usage.completion_tokens
        > 0
    )


def test_what_changes_nothing_is_taken(client: openai.OpenAI) -> None:
    """As clients and frameworks send it by themselves; a system message is answered with a warning."""
    plain = client.chat.completions.create(**asked()).choices[0]
    whole = client.chat.completions.create(
        model="default",
        messages=[
            {"role": "system", "content": "You are a helpful assistant."},
            {"role": "developer", "content": [{"type": "text", "text": "Be brief."}]},
            {
                "role": "user",
                "name": "ann",
                "content": [
                    {"type": "text", "text": text} for text in QUESTION.split()
                ],
            },
        ],
        n=1,
        presence_penalty=0,
        frequency_penalty=0.0,
        logit_bias={},
        logprobs=False,
        tools=[],
        tool_choice="none",
        parallel_tool_calls=True,
        response_format={"type": "text"},
        modalities=["text"],
        metadata={"trace": "7"},
        store=False,
        service_tier="auto",
        user="ann",
        seed=None,
        stop=None,
        temperature=0,
        top_p=1,
    ).choices[0]
    assert whole.message == plain.message
    assert whole.truth["log_odds"] == pytest.approx(plain.truth["log_odds"], abs=CLOSE)
    assert plain.truth["warnings"] == whole.truth["warnings"][:-1]
    assert "system message was not used" in whole.truth["warnings"][-1]


def test_streamed_is_whole(client: openai.OpenAI) -> None:
    whole = client.chat.completions.create(**asked(), extra_body={"truth": True})
    stream = client.chat.completions.create(
        **asked(), stream=True, extra_body={"truth": True}
    )
    *pieces, last = list(stream)
    assert (
        "".join(one.choices[0].delta.content or "" for one in pieces)
        == whole.choices[0].message.content
    )
    assert last.choices[0].finish_reason == whole.choices[0].finish_reason
    assert last.choices[0].truth["log_odds"] == pytest.approx(
        whole.choices[0].truth["log_odds"], abs=CLOSE
    )
    assert last.usage == whole.usage
    assert not any(hasattr(one.choices[0], "truth") for one in pieces)


@pytest.mark.parametrize(
    ("others", "code", "param"),
    [
        (
            {"messages": [{"role": "system", "content": "Lie."}]},
            "invalid_request",
            "messages",
        ),
        (
            {"messages": [{"role": "user", "content": "Who?"}] * 2},
            "invalid_request",
            "messages",
        ),
        (
            {"messages": [{"role": "assistant", "content": "Me."}]},
            "invalid_request",
            "messages[0].role",
        ),
        ({"messages": [{"role": "user", "content": 5}]}, "invalid_request", None),
        ({"messages": [{"role": "user", "content": []}]}, "invalid_request", None),
        ({"truth": False}, "invalid_request", "truth"),
        ({"max_tokens": 100_000}, "answer_too_long", "max_tokens"),
        ({"tools": [{"type": "function"}]}, "invalid_request", "tools"),
        ({"n": 2}, "invalid_request", "n"),
        ({"presence_penalty": 0.5}, "invalid_request", "presence_penalty"),
        ({"frequency_penalty": -1}, "invalid_request", "frequency_penalty"),
        ({"logit_bias": {"50256": -100}}, "invalid_request", "logit_bias"),
        ({"logprobs": True}, "invalid_request", "logprobs"),
        ({"reasoning_effort": "high"}, "invalid_request", "reasoning_effort"),
        (
            {"response_format": {"type": "json_object"}},
            "invalid_request",
            "response_format",
        ),
        ({"best_of": 1}, "invalid_request", "best_of"),
        ({"temperature": -1}, "invalid_request", "temperature"),
        ({"risk": 0.001}, "invalid_request", None),
        (
            {
                "messages": [
                    {
                        "role": "user",
                        "content": [{"type": "image_url", "image_url": "x"}],
                    }
                ]
            },
            "invalid_request",
            "messages[0].content",
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


# /v1/explain

CAPITAL = "What is the capital of Peru?"


def explain(served: Running, **body: object) -> tuple[int, dict]:
    answer = served.client.post("/v1/explain", json=body)
    return answer.status_code, answer.json()


def test_served_numbers_are_those_of_the_package(
    served: Running, offline: dict[str, Detector]
) -> None:
    status, found = explain(served, question=CAPITAL, answer="Lima", cut=[0, 3])
    assert status == 200
    _, wanted = live_cuts(offline["probe"], ask(CAPITAL, "Lima"), [0, 3])
    for part in ("clean", "all", "chosen", "random"):
        assert found["probability"][part] == pytest.approx(
            wanted["probability"][part], abs=1e-4
        )
    assert found["words"] == wanted["words"]
    score = served.score((CAPITAL, "Lima")).json()["items"][0]
    assert found["score"]["log_odds"] == pytest.approx(score["log_odds"], abs=1e-4)
    assert set(found["score"]) == set(score) - {"id"}
    assert (found["detector"], found["sha256"], found["object"]) == (
        "probe",
        "a" * 64,
        "explanation",
    )


def test_the_models_own_answer_is_no_longer_than_the_service_allows(
    served: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = explain(served, question=CAPITAL)[1]["answer"]
    monkeypatch.setattr(
        served.service, "limits", replace(served.service.limits, answer_tokens=2)
    )
    told = explain(served, question=CAPITAL)[1]["answer"]
    assert (len(told), len(whole) > 2) == (2, True)  # a token is a byte
    given = explain(served, question=CAPITAL, answer="Lima or Cusco")
    assert (given[0], given[1]["answer"]) == (
        200,
        "Lima or Cusco",
    )  # what a client says itself is as long as it is


def test_what_cannot_be_explained_is_told(served: Running) -> None:
    for status, code, body in (
        (404, "detector_not_found", {"question": CAPITAL, "detector": "oracle"}),
        (413, "item_too_long", {"question": "why " * 4000}),
        (
            413,
            "item_too_long",
            {"question": CAPITAL, "answer": "Lima", "context": "sand " * 2000},
        ),
        (422, "invalid_request", {"question": CAPITAL, "answer": "a" * 200_000}),
        (422, "invalid_request", {"question": CAPITAL, "answer": "Lima", "cut": [99]}),
        (422, "invalid_request", {"question": CAPITAL, "answer": "  "}),
        (422, "invalid_request", {"answer": "Lima"}),
    ):
        found = explain(served, **body)
        assert (found[0], found[1]["error"]["code"]) == (status, code), body
        assert "\n" not in found[1]["error"]["message"]
    assert (
        served.client.get("/v1/detectors").json()["data"][0]["calibration"][0]["n"]
        == 40
    )


def test_the_example_runs(served: Running, capsys: pytest.CaptureFixture[str]) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", PAGE, re.S)
    exec(
        compile(
            example.replace("http://127.0.0.1:8642", served.address),
            "docs/serving.md",
            "exec",
        ),
        {},
    )
    assert re.search(r" 0\.\d+\n$", capsys.readouterr().out)


def test_the_limits_are_those_of_the_code() -> None:
    limits = Limits()
    assert f"| {limits.answer_tokens} |" in PAGE
    assert f"{limits.body_bytes // 2**20} MiB" in PAGE
    assert f"{limits.item_tokens:,} tokens" in PAGE
    assert f"{limits.requests} requests under way" in PAGE
    assert f"| {limits.deadline:g} |" in PAGE
