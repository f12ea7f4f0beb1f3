"""`/v1/score` over HTTP: the numbers of offline scoring, whoever else is asking."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from anchorscope.detectors.detector import Detector
from detector_cases import PAIRS
from running import Running

CLOSE = 1e-4


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
            assert found["pathway"] == (None if name == "probe" else pytest.approx(wanted.pathway_score, abs=CLOSE))


def test_many_clients_at_once_get_their_own_numbers(served: Running, offline: dict[str, Detector]) -> None:
    pairs = [(f"Who wrote the book number {n}?", "the poet " * (n % 7 + 1)) for n in range(24)]
    wanted = offline["anchor"].score_many(pairs)
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda pair: served.score(pair, detector="anchor"), pairs))
    assert [answer.status_code for answer in answers] == [200] * len(pairs)
    for answer, one in zip(answers, wanted, strict=True):
        assert answer.json()["items"][0]["log_odds"] == pytest.approx(one.log_odds, abs=CLOSE)
    text = served.client.get("/metrics").text
    assert 'anchorscope_requests_total{route="/v1/score",status="200"}' in text
