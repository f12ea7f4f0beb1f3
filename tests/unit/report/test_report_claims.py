"""The claims of earlier readings on curves whose answer is known, and on runs that cannot answer."""

import json
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anchorscope.report.earlier_readings.claim import NO_DRAWS, RANDOM_WEIGHTS, TOO_FEW, TOO_WIDE, Condition
from anchorscope.report.earlier_readings.claims import CLAIMS, READINGS
from anchorscope.report.earlier_readings.judging import claims_records, claims_table, judge
from anchorscope.report.verdicts import MIN_RECOVERY, MIN_TROUGH
from anchorscope.stats.curves import FLAT as FLAT_CURVE
from anchorscope.stats.estimate import Estimate
from claims_synthetic import BACK, DEPTH, DOWN, FLAT, LAYERS, LOW, PAPER, falling_to, four, judged, run_with, verdicts
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


def test_a_claim_of_two_conditions_tells_the_number_that_it_is_about():
    def record(claim, q):
        found = claims_records([judged(claim, run_with({"atlas": (q, FLAT)}))])
        return found[0]

    down = record("falls_on", DOWN)
    assert (down["value"], down["unit"], down["verdict"]) == (pytest.approx(-40), "points", "holds")
    low = record("stays_low", LOW)
    assert low["numbers"].startswith("Atlas: level from 30\u00a0% [")
    assert (low["value"], low["unit"], low["verdict"]) == (pytest.approx(9 / 30), "share of the depth", "holds")
    back = record("stays_low", BACK)
    assert (back["value"], back["unit"], back["verdict"]) == (pytest.approx(30), "points", "does not hold")


@pytest.mark.parametrize("groups", [1, 9, 10])
def test_a_handful_of_items_decides_nothing(groups):
    run = run_with(dict.fromkeys(PAPER, (BACK, FLAT)), noise=0.0)
    few = pl.col("group") == "Q-Anchored"
    counted = run.curves.with_columns(pl.when(few).then(groups).otherwise("n_groups").alias("n_groups"))
    found = {one.claim.id: one.plain for one in judge([replace(run, curves=counted)])}  # all of them: none may break
    assert found["a_near_zero"].verdict == "holds"
    enough = groups >= 10
    assert found["recovers"].verdict == ("holds" if enough else "undecided")
    assert found["groups_apart"].verdict == ("holds" if enough else "undecided")
    assert (TOO_FEW in found["recovers"].reason) != enough


@pytest.mark.parametrize("layers", [16, 28, 64])
def test_a_layer_at_exactly_a_third_belongs_to_the_middle(layers):
    q = falling_to(-60, 1 / 3, -30, layers)
    found = judged("trough_in_the_middle", run_with({"atlas": (q, np.zeros(layers))}, noise=0.01))
    assert found.plain.found.value == pytest.approx(1 / 3)
    assert found.plain.verdict == "holds"


def test_a_word_means_what_it_means_in_the_readings():
    """A curve that comes back by 7 points comes back, and one that falls by 7 from the middle on falls."""
    for claim, last in (("recovers", -53), ("falls_on", -67)):
        run = run_with({"atlas": (falling_to(-60, 0.5, last), FLAT)}, noise=0.1)
        assert judged(claim, run).plain.verdict == "holds"
    texts = {claim.id: claim.text for claim in CLAIMS}
    assert f"more than {MIN_RECOVERY:.0f} points" in texts["recovers"]
    assert f"within {FLAT_CURVE:.0f} points" in texts["stays_low"]
    assert f"less than {MIN_RECOVERY:.0f}" in texts["stays_low"]
    assert f"more than {MIN_TROUGH:.0f} points" in texts["falls_on"]


def test_a_rise_within_what_the_eye_sees_is_undecided_where_the_noise_is_large():
    q = falling_to(-60, 0.5, -45)
    assert judged("recovers", run_with({"atlas": (q, FLAT)})).plain.verdict == "holds"
    noisy = judged("recovers", run_with({"atlas": (q, FLAT)}, noise=4.0)).plain
    assert (noisy.verdict, noisy.reason) == ("undecided", TOO_WIDE)
    assert "[" in noisy.sentence
    assert noisy.sentence.endswith(f"{TOO_WIDE}.")


@pytest.mark.parametrize(
    ("a", "near", "falls"),
    [
        (FLAT + 4, "holds", "does not hold"),
        (falling_to(-40, 0.3), "does not hold", "holds"),
        (falling_to(-15, 0.3), "does not hold", "does not hold"),
    ],
)
def test_the_a_anchored_curve_is_flat_or_falls(a, near, falls):
    found = verdicts(run_with({"atlas": (LOW, a)}))
    assert (found["a_near_zero"], found["a_falls"]) == (near, falls)


@pytest.mark.parametrize(
    ("start", "zero", "low"),
    [
        (0, "holds", "does not hold"),
        (-15, "does not hold", "holds"),
        (-30, "does not hold", "does not hold"),
        (-7, "does not hold", "does not hold"),
        (-10, "does not hold", "undecided"),
        (5, "undecided", "does not hold"),
    ],
)
def test_where_the_curve_begins(start, zero, low):
    found = verdicts(run_with({"atlas": (LOW + start, FLAT)}))
    assert (found["starts_at_zero"], found["starts_low"]) == (zero, low)


def test_the_groups_apart_or_the_other_way_round():
    found = verdicts(run_with({"atlas": (LOW, FLAT)}))
    assert (found["groups_apart"], found["q_above_a_late"]) == ("holds", "does not hold")
    found = verdicts(run_with({"atlas": (FLAT, LOW)}))
    assert (found["groups_apart"], found["q_above_a_late"]) == ("does not hold", "holds")
    crossing = np.where(DEPTH > 0.9, 3.0, LOW)  # apart nearly everywhere is not everywhere
    found = verdicts(run_with({"atlas": (crossing, FLAT)}))
    assert (found["groups_apart"], found["q_above_a_late"]) == ("does not hold", "does not hold")
    assert verdicts(run_with({"atlas": (FLAT, FLAT)}))["groups_apart"] == "undecided"


def test_when_and_where_the_curve_falls():
    found = verdicts(run_with({"atlas": (LOW, FLAT)}))
    assert (found["falls_early"], found["trough_in_the_middle"]) == ("holds", "undecided")  # level from there on
    found = verdicts(run_with({"atlas": (BACK, FLAT)}))
    assert (found["falls_early"], found["trough_in_the_middle"]) == ("holds", "holds")
    found = verdicts(run_with({"atlas": (DOWN, FLAT)}))
    assert (found["falls_early"], found["trough_in_the_middle"]) == ("does not hold", "does not hold")


def test_one_curve_is_enough_against_a_claim_and_its_number_is_shown():
    run = run_with({"popqa": (BACK, FLAT), "triviaqa": (DOWN, FLAT), "hotpotqa": (BACK, FLAT)})
    found = judged("recovers", run).plain
    assert found.verdict == "does not hold"
    assert [part.verdict for part in found.parts] == ["holds", "does not hold", "holds"]
    assert found.sentence.startswith("Holds for 2 of 3, does not hold for 1; TriviaQA: back by 0.0")
    assert found.found == found.parts[1].found


def test_the_lowest_dataset_needs_all_four_to_be_borne_out_and_one_to_be_refuted():
    asked = [f"{name}_lowest" for name in PAPER]
    curves = {name: (LOW - 10 * place, FLAT) for place, name in enumerate(PAPER)}
    found = verdicts(run_with(curves), only=asked)
    assert list(found.values()) == ["does not hold"] * 3 + ["holds"]
    two = run_with({name: curves[name] for name in ("popqa", "nq")})
    assert judged("nq_lowest", two).plain.verdict == "undecided"
    assert judged("nq_lowest", two).plain.reason == "needs TriviaQA and HotpotQA too"
    assert judged("popqa_lowest", two).plain.verdict == "does not hold"
    assert judged("hotpotqa_lowest", two).plain.reason == "needs HotpotQA and another of the paper's datasets"
    alone = run_with({"nq": curves["nq"], "atlas": curves["popqa"]})
    assert judged("nq_lowest", alone).plain.reason == "needs NQ and another of the paper's datasets"
    assert verdicts(four(LOW), only=asked) == dict.fromkeys(asked, "undecided")


def test_datasets_side_by_side():
    asked = ("datasets_similar", "order_kept", "datasets_converge", "anchoring_over_dataset")
    apart = {name: LOW * factor for name, factor in zip(PAPER, (1, 0.85, 0.7, 0.55), strict=True)}
    found = verdicts(four(apart), only=asked)
    assert found["datasets_similar"] == "holds"  # 27 points
    assert found["order_kept"] == "holds"
    assert found["datasets_converge"] == "undecided"
    assert found["anchoring_over_dataset"] == "holds"
    assert verdicts(four(apart | {"nq": LOW * 0.4}), only=asked)["datasets_similar"] == "does not hold"  # 36 points
    crossing = apart | {"nq": np.where(DEPTH > 0.8, -75.0, LOW * 0.55)}
    assert verdicts(four(crossing), only=asked)["order_kept"] == "does not hold"
    meeting = {
        name: np.interp(DEPTH, [0, 0.5, 1], [0, depth, -80])
        for name, depth in zip(PAPER, (-20, -30, -40, -50), strict=True)
    }
    assert verdicts(four(meeting), only=asked)["datasets_converge"] == "holds"
    fanning = {name: falling_to(depth, 1.0) for name, depth in zip(PAPER, (-2, -6, -10, -80), strict=True)}
    found = verdicts(four(fanning), only=asked)
    assert (found["datasets_converge"], found["anchoring_over_dataset"]) == ("does not hold", "does not hold")


def test_equal_datasets_have_no_order_and_converge_nowhere():
    found = verdicts(four(LOW))
    assert (found["order_kept"], found["datasets_similar"]) == ("undecided", "holds")
    assert found["datasets_converge"] != "holds"


def test_the_most_jagged_dataset():
    jagged = LOW + 8 * (-1.0) ** np.arange(LAYERS)
    for name, verdict in (("nq", "holds"), ("popqa", "does not hold")):
        assert judged("nq_most_volatile", four(dict.fromkeys(PAPER, LOW) | {name: jagged})).plain.verdict == verdict


def test_random_weights_are_no_evidence():
    noise = replace(four(BACK), random_weights=True)
    for one in judge([noise]):
        assert (one.plain.verdict, one.plain.reason, one.plain.found) == ("undecided", RANDOM_WEIGHTS, None)
    real = run_with({"atlas": (BACK, FLAT)}, model="real")
    assert verdicts(noise, real) == verdicts(real)
    assert all(one.runs == (real,) for one in judge([noise, real]))


def test_the_corrected_verdict_comes_from_the_corrected_curves():
    run = run_with({"atlas": (BACK, FLAT)}, corrected={"atlas": (DOWN, FLAT)})
    found = judged("recovers", run)
    assert (found.plain.verdict, found.corrected.verdict) == ("holds", "does not hold")


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


@pytest.mark.parametrize("layers", [1, 2, 3])
def test_models_of_few_layers(layers):
    run = four({name: np.linspace(-1, -30, layers) for name in PAPER}, np.zeros(layers))
    assert len(claims_records(judge([run, replace(run, parameters=1)]))) == 2 * len(CLAIMS)


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
