"""Worlds whose parts are known: what is planted is there, the estimator finds it, and marks can be missed."""

import numpy as np
import pytest

from anchorscope.evidence_parts.parts import PARTS
from anchorscope.stats.streams import stream
from known_worlds import WORLDS, Truth, draw_states, find_truth
from worlds import Batch, marked, measure_batch, measure_replicas

ENDLESS = 60_000
PLANTED = {
    "half": (0, 0.5, 0.5, 0),
    "half-auc-0.98": (0, 0.5, 0.5, 0),
    "true-10": (0, 0.5, 0.5, 0),
    "question": (0, 1, 0, 0),
    "answer": (0, 0, 1, 0),
    "redundant-0.5": (0, 0.25, 0.25, 0.5),
    "same": (0, 0, 0, 1),
    "match": (1, 0, 0, 0),
    "thirds": (1 / 3, 1 / 3, 1 / 3, 0),
}


def truth_of(*parts: float) -> Truth:
    return Truth(dict(zip(PARTS, parts, strict=True)), 0.8)


@pytest.mark.parametrize("name", PLANTED)
def test_an_endless_sample_has_the_parts_that_were_planted(name):
    truth = find_truth(WORLDS[name], np.random.default_rng(0), ENDLESS)
    shares = [truth.parts[part] for part in PARTS]
    assert shares == pytest.approx(PLANTED[name], abs=0.03)
    assert sum(shares) == pytest.approx(1)


@pytest.mark.parametrize("name", ["half", "match", "noise-only"])
def test_what_the_code_of_a_run_finds_is_near_the_truth(name):
    truth = find_truth(WORLDS[name], stream(0, "world truth", name), 20_000)
    states = draw_states(WORLDS[name], 320, 2, stream(0, "world", name, "320", "0"))
    row = marked(name, 320, truth, measure_replicas(states, truth))
    if name == "noise-only":
        assert abs(row["difference"]) < 0.15
    else:
        assert max(map(abs, row["bias"])) < 0.2
    if name == "match":
        assert row["claims_together"] == 1


@pytest.mark.parametrize(
    ("bias", "covered", "claimed", "passes"),
    [
        (0.01, 1.0, 0.0, True),
        (0.05, 1.0, 0.0, False),
        (0.01, 0.8, 0.0, False),
        (0.01, 1.0, 1.0, False),
    ],
)
def test_each_mark_can_be_missed(bias, covered, claimed, passes):
    holds = np.arange(10) < round(10 * covered)
    values = {
        "error": np.full((10, 4), bias),
        "covered": np.repeat(holds[:, None], 4, axis=1).astype(float),
        "claims_together": np.full(10, claimed),
        "claims_difference": np.ones(10),
        "difference": np.zeros(10),
        "auc": np.full(10, 0.8),
        "ratio_of_sums": np.zeros(10),
    }
    assert marked("half", 1000, truth_of(0, 0.5, 0.5, 0), values)["passes"] is passes
    # There a claim is none too many.
    matched = marked("match", 1000, truth_of(1, 0, 0, 0), values)
    assert matched["passes"] is (passes or claimed == 1.0)


def test_the_same_seed_gives_the_same_worlds():
    truth = truth_of(1 / 3, 1 / 3, 1 / 3, 0)

    def errors(seed: int) -> np.ndarray:
        batch = Batch("thirds", 120, start=0, replicas=1)
        return measure_batch(batch, truth, "cpu", seed)["error"]

    first = errors(0)
    assert np.array_equal(first, errors(0), equal_nan=True)
    assert not np.array_equal(first, errors(1), equal_nan=True)
