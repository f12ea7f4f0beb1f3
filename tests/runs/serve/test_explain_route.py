"""`/v1/explain`: served numbers are those of the package, and what cannot be explained is told in one line."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

import running as helpers
from anchorscope.detectors.detector import Detector
from anchorscope.detectors.live_cuts import live_cuts
from anchorscope.detectors.trained import TrainedDetector
from anchorscope.models.language_model import LanguageModel
from detector_cases import probes_of, trained_on
from running import Running, running

QUESTION = "What is the capital of Peru?"


def _detectors(lm: LanguageModel) -> list[TrainedDetector]:
    rows = ({"low": 0.5, "high": 0.6, "n": 40, "said": 0.55, "true": 0.61},)
    told = replace(trained_on(lm).card, calibration=rows)
    return [trained_on(lm, card=told, layer_probes=probes_of(lm), sha256="a" * 64)]


@pytest.fixture(scope="module")
def served(tiny_llama: LanguageModel) -> Iterator[Running]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(helpers, "made_detectors", _detectors)
        with running(tiny_llama) as found:
            yield found


def explain(served: Running, **body: object) -> tuple[int, dict]:
    answer = served.client.post("/v1/explain", json=body)
    return answer.status_code, answer.json()


def test_served_numbers_are_those_of_the_package(served: Running, tiny_llama: LanguageModel) -> None:
    status, found = explain(served, question=QUESTION, answer="Lima", cut=[0, 3])
    assert status == 200
    wanted = live_cuts(Detector(_detectors(tiny_llama)[0], tiny_llama), QUESTION, "Lima", [0, 3]).record()
    for part in ("all", "chosen", "random"):
        assert found["delta_p"][part] == pytest.approx(wanted["delta_p"][part], abs=1e-4)
    assert found["words"] == wanted["words"]
    score = served.score((QUESTION, "Lima")).json()["items"][0]
    assert found["score"]["log_odds"] == pytest.approx(score["log_odds"], abs=1e-4)
    assert set(found["score"]) == set(score) - {"id"}
    assert found["calibration"] == {"low": 0.5, "high": 0.6, "n": 40, "said": 0.55, "true": 0.61}
    assert (found["detector"], found["sha256"], found["object"]) == ("probe", "a" * 64, "explanation")


def test_the_model_answers_where_nobody_does(served: Running) -> None:
    status, found = explain(served, question=QUESTION)
    assert status == 200
    assert found["generated"]


def test_the_models_own_answer_is_no_longer_than_the_service_allows(
    served: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = explain(served, question=QUESTION)[1]["answer"]
    monkeypatch.setattr(served.service, "limits", replace(served.service.limits, answer_tokens=2))
    told = explain(served, question=QUESTION)[1]["answer"]
    assert (len(told), len(whole) > 2) == (2, True)  # a token is a byte
    given = explain(served, question=QUESTION, answer="Lima or Cusco")
    assert (given[0], given[1]["answer"]) == (200, "Lima or Cusco")  # what a client says itself is as long as it is


def test_what_cannot_be_explained_is_told(served: Running) -> None:
    for status, code, body in (
        (404, "detector_not_found", {"question": QUESTION, "detector": "oracle"}),
        (404, "model_not_found", {"question": QUESTION, "model": "other"}),
        (413, "item_too_long", {"question": "why " * 2000}),
        (413, "item_too_long", {"question": QUESTION, "answer": "a" * 200_000}),
        (422, "invalid_request", {"question": QUESTION, "answer": "Lima", "cut": [99]}),
        (422, "invalid_request", {"question": QUESTION, "answer": "Lima", "cut": [-1]}),
        (422, "invalid_request", {"question": QUESTION, "answer": "  "}),
        (422, "invalid_request", {"question": " "}),
        (422, "invalid_request", {"answer": "Lima"}),
        (422, "invalid_request", {"question": QUESTION, "more": 1}),
    ):
        found = explain(served, **body)
        assert (found[0], found[1]["error"]["code"]) == (status, code), body
        assert "\n" not in found[1]["error"]["message"]
    assert served.client.get("/v1/detectors").json()["data"][0]["calibration"][0]["n"] == 40
