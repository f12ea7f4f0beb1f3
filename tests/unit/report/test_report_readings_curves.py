"""Readings of curves made by hand: each verdict follows the shape, and noise leaves it open."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anchorscope.report.findings import SAMPLE_SCHEMA
from drawn_curves import FLAT, falling_to, run_with
from report_readings import read
from report_synthetic import LAYERS, make_findings

LAST = LAYERS - 1
SHAPE_CLAIMS = {"trough_place", "recovery", "a_flat"}


def readings(findings):
    """By claim, those about the groups of the dataset."""
    return {
        o["claim"]: o
        for o in read(findings)
        if o["of_groups"] and o["dataset"] == "atlas"
    }


def verdicts(found):
    return {claim: one["verdict"] for claim, one in found.items()}


@given(place=st.integers(12, 17), depth=st.floats(-80, -40), end=st.floats(-10, -6))
@settings(deadline=None, max_examples=8)
def test_a_valley_is_read_as_one(place, depth, end):
    read_off = readings(
        run_with({"atlas": (falling_to(depth, place, end), FLAT)}, noise=0.1)
    )
    found = verdicts(read_off)
    for claim in SHAPE_CLAIMS:
        assert found[claim] == "yes", claim
    there = read_off["trough_place"]
    assert there["layer"] == place
    assert there["value"] == pytest.approx(place / LAST)
    assert f"layer {place} [{place}, {place}]" in there["text"]


def test_the_same_valley_under_heavy_noise_decides_nothing():
    found = verdicts(
        readings(run_with({"atlas": (falling_to(-12.0, last=-4.0), FLAT)}, noise=8.0))
    )
    assert {found[claim] for claim in SHAPE_CLAIMS} == {"inconclusive"}


def test_a_curve_that_only_falls_does_not_recover():
    found = readings(run_with({"atlas": (falling_to(-60, LAST), FLAT)}))
    assert found["trough_place"]["layer"] == LAST
    for claim in ("recovery", "trough_place"):
        assert found[claim]["verdict"] == "no", claim


def test_records_are_alike_and_unique():
    found = read(
        run_with(dict.fromkeys(("popqa", "nq"), (falling_to(-40, last=-10), FLAT)))
    )
    assert len({o["id"] for o in found}) == len(found)
    assert len({tuple(o) for o in found}) == 1
    assert {o["scope"] for o in found} == {"curve", "dataset"}
    assert {o["claim"] for o in found if o["scope"] == "curve"} == SHAPE_CLAIMS
    assert all(o["sentence"] in o["text"] and o["numbers"] in o["text"] for o in found)
    json.dumps(found, allow_nan=False)


def test_without_draws_the_shape_is_undecided_and_everything_else_is_read():
    findings = make_findings()
    assert findings.curve_samples.schema == SAMPLE_SCHEMA
    found = read(findings)
    shaped = [o for o in found if o["scope"] == "curve"]
    assert {o["verdict"] for o in shaped} == {"not measured"}
    assert all(o["value"] is None and "not available" in o["text"] for o in shaped)
    assert any(o["verdict"] == "yes" for o in found)
