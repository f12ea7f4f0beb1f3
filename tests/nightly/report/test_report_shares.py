"""Readings of the parts in worlds whose answer is known: no match, a control that fails, too few answers."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from anchorscope.report import checks
from anchorscope.report.answer_card import answer_card
from anchorscope.report.charts import EVIDENCE_PARTS, shares_of_layers
from anchorscope.report.findings import PARTS, band_numbers, nested_auc, why_silent
from anchorscope.report.wording import estimate
from report_readings import read
from report_shares import LAYER, World, run_with_shares

NULL = World(together=0.0, question=0.0, answer=0.9, random=0.0, half=0.03)


def readings(*worlds, datasets=("atlas",), dataset="atlas"):
    found = read(run_with_shares(*worlds, datasets=datasets))
    return {
        one["claim"]: one
        for one in found
        if one["dataset"] == dataset and not one["of_groups"]
    }


def card(*worlds, datasets=("atlas",)):
    findings = run_with_shares(*worlds, datasets=datasets)
    return answer_card(findings, checks.read(findings))


def test_a_clear_match_holds_with_its_number_and_its_p_value():
    found = readings(World())
    needed = found["needs_both"]
    assert (needed["verdict"], needed["standing"], needed["unit"]) == (
        "yes",
        "tested",
        "share of the evidence",
    )
    assert (needed["value"], needed["layer"], needed["n"]) == (
        pytest.approx(0.3),
        LAYER,
        360,
    )
    assert "0.30 [0.24, 0.36] over layers 15–19" in needed["text"]
    assert needed["p_corrected"] >= needed["p_value"]
    assert found["share_beyond_random"]["verdict"] == "yes"


def test_a_world_without_a_match_is_said_to_have_none():
    found = readings(NULL)
    assert found["needs_both"]["verdict"] == "no"
    assert found["share_beyond_random"]["verdict"] == "no"


@pytest.mark.parametrize(
    ("world", "claim"),
    [
        (World(random=0.30), "share_random_small"),
        (World(moved=0.5), "displacement_matched"),
        (World(floor=0.30), "share_floor_small"),
        (World(permuted=0.25), "share_permuted_zero"),
        (World(random_weights=0.40), "share_random_weights"),
        (World(paraphrase=0.40), "share_paraphrase_small"),
        (World(resample=0.05), "share_resample_holds"),
    ],
)
def test_each_control_can_fail_and_only_where_it_does(world, claim):
    good = World(
        random=0.05, random_weights=0.02, paraphrase=0.02, resample=0.40, half=0.03
    )
    assert readings(good)[claim]["verdict"] == "yes"
    assert readings(world)[claim]["verdict"] == "no"


@pytest.mark.parametrize(
    ("world", "reason"),
    [
        (World(n=299), "299 used answers, 300 are needed"),
        (World(groups=19), "19 used groups, 20 are needed"),
        (
            World(probe=0.51),
            "the probe reads truth no better than one of permuted labels",
        ),
        (World(together=1.3, answer=-0.3), "too little evidence to divide"),
        (World(half=0.6), "too little evidence to divide"),
    ],
)
def test_too_little_gives_a_reason_and_no_share(world, reason):
    findings = run_with_shares(world)
    assert reason in (why_silent(findings, "atlas") or "")
    sentence = answer_card(findings, checks.read(findings)).sentence
    assert reason in sentence
    assert "%" not in sentence
    assert {
        one["verdict"] for one in read(findings) if one["claim"] == "needs_both"
    } <= {"not measured"}


def test_one_silent_dataset_does_not_silence_the_other():
    sentence = card(World(), World(n=120), datasets=("popqa", "nq")).sentence
    assert "30% (95% CI 24–36) of the probe's evidence (PopQA)" in sentence
    assert "120 used answers" in sentence


def test_charts_draw_the_parts_as_they_are():
    findings = run_with_shares(
        World(), World(together=0.5, answer=-0.05), datasets=("popqa", "nq")
    )
    chart = EVIDENCE_PARTS.from_findings(findings)
    assert len([axes for axes in chart.plot().axes if axes.get_title()]) == 2
    bars = card(
        World(), World(together=0.5, answer=-0.05), datasets=("popqa", "nq")
    ).bars
    assert [(bar.label, bar.control) for bar in bars[::2]] == [
        ("PopQA", False),
        ("NQ", False),
    ]
    assert all(list(bar.parts) == list(PARTS) for bar in bars)
    assert bars[2].parts["answer"] == pytest.approx(-0.05)
    assert band_numbers(findings, "popqa") == [15, 16, 17, 18, 19]


def test_a_layer_without_evidence_is_left_blank():
    findings = run_with_shares(World())
    data = EVIDENCE_PARTS.from_findings(findings).data
    wide = shares_of_layers(
        data.with_columns(ci_high=data["share"] + 2), "knockout", "together", 30
    )
    assert np.isnan(wide).all()


def test_better_than_every_probe_that_sees_less_needs_all_of_them():
    findings = run_with_shares(World())
    tests = findings.evidence_tests
    other = (pl.col("quantity") == "auc") & (pl.col("group") != "probe")
    numbers = {"value": 0.55, "ci_low": 0.52, "ci_high": 0.58}
    low = tests.with_columns(
        pl.when(other).then(value).otherwise(name).alias(name)
        for name, value in numbers.items()
    )

    def reading(rows):
        found = read(replace(findings, evidence_tests=rows))
        return next(one for one in found if one["claim"] == "auc_above_nulls")

    def verdict(rows):
        return reading(rows)["verdict"]

    card, said = nested_auc(findings, "atlas"), reading(low)["text"]
    assert card is not None
    assert f"in half splits (the card's {estimate(card)}: at each" in said
    assert f"(AUC {estimate(card)} " not in said, "two numbers"
    assert verdict(low) == "yes"
    assert (
        verdict(low.filter(pl.col("group").fill_null("") != "answer only"))
        == "inconclusive"
    )
    wide = low.with_columns(
        ci_high=pl.when(pl.col("group") == "answer only")
        .then(0.95)
        .otherwise("ci_high")
    )
    assert verdict(wide) == "inconclusive"
