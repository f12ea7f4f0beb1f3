"""The claims of earlier readings on curves whose answer is known, and on runs that cannot answer."""

import json
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anchorscope.report.earlier_readings.claim import NO_DRAWS, RANDOM_WEIGHTS, TOO_FEW, Condition
from anchorscope.report.earlier_readings.claims import CLAIMS, READINGS
from anchorscope.report.earlier_readings.judging import claims_records, claims_table, judge
from anchorscope.stats.estimate import Estimate
from claims_synthetic import BACK, DOWN, FLAT, LOW, PAPER, falling_to, four, judged, run_with, verdicts
from repo import DOCS


def test_the_list_is_in_order():
    ids = [claim.id for claim in CLAIMS]
    by_id = {claim.id: claim for claim in CLAIMS}
    assert len(ids) == len(set(ids))
    assert 18 <= len(ids) <= 26
    for claim in CLAIMS:
        assert len(claim.text) <= 140
        assert claim.text.endswith(".")
        assert claim.says
        assert set(claim.says) | set(claim.against) <= set(READINGS)
        assert not set(claim.says) & set(claim.against)
        for other in claim.opposes:
            assert claim.id in by_id[other].opposes
    assert {reading for claim in CLAIMS for reading in claim.says} == set(READINGS)


@pytest.mark.parametrize(
    ("q", "shape"), [(BACK, "recovers"), (LOW, "stays_low"), (DOWN, "falls_on")], ids=["back", "low", "down"]
)
def test_the_end_of_a_curve_has_one_of_three_shapes(q, shape):
    found = verdicts(run_with({"atlas": (q, FLAT)}))
    assert {name for name in ("recovers", "stays_low", "falls_on") if found[name] == "holds"} == {shape}
    assert {found[name] for name in ("recovers", "stays_low", "falls_on")} == {"holds", "does not hold"}


def test_two_sizes():
    small = run_with({"atlas": (falling_to(-40, 0.5, -20), FLAT)}, noise=0.2, model="small", parameters=10**8)
    curves = falling_to(-50, 0.5, -20, 61), np.zeros(61)
    found = verdicts(run_with({"atlas": curves}, noise=0.2, model="big", parameters=10**9), small)
    assert found["larger_deeper"] == found["larger_longer_decline"] == "holds"
    assert found["larger_a_quarter_greater"] == "holds"  # 50 against 40
    assert found["larger_same_rate"] == "does not hold"  # 30 layers against 15


def test_random_weights_are_no_evidence():
    noise = replace(four(BACK), random_weights=True)
    for one in judge([noise]):
        assert (one.plain.verdict, one.plain.reason, one.plain.found) == ("undecided", RANDOM_WEIGHTS, None)
    real = run_with({"atlas": (BACK, FLAT)}, model="real")
    assert verdicts(noise, real) == verdicts(real)
    assert all(one.runs == (real,) for one in judge([noise, real]))


def test_without_draws_nothing_is_decided_and_nothing_breaks():
    run = four(BACK)
    none = replace(run, curve_samples=run.curve_samples.clear())
    few = replace(run, curve_samples=run.curve_samples.with_columns(pl.col("delta_p").list.head(11)))
    lost = replace(run, curve_samples=run.curve_samples.filter(pl.col("group") != "A-Anchored"))
    for broken in (none, few, lost):
        big = replace(broken, parameters=10**11)
        found = judge([broken, big])
        json.dumps(claims_records(found), allow_nan=False)
        assert len(claims_table(found).rows) == len(CLAIMS)
        if broken is not lost:
            assert {one.plain.verdict for one in found} == {"undecided"}
    assert judged("recovers", few).plain.reason == TOO_FEW
    assert judged("recovers", none).plain.reason == NO_DRAWS
    assert judged("recovers", lost).plain.verdict == "holds"  # it needs no A-Anchored curve
    assert judged("a_near_zero", lost).plain.reason == NO_DRAWS
    assert judged("anchoring_over_dataset", lost).plain.reason == NO_DRAWS


def test_records_and_table_say_the_same():
    run = run_with({"atlas": (BACK, FLAT)}, model="<b>m</b>")
    found = judge([run])
    records, table = claims_records(found), claims_table(found)
    assert len({record["id"] for record in records}) == len(records) == 2 * len(table.rows)
    for plain, row in zip(records[::2], table.rows, strict=True):
        assert (plain["verdict"], plain["assignment"]) == (row[3], "plain")
        assert row[5].rstrip(".").lower() in plain["text"].lower()
        assert f"({plain['numbers']})" in plain["text"]
        assert plain["text"].endswith(f"{plain['verdict']}.")
        assert plain["source"]
    (first,) = [one for one in records if one["id"] == "claim:recovers:plain"]
    assert first["value"] == pytest.approx(30)
    assert first["ci_low"] < 30 < first["ci_high"]
    assert (first["dataset"], first["model"], first["site"], first["position"]) == ("atlas", "<b>m</b>", "mlp", "final")
    assert first["source"] == ["reading 2 (Llama-3.2 1B and 3B)", "reading 4 (Qwen3 8B and 32B)"]
    assert first["sources_against"] == ["reading 3 (Llama-3.2 1B and 3B)", "reading 5 (Qwen3 8B and 32B)"]


@pytest.mark.parametrize(
    ("value", "low", "high", "verdict"),
    [
        (5, 4, 6, "holds"),
        (5, 2, 6, "undecided"),
        (1, 0, 2, "does not hold"),
        (11, 10, 12, "does not hold"),
        (5, float("nan"), 6, "undecided"),
        (1, 4, 6, "undecided"),
        (5, 1, 2, "undecided"),
    ],
)
def test_a_verdict_needs_value_and_interval_on_one_side(value, low, high, verdict):
    assert Condition(lambda: Estimate(value, low, high, 9, ""), "", 3, 10).judge().verdict == verdict


@settings(max_examples=15, deadline=None)
@given(
    corners=st.lists(st.lists(st.floats(-90, 20), min_size=5, max_size=5), min_size=8, max_size=8),
    noise=st.sampled_from([0.0, 0.3, 3.0]),
    away=st.sampled_from([0.0, 15.0]),
)
def test_opposite_claims_never_both_hold(corners, noise, away):
    # `away` moves the draws from the sample, as no bootstrap should: even then.
    lines = [np.interp(np.linspace(0, 4, 13), range(5), points) for points in corners]
    run = run_with({name: (lines[2 * i], lines[2 * i + 1]) for i, name in enumerate(PAPER)}, noise=noise, draws=60)
    if away:
        moved = pl.concat_list(
            pl.col("delta_p").list.head(1), pl.col("delta_p").list.tail(60).list.eval(pl.element() + away)
        )
        run = replace(run, curve_samples=run.curve_samples.with_columns(moved))
    opposed = [claim for claim in CLAIMS if claim.opposes]
    found = verdicts(run, only=[claim.id for claim in opposed])
    for claim in opposed:
        if found[claim.id] == "holds":
            assert "holds" not in {found[other] for other in claim.opposes}, claim.id


def test_the_docs_list_every_claim_with_its_sources():
    page = (DOCS / "earlier-readings.md").read_text(encoding="utf-8")
    told = [tuple(line.strip("| ").split(" | ")) for line in page.splitlines() if line.count("|") == 4]
    wanted = [
        (claim.text, *(", ".join(map(str, names)) or "–" for names in (claim.says, claim.against))) for claim in CLAIMS
    ]
    assert told[2 : 2 + len(CLAIMS)] == wanted
