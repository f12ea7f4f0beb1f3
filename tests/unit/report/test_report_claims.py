"""The claims of earlier descriptions on curves whose answer is known, and on runs that cannot answer."""

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anchorscope.report.comparison import CLAIMS, check_claims
from drawn_curves import FLAT, falling_to, run_with
from report_synthetic import LAYERS

PAPER = ("popqa", "triviaqa", "hotpotqa", "nq")
BACK, DOWN = falling_to(-60, last=-30), falling_to(-80, LAYERS - 1)
OPPOSED = (
    ("groups_apart", "q_above_a_late"),
    ("a_near_zero", "a_falls"),
    ("starts_at_zero", "starts_low"),
)


def four(q, **named):
    """A run on the paper's datasets, with one Q-Anchored curve for all but those that are named."""
    return run_with(
        {name: (named.get(name, q), FLAT) for name in PAPER}, parameters=10**9
    )


def verdicts(*runs):
    return {reading.claim: reading.verdict for reading in check_claims(runs)}


@pytest.mark.parametrize(
    ("q", "verdict"),
    [
        (BACK, {"recovers": "yes", "falls_on": "no"}),
        (DOWN, {"recovers": "no", "falls_on": "yes"}),
    ],
)
def test_the_end_of_a_curve(q, verdict):
    found = verdicts(run_with({"atlas": (q, FLAT)}))
    assert {name: found[name] for name in verdict} == verdict


def test_the_lowest_dataset_needs_all_four():
    low, high = falling_to(-70), falling_to(-40)
    found = verdicts(four(high, hotpotqa=low))
    assert [found[f"{name}_lowest"] for name in PAPER] == ["no", "no", "yes", "no"]
    three = run_with(
        {"popqa": (high, FLAT), "triviaqa": (high, FLAT), "hotpotqa": (low, FLAT)}
    )
    assert verdicts(three)["hotpotqa_lowest"] == "not measured"


def test_random_weights_have_no_say_and_records_are_json():
    noise = replace(four(BACK), random_weights=True)
    assert set(verdicts(noise).values()) == {"not measured"}
    records = [reading.record() for reading in check_claims([noise, four(DOWN)])]
    assert len({one["id"] for one in records}) == len(CLAIMS)
    json.dumps(records, allow_nan=False)


@settings(max_examples=25, deadline=None)
@given(st.floats(-90, 10), st.floats(-60, 10), st.floats(0.1, 20.0), st.integers(0, 5))
def test_claims_that_exclude_each_other_are_never_both_confirmed(q, a, noise, seed):
    found = verdicts(
        run_with(
            {"atlas": (falling_to(q), falling_to(a))}, noise=noise, seed=seed, draws=40
        )
    )
    for first, second in OPPOSED:
        assert {found[first], found[second]} != {"yes"}
