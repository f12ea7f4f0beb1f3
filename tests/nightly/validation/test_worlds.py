"""The worlds: what is planted is there, truth is what the closed forms say, and marks can be missed."""

import numpy as np
import pytest

from anchorscope.evidence_parts.parts import PARTS
from anchorscope.validation.worlds import (
    WORLDS,
    Truth,
    find_truth,
    mark_world,
    run_worlds,
)

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


@pytest.mark.parametrize("name", PLANTED)
def test_an_endless_sample_has_the_parts_that_were_planted(name):
    truth = find_truth(WORLDS[name], np.random.default_rng(0), ENDLESS)
    assert [truth.parts[part] for part in PARTS] == pytest.approx(
        PLANTED[name], abs=0.03
    )
    assert sum(truth.parts[part] for part in PARTS) == pytest.approx(1)


@pytest.fixture(scope="module")
def results():
    return run_worlds(
        2, (160, 320), names=("half", "match", "noise-only"), endless=20_000
    )


def test_what_the_code_of_a_run_finds_is_near_the_truth(results):
    for mark in results.marks:
        if mark.n == 320 and mark.world != "noise-only":
            assert max(abs(mark.values["bias", part].value) for part in PARTS) < 0.2, (
                mark.world
            )
    at = {mark.world: mark for mark in results.marks if mark.n == 320}
    assert at["match"].values["claimed", "together"].value == 1
    assert abs(at["noise-only"].values["difference", "needs-question"].value) < 0.15


def truth_of(*parts):
    return Truth(dict(zip(PARTS, parts, strict=True)), 0.8)


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
    values = {("bias", part): [bias] * 10 for part in PARTS}
    values |= {
        ("covered", part): [1.0] * round(10 * covered)
        + [0.0] * round(10 - 10 * covered)
        for part in PARTS
    }
    values |= {
        ("claimed", "together"): [claimed] * 10,
        ("claimed", "difference"): [1.0] * 10,
    }
    assert mark_world("half", 1000, truth_of(0, 0.5, 0.5, 0), values).passes is passes
    matched = mark_world(
        "match", 1000, truth_of(1, 0, 0, 0), values
    )  # there a claim is none too many
    assert matched.passes is (passes or claimed == 1.0)


def test_the_same_seed_gives_the_same_worlds():
    first, again, other = (
        run_worlds(1, 120, names=("thirds",), endless=2_000, seed=seed).marks
        for seed in (0, 0, 1)
    )
    assert repr(first) == repr(again) != repr(other)
