"""Readings of the parts in worlds whose answer is known: no match, a control that fails, too few answers."""

import numpy as np
import pytest

from anchorscope.report.answer_card import answer_card
from anchorscope.report.charts.evidence_parts import EvidencePartsChart, PartBars
from anchorscope.report.shares import PARTS, band_numbers, has_shares, share_at, why_silent
from anchorscope.report.statements.all_statements import read
from report_shares import LAYER, World, run_with_shares

GOOD = World(random=0.05, half=0.03)
NULL = World(together=0.0, question=0.0, answer=0.9, random=0.0, half=0.03)


def readings(*worlds, datasets=("atlas",), dataset="atlas"):
    found = read(run_with_shares(*worlds, datasets=datasets))
    return {one["claim"]: one for one in found if (one["dataset"], one["assignment"]) == (dataset, None)}


def card(*worlds, datasets=("atlas",)):
    findings = run_with_shares(*worlds, datasets=datasets)
    return answer_card(findings, read(findings))


def test_a_clear_match_holds_with_its_number_and_its_p_value():
    found = readings(World())
    needed = found["needs_both"]
    assert (needed["verdict"], needed["standing"], needed["unit"]) == ("holds", "tested", "share of the evidence")
    assert (needed["value"], needed["layer"], needed["n"]) == (pytest.approx(0.3), LAYER, 360)
    assert "0.30 [0.24, 0.36] over layers 15–19" in needed["text"]
    assert needed["p_corrected"] >= needed["p_value"]
    assert found["share_beyond_random"]["verdict"] == "holds"


def test_a_world_without_a_match_is_said_to_have_none():
    found = readings(NULL)
    assert found["needs_both"]["verdict"] == "does not hold"
    assert found["share_beyond_random"]["verdict"] == "does not hold"


@pytest.mark.parametrize(
    ("world", "claim"),
    [
        (World(random=0.30), "share_random_small"),
        (World(moved=0.5), "displacement_matched"),
        (World(floor=0.30), "share_floor_small"),
        (World(permuted=0.25), "share_permuted_zero"),
        (World(random_weights=0.40), "share_random_weights"),
    ],
)
def test_each_control_can_fail_and_only_where_it_does(world, claim):
    assert readings(World(random=0.05, random_weights=0.02, half=0.03))[claim]["verdict"] == "holds"
    assert readings(world)[claim]["verdict"] == "does not hold"


def test_no_tick_stands_beside_a_failed_control_of_the_same_number():
    good, bad = card(GOOD), card(World(random=0.30))
    assert [tile.verdict for tile in good.tiles[1:3]] == ["holds", "holds"]
    assert [tile.verdict for tile in bad.tiles[1:3]] == ["does not hold", "does not hold"]
    assert "a control does not hold" in bad.sentence
    assert "a control does not hold" not in good.sentence


def test_the_sentence_names_all_parts_and_the_control():
    sentence = card(GOOD).sentence
    assert "30\u00a0% [27, 33] needs question and answer together" in sentence
    assert "the question alone carries 12\u00a0%, the answer alone 48\u00a0%, either of them 10\u00a0%" in sentence
    assert "42\u00a0% needs the question's key words, 5\u00a0% needs random words" in sentence


@pytest.mark.parametrize(
    ("world", "reason"),
    [
        (World(n=299), "299 used answers, 300 are needed"),
        (World(groups=19), "19 used groups, 20 are needed"),
        (World(probe=0.51), "the probe reads truth no better than one of permuted labels"),
        (World(together=1.3, answer=-0.3), "too little evidence to divide"),
        (World(half=0.6), "too little evidence to divide"),
    ],
)
def test_too_little_gives_a_reason_and_no_share(world, reason):
    findings = run_with_shares(world)
    assert reason in (why_silent(findings, "atlas") or "")
    sentence = answer_card(findings, read(findings)).sentence
    assert reason in sentence
    assert "%" not in sentence
    assert {one["verdict"] for one in read(findings) if one["claim"] == "needs_both"} <= {"undecided"}


def test_one_silent_dataset_does_not_silence_the_other():
    sentence = card(World(), World(n=120), datasets=("popqa", "nq")).sentence
    assert "30\u00a0%" in sentence
    assert "120 used answers" in sentence


def test_charts_draw_the_parts_as_they_are():
    findings = run_with_shares(World(), World(together=0.5, answer=-0.05), datasets=("popqa", "nq"))
    chart, bars = EvidencePartsChart.from_findings(findings), PartBars.from_runs([findings])
    assert bars is not None
    assert len([axes for axes in chart.plot().axes if axes.get_title()]) == 2
    assert set(bars.data["part"]) == set(PARTS)
    assert bars.data["share"].min() == pytest.approx(-0.05)
    (axes,) = bars.plot().axes
    assert min(patch.get_x() + min(0, patch.get_width()) for patch in axes.patches) == pytest.approx(-0.05)
    assert band_numbers(findings, "popqa") == [15, 16, 17, 18, 19]


def test_a_run_without_parts_has_no_chart():
    findings = run_with_shares(World(n=100))
    assert not has_shares(findings)
    assert PartBars.from_runs([findings]) is None
    assert share_at(findings, "atlas") is None


def test_a_layer_without_evidence_is_left_blank():
    findings = run_with_shares(World())
    chart = EvidencePartsChart.from_findings(findings)
    wide = chart._of_layers(chart.data.with_columns(ci_high=chart.data["share"] + 2), "knockout", "together")
    assert np.isnan(wide).all()
