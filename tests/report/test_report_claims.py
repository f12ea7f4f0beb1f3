"""The claims of earlier readings on curves whose answer is known, and on runs that cannot answer."""

import json
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from claims_synthetic import DEPTH, FLAT, LAYERS, falling_to, run_with
from hypothesis import given, settings
from hypothesis import strategies as st

from anchorscope.report.claims import CLAIMS, claims_records, claims_table, judge
from anchorscope.report.claims.claim import NO_DRAWS, NOT_DEFINED, RANDOM_WEIGHTS, TOO_FEW, TOO_WIDE, decide
from anchorscope.report.claims.of_sizes import SHARED_NEEDED, TWO_SHARED_NEEDED, TWO_SIZES_NEEDED
from anchorscope.report.claims.sources import READINGS
from anchorscope.stats.estimate import Estimate

PAPER = ("popqa", "triviaqa", "hotpotqa", "nq")
BACK = falling_to(-60, 0.5, -30)
LOW = falling_to(-60, 0.3)
DOWN = falling_to(-80, 1.0)


def verdicts(*runs, rule="plain"):
    return {one.claim.id: getattr(one, rule).verdict for one in judge(runs)}


def judged(claim, *runs):
    (found,) = [one for one in judge(runs) if one.claim.id == claim]
    return found


def four(q, a=FLAT, **options):
    return run_with({name: (q[name] if isinstance(q, dict) else q, a) for name in PAPER}, **options)


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


def test_a_rise_within_what_the_eye_sees_is_undecided_where_the_noise_is_large():
    q = falling_to(-60, 0.5, -45)
    assert judged("recovers", run_with({"atlas": (q, FLAT)})).plain.verdict == "holds"
    noisy = judged("recovers", run_with({"atlas": (q, FLAT)}, noise=4.0)).plain
    assert (noisy.verdict, noisy.reason) == ("undecided", TOO_WIDE)
    assert "[" in noisy.sentence
    assert noisy.sentence.endswith(f"{TOO_WIDE}.")


@pytest.mark.parametrize(
    ("a", "near", "falls"),
    [(FLAT + 4, "holds", "does not hold"), (falling_to(-40, 0.3), "does not hold", "holds"),
     (falling_to(-15, 0.3), "does not hold", "does not hold")],
)  # fmt: skip
def test_the_a_anchored_curve_is_flat_or_falls(a, near, falls):
    found = verdicts(run_with({"atlas": (LOW, a)}))
    assert (found["a_near_zero"], found["a_falls"]) == (near, falls)


@pytest.mark.parametrize(
    ("start", "zero", "low"),
    [(0, "holds", "does not hold"), (-15, "does not hold", "holds"), (-30, "does not hold", "does not hold"),
     (-7, "does not hold", "does not hold"), (-10, "does not hold", "undecided"), (5, "undecided", "does not hold")],
)  # fmt: skip
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
    curves = {name: (LOW - 10 * place, FLAT) for place, name in enumerate(PAPER)}
    found = verdicts(run_with(curves))
    assert [found[f"{name}_lowest"] for name in PAPER] == ["does not hold"] * 3 + ["holds"]
    two = run_with({name: curves[name] for name in ("popqa", "nq")})
    assert judged("nq_lowest", two).plain.verdict == "undecided"
    assert judged("nq_lowest", two).plain.reason == "needs TriviaQA and HotpotQA too"
    assert verdicts(two)["popqa_lowest"] == "does not hold"
    assert judged("hotpotqa_lowest", two).plain.reason == "needs HotpotQA and another of the paper's datasets"
    alone = run_with({"nq": curves["nq"], "atlas": curves["popqa"]})
    assert judged("nq_lowest", alone).plain.reason == "needs NQ and another of the paper's datasets"
    assert set(verdicts(four(LOW)).items()) >= {(f"{name}_lowest", "undecided") for name in PAPER}


def test_datasets_side_by_side():
    apart = {name: LOW * factor for name, factor in zip(PAPER, (1, 0.85, 0.7, 0.55), strict=True)}
    found = verdicts(four(apart))
    assert found["datasets_similar"] == "holds"  # 27 points
    assert found["order_kept"] == "holds"
    assert found["datasets_converge"] == "undecided"
    assert found["anchoring_over_dataset"] == "holds"
    assert verdicts(four(apart | {"nq": LOW * 0.4}))["datasets_similar"] == "does not hold"  # 36 points
    crossing = apart | {"nq": np.where(DEPTH > 0.8, -75.0, LOW * 0.55)}
    assert verdicts(four(crossing))["order_kept"] == "does not hold"
    meeting = {name: np.interp(DEPTH, [0, 0.5, 1], [0, depth, -80]) for name, depth in
               zip(PAPER, (-20, -30, -40, -50), strict=True)}  # fmt: skip
    assert verdicts(four(meeting))["datasets_converge"] == "holds"
    fanning = {name: falling_to(depth, 1.0) for name, depth in zip(PAPER, (-2, -6, -10, -80), strict=True)}
    found = verdicts(four(fanning))
    assert (found["datasets_converge"], found["anchoring_over_dataset"]) == ("does not hold", "does not hold")


def test_equal_datasets_have_no_order_and_converge_nowhere():
    found = verdicts(four(LOW))
    assert (found["order_kept"], found["datasets_similar"]) == ("undecided", "holds")
    assert found["datasets_converge"] != "holds"


def test_the_most_jagged_dataset():
    jagged = LOW + 8 * (-1.0) ** np.arange(LAYERS)
    assert verdicts(four(dict.fromkeys(PAPER, LOW) | {"nq": jagged}))["nq_most_volatile"] == "holds"
    assert verdicts(four(dict.fromkeys(PAPER, LOW) | {"popqa": jagged}))["nq_most_volatile"] == "does not hold"


def test_two_sizes():
    small = run_with({"atlas": (falling_to(-40, 0.5, -20), FLAT)}, noise=0.2, model="small", parameters=10**8)
    curves = falling_to(-50, 0.5, -20, 61), np.zeros(61)
    big = run_with({"atlas": curves}, noise=0.2, model="big", parameters=10**9)
    found = verdicts(big, small)
    assert found["larger_deeper"] == "holds"
    assert found["larger_a_quarter_greater"] == "holds"  # 50 against 40
    assert found["larger_longer_decline"] == "holds"
    assert found["larger_same_rate"] == "does not hold"  # 30 layers against 15
    assert judged("larger_deeper", big, small).plain.sentence.startswith("Small (100\u00a0M) to big (1.0\u00a0B): the")
    turned = verdicts(replace(big, parameters=10**8), replace(small, parameters=10**9))
    assert [turned[f"larger_{name}"] for name in ("deeper", "a_quarter_greater", "longer_decline")] == [
        "does not hold"
    ] * 3
    assert judged("larger_tighter_end", big, small).plain.reason == TWO_SHARED_NEEDED


def test_two_sizes_with_several_datasets():
    wide = {name: LOW + 6 * place for place, name in enumerate(PAPER)}
    jagged = {name: LOW + place + 5 * (-1.0) ** np.arange(LAYERS) for place, name in enumerate(PAPER)}
    small, big = four(wide, parameters=10**8), four(jagged, parameters=10**9)
    found = verdicts(small, big)
    assert (found["larger_tighter_end"], found["larger_more_volatile"]) == ("holds", "holds")
    turned = verdicts(replace(big, parameters=1), small)
    assert (turned["larger_tighter_end"], turned["larger_more_volatile"]) == ("does not hold", "does not hold")
    same = verdicts(replace(big, parameters=1), big)
    assert (same["larger_tighter_end"], same["larger_more_volatile"]) == ("undecided", "undecided")


def test_what_cannot_be_compared_says_why():
    one = run_with({"atlas": (BACK, FLAT)})
    assert judged("larger_deeper", one).plain.reason == TWO_SIZES_NEEDED
    assert judged("larger_deeper", one, one).plain.reason == TWO_SIZES_NEEDED
    assert judged("larger_deeper", one, replace(one, parameters=0)).plain.reason == TWO_SIZES_NEEDED
    other = run_with({"popqa": (BACK, FLAT)}, parameters=10**10)
    assert judged("larger_deeper", one, other).plain.reason == SHARED_NEEDED
    assert judged("datasets_similar", one).plain.reason == "needs a run on several datasets"


def test_a_ratio_of_nothing_is_not_a_number():
    flat = run_with({"atlas": (FLAT, FLAT)}, parameters=10**8)
    found = judged("larger_a_quarter_greater", flat, replace(flat, parameters=10**9)).plain
    assert (found.verdict, found.reason, found.found) == ("undecided", NOT_DEFINED, None)
    assert "nan" not in found.sentence


def test_random_weights_are_no_evidence():
    noise = replace(four(BACK), random_weights=True)
    for one in judge([noise]):
        assert (one.plain.verdict, one.plain.reason, one.plain.found) == ("undecided", RANDOM_WEIGHTS, None)
    real = run_with({"atlas": (BACK, FLAT)}, model="real")
    assert verdicts(noise, real) == verdicts(real)
    assert {one.models for one in judge([noise, real])} == {("real",)}


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
        records = claims_records(judge([broken, big]))
        json.dumps(records, allow_nan=False)
        assert len(claims_table(judge([broken])).rows) == len(CLAIMS)
    assert set(verdicts(none).values()) == {"undecided"}
    assert set(verdicts(none, replace(none, parameters=1)).values()) == {"undecided"}
    assert set(verdicts(few).values()) == {"undecided"}
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
        assert row[5].rstrip(".") in plain["text"]
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
    [(5, 4, 6, "holds"), (5, 2, 6, "undecided"), (1, 0, 2, "does not hold"), (11, 10, 12, "does not hold"),
     (5, float("nan"), 6, "undecided"), (1, 4, 6, "undecided"), (5, 1, 2, "undecided")],
)  # fmt: skip
def test_a_verdict_needs_value_and_interval_on_one_side(value, low, high, verdict):
    assert decide(Estimate(value, low, high, 9, ""), "", over=3, under=10).verdict == verdict


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
        moved = pl.concat_list(pl.col("delta_p").list.head(1), pl.col("delta_p").list.tail(60).list.eval(
            pl.element() + away))  # fmt: skip
        run = replace(run, curve_samples=run.curve_samples.with_columns(moved))
    found = verdicts(run)
    for claim in CLAIMS:
        if found[claim.id] == "holds":
            assert "holds" not in {found[other] for other in claim.opposes}, claim.id
