"""Readings of the question share in worlds whose answer is known: no share, no difference, a control that fails."""

import math
from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from anchorscope.report.answer_card import NOT_MEASURED, answer_card
from anchorscope.report.charts.question_share import QuestionShareChart
from anchorscope.report.shares import has_shares, result_of, results_of, share_at, share_layer, truth_readers
from anchorscope.report.statements.all_statements import read
from anchorscope.report.statements.layer_band import band_of, layer_names, widening
from anchorscope.report.statements.share_statements import TESTED as QUESTIONS
from report_shares import GIVEN, LAYER, World, run_with_shares, share_frame, with_shares
from report_synthetic import LAYERS, make_findings

TESTED = [question.claim for question in QUESTIONS]
NULL = World(share=0.0, random=0.0, lower=0.0, upper=0.0, given=0.0, half=0.03)


def readings(*worlds, datasets=("atlas",), dataset="atlas"):
    found = read(run_with_shares(*worlds, datasets=datasets))
    return {one["claim"]: one for one in found if (one["dataset"], one["assignment"]) == (dataset, None)}


def answer(*worlds, datasets=("atlas",)):
    findings = run_with_shares(*worlds, datasets=datasets)
    card = answer_card(findings, read(findings))
    return " ".join([card.sentence, *(f"{tile.mark} {tile.figure} {tile.detail}" for tile in card.tiles)])


def test_a_clear_share_holds_with_its_number_and_its_p_values():
    found = readings(World())
    assert {found[claim]["verdict"] for claim in TESTED} == {"holds"}
    assert {found[claim]["standing"] for claim in TESTED} == {"tested"}
    needed = found["share_needed"]
    assert needed["value"] == pytest.approx(0.7, abs=0.01)
    assert (needed["layer"], needed["n"], needed["unit"]) == (LAYER, 360, "share of the evidence")
    assert "Λ 0.70 [0.62, 0.78] at layer 17; T = 17.4" in needed["text"]
    assert needed["p_corrected"] >= needed["p_value"]


def test_a_null_share_does_not_hold_and_the_page_says_so_first():
    found = readings(NULL)
    assert {found[claim]["verdict"] for claim in TESTED} == {"does not hold"}
    said = "Hardly any of the probe's evidence needs the question's key words: 0\u00a0% (random words: 0\u00a0%)"
    assert answer(NULL).startswith(said)


def test_a_wide_interval_decides_nothing_and_tells_how_many_items_would():
    wide = World(share=0.15, random=0.05, lower=0.1, upper=0.2, given=0.1, half=0.3)
    found = readings(wide)
    assert {found[claim]["verdict"] for claim in TESTED} == {"undecided"}
    assert "about 16\u202f000 items would give ±0.1" in found["items_differ"]["text"]  # (0.66 / 0.1)² times as many
    said = answer(wide)
    assert "needs the question's key words is undecided: 15\u00a0%" in said
    assert "whether items differ is undecided." in said
    assert "About 16\u202f000 items would narrow it to ±10 points." in said


def test_items_that_do_not_differ_are_told_apart_from_too_few_items():
    same = World(lower=0.69, upper=0.71, half=0.03)
    assert readings(same)["items_differ"]["verdict"] == "does not hold"
    assert "items do not differ in it" in answer(same)
    assert readings(replace(same, half=0.1))["items_differ"]["verdict"] == "undecided"
    assert readings(World())["items_differ"]["verdict"] == "holds"
    assert "items differ in it" in answer(World())
    assert "30\u00a0% in the lower third" in answer(World())


def test_a_share_that_random_words_take_too_is_no_finding():
    found = readings(World(random=0.70, half=0.05))
    assert found["share_needed"]["verdict"] == "holds"
    assert found["share_beyond_random"]["verdict"] == "does not hold"
    assert found["share_random_small"]["verdict"] == "does not hold"
    assert "– no more than any words take –" in answer(World(random=0.70, half=0.05))


@pytest.mark.parametrize(
    ("control", "value", "claim"),
    [
        ("random", 0.5, "share_random_small"),
        ("none", 0.3, "share_floor_small"),
        ("permuted", 0.6, "share_permuted_zero"),
        ("permuted", -0.6, "share_permuted_zero"),
    ],
)
def test_a_control_that_fails_at_one_layer_has_failed_and_the_layer_is_named(control, value, claim):
    world = World(random=0.03, half=0.03)
    good, bad = readings(world), readings(replace(world, spoilt={(control, 20): value}))
    assert (good[claim]["verdict"], good[claim]["failing_layers"]) == ("holds", [])
    assert (bad[claim]["verdict"], bad[claim]["failing_layers"], bad[claim]["layer"]) == ("does not hold", [20], 20)
    assert "at layer 20" in bad[claim]["text"]
    others = [one for one in good if one.startswith("share_") and one != claim and good[one]["standing"] == "control"]
    assert [bad[one]["verdict"] for one in others] == [good[one]["verdict"] for one in others]
    said = answer(replace(world, spoilt={(control, 20): value}))
    assert "✗ 1 of " in said
    assert "at layer 20." in said
    assert "✗" not in answer(world)


def test_a_random_cut_is_not_asked_where_there_is_no_share():
    early = readings(World(random=0.03, half=0.03, spoilt={("random", 0): 0.2}))  # the knockout takes nothing there
    assert early["share_random_small"]["verdict"] == "holds"


def test_one_interval_of_thirty_off_zero_is_chance_and_no_failure():
    just_off = World(half=0.08, spoilt={("permuted", 12): 0.085})  # its own interval leaves out zero
    assert readings(just_off)["share_permuted_zero"]["verdict"] == "undecided"


def test_random_weights_are_read_where_they_were_run():
    assert "share_random_weights" not in readings(World())
    assert readings(World(random_weights=0.01))["share_random_weights"]["verdict"] == "holds"
    assert readings(World(random_weights=0.6, half=0.03))["share_random_weights"]["verdict"] == "does not hold"


def test_the_shape_along_the_depth():
    found = readings(World(half=0.03))
    peak = found["share_peak"]
    assert (peak["verdict"], peak["layer"]) == ("holds", 18)
    assert peak["ci_low"] <= 18 <= peak["ci_high"]
    assert found["share_rises"]["verdict"] == found["share_falls"]["verdict"] == "holds"
    assert found["share_rises"]["value"] == pytest.approx(0.69, abs=0.02)
    flat = readings(replace(NULL, half=0.02))
    assert flat["share_rises"]["verdict"] == "does not hold"
    assert flat["share_peak"]["verdict"] == "undecided"


def test_p_values_are_corrected_over_all_datasets():
    one = readings(World(given=0.065, half=0.08))["share_given"]
    worlds = (World(given=0.065, half=0.08), World(given=0.065, half=0.08))
    two = readings(*worlds, datasets=("popqa", "nq"), dataset="popqa")["share_given"]
    assert one["p_value"] == two["p_value"]
    assert two["p_corrected"] > one["p_corrected"] > 0


def test_several_datasets_are_told_one_by_one():
    said = answer(World(), NULL, datasets=("popqa", "nq"))
    assert said.startswith("0\u00a0% to 70\u00a0% of the probe's evidence needs the question's key words")
    assert "surely some on PopQA, hardly any on NQ" in said
    assert "PopQA 70\u00a0% (random 8\u00a0%), NQ 0\u00a0% (random 0\u00a0%)" in said
    assert "items differ in it on PopQA, items do not differ in it, as far as states tell on NQ" in said


def test_of_several_sets_that_were_taken_out_the_widest_is_tested():
    findings = run_with_shares(World())
    row = findings.question_share_tests.filter(pl.col("quantity") == "share_given")
    narrow = row.with_columns(group=pl.lit("words"), value=pl.lit(0.65))
    findings = replace(findings, question_share_tests=pl.concat([narrow, findings.question_share_tests]))
    (found,) = [one for one in read(findings) if one["claim"] == "share_given"]
    assert GIVEN in found["text"]
    assert found["value"] == pytest.approx(0.52, abs=0.01)


def test_a_p_value_that_the_run_did_not_give_comes_from_the_interval():
    found = result_of(run_with_shares(World()), "atlas", "share_above_random")
    assert found is not None
    assert found.p_from_interval
    assert found.p_value < 1e-6
    half = (found.estimate.ci_high - found.estimate.ci_low) / 2
    edge = run_with_shares(World(share=half, random=0.0, half=half))
    assert result_of(edge, "atlas", "auc", "nobody") is None
    assert len(results_of(edge, "atlas", "share_by_feature")) == 2


def test_an_older_run_has_no_share_and_is_read_without():
    findings = make_findings(("atlas",))
    assert not has_shares(findings)
    assert share_at(findings, "atlas", LAYER) is None
    assert share_layer(findings, "atlas") == 15  # the middle one of the reference layers
    found = read(findings)
    assert not [one for one in found if one["standing"] == "tested"]
    assert answer_card(findings, found).sentence == NOT_MEASURED


def test_the_headline_place_is_read():
    findings = run_with_shares(World())
    other = findings.question_share.with_columns(site=pl.lit("attention"), share=pl.lit(0.1))
    both = replace(findings, question_share=pl.concat([other, findings.question_share]))
    found = share_at(both, "atlas", LAYER)
    assert found is not None
    assert found.value == pytest.approx(0.7, abs=0.01)


def test_layers_with_hardly_any_evidence_are_left_out():
    wild = pl.col("layer") < 2
    rows = share_frame("atlas", World()).filter((pl.col("intervention") == "knockout") & (pl.col("group") == "all"))
    rows = rows.filter(pl.col("truth") == "all").with_columns(
        share=pl.when(wild).then(3.0).otherwise("share"),
        ci_low=pl.when(wild).then(-8.0).otherwise("ci_low"),
        ci_high=pl.when(wild).then(14.0).otherwise("ci_high"),
    )
    band = band_of(rows)
    assert band is not None
    assert band.layers == tuple(range(2, LAYERS))
    assert band.peak.value == pytest.approx(0.7, abs=0.01)
    assert band_of(rows.filter(wild)) is None


def test_the_band_is_as_wide_as_so_many_layers_ask():
    assert widening(1) == pytest.approx(1.0)
    assert widening(30) == pytest.approx(3.144 / 1.960, abs=0.001)  # the normal quantile of 1 − 0.025 / 30
    rng = np.random.default_rng(3)
    noise = np.abs(rng.normal(size=(4000, 30)))
    assert (noise.max(axis=1) < 1.96 * widening(30)).mean() == pytest.approx(0.95, abs=0.015)


def test_half_way_may_be_nowhere_sure():
    band = band_of(
        share_frame("atlas", World(half=0.3)).filter(
            (pl.col("intervention") == "knockout") & (pl.col("group") == "all") & (pl.col("truth") == "all")
        )
    )
    assert band is not None
    assert band.half_way.value == 9
    assert math.isinf(band.half_way.ci_high)


def test_layers_are_named_in_runs():
    assert layer_names((4,)) == "layer 4"
    assert layer_names((20, 22, 21)) == "layers 20–22"
    assert layer_names((2, 5, 20, 21)) == "layers 2, 5 and 20–21"


def test_the_share_comes_before_the_rules_and_its_place_in_the_run_is_kept():
    found = read(with_shares(make_findings(("atlas",)), World()))
    assert [one["claim"] for one in found[:4]] == TESTED
    assert all(one["key"] for one in found[:4])


def test_what_reads_truth_without_understanding_stands_beside_the_probe():
    findings = run_with_shares(World())
    assert list(truth_readers(findings, "atlas"))[:2] == ["probe", "question only"]
    (found,) = [one for one in read(findings) if one["claim"] == "auc_above_nulls"]
    assert found["verdict"] == "undecided"
    assert "best of the others, words + confidence: 0.79 [0.76, 0.82]" in found["text"]
    bare = findings.question_share_tests.filter(pl.col("quantity") != "auc")  # a run without null experiments
    readers = truth_readers(replace(findings, question_share_tests=bare), "atlas")
    assert set(readers) <= {"probe", "words + confidence"}
    assert readers["probe"].ci_low < readers["probe"].value


def test_a_share_that_could_not_be_measured_is_said_to_be_so():
    findings = run_with_shares(World(), datasets=("popqa", "nq"))
    blank = pl.when((pl.col("dataset") == "nq") & (pl.col("layer") == LAYER)).then(None).otherwise("share")
    findings = replace(findings, question_share=findings.question_share.with_columns(share=blank))
    share = answer_card(findings, read(findings)).tiles[1]
    assert "PopQA 70\u00a0%" in share.detail
    assert "NQ could not be measured" in share.detail


def test_a_control_beyond_its_limit_is_named_even_where_that_is_not_sure():
    world = World(random=0.03, half=0.08, spoilt={("random", 20): 0.2})  # more than a quarter of 0.69, by little
    found = readings(world)["share_random_small"]
    assert (found["verdict"], found["failing_layers"], found["doubtful_layers"]) == ("undecided", [], [20])
    assert "? nothing surely; 2 of 5 controls undecided" in answer(world)
    assert "Undecided: random words and ΔP under random words (perhaps beyond" in answer(world)
    assert "(perhaps beyond their limit at layer 20)" in answer(world)
    assert "beyond their limit" not in answer(World(random=0.03, half=0.03))


def test_a_line_is_broken_where_a_layer_has_no_share():
    findings = run_with_shares(World())
    blank = pl.when(pl.col("layer").is_in([12, 14])).then(None).otherwise("share")
    chart = QuestionShareChart.from_findings(
        replace(findings, question_share=findings.question_share.with_columns(share=blank))
    )
    assert not {12, 14} & set(chart.data["layer"])
    whole, thirds = chart.plot().axes
    for axes in (whole, thirds):
        drawn = [np.asarray(line.get_ydata(), dtype=float) for line in axes.lines if len(line.get_xdata()) == LAYERS]
        assert drawn
        assert all(np.isnan(values[12]) and np.isfinite(values[11]) for values in drawn)
        dots = [line for line in axes.lines if list(line.get_xdata()) == [13] and line.get_marker() == "."]
        assert len(dots) == len(drawn)  # a layer alone between two gaps can be seen


def test_the_figure_draws_its_table_on_one_axis():
    chart = QuestionShareChart.from_findings(run_with_shares(World(), datasets=("popqa", "nq", "triviaqa")))
    figure = chart.plot()
    titles = [axes.get_title() for axes in figure.axes]
    assert titles == ["all items, with controls", "thirds of the items, held out"]
    assert len({axes.get_ylim() for axes in figure.axes}) == 1
    first = [np.asarray(line.get_ydata(), float) for line in figure.axes[0].lines if len(line.get_xdata()) == LAYERS]
    mine = chart.data.filter(pl.col("group") == "all")
    series = [rows.sort("layer")["share"].to_numpy() for _, rows in mine.group_by("dataset", "intervention")]
    assert len(first) == len(series) == 3 * 4
    for values in series:
        assert any(np.allclose(values, line) for line in first)
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    wanted = {"Key words cut (PopQA)", "Random words cut", "Upper third (NQ)", "Lower third (TriviaQA)"}
    assert {*wanted, "layer that is tested", "quoted in the text"} <= set(labels)
    rings = [line for line in figure.axes[0].lines if line.get_marker() == "o" and len(line.get_xdata()) == 1]
    at = {(int(ring.get_xdata()[0]), float(ring.get_ydata()[0])) for ring in rings}
    quoted = mine.filter((pl.col("intervention") == "knockout") & (pl.col("layer") == 17))["share"]
    assert at == {(17, value) for value in quoted}, "the points lie on the lines"


def test_a_control_that_was_not_measured_or_is_undecided_is_no_pass():
    findings = run_with_shares(World(random=0.03, half=0.03))
    bare = replace(
        findings,
        question_share=findings.question_share.filter(pl.col("intervention") == "knockout"),
        curves=findings.curves.clear(),
        summary=findings.summary.clear(),
    )
    tile = answer_card(bare, read(bare)).tiles[3]
    assert tile.verdict == "undecided"
    assert "Not measured:" in tile.detail


def test_a_random_cut_that_gives_a_share_back_fails_too():
    assert readings(World(random=-0.4, half=0.03))["share_random_small"]["verdict"] == "does not hold"
    below = World(random=0.03, half=0.03, floor=-0.3)
    assert readings(below)["share_floor_small"]["verdict"] == "does not hold"


def test_items_that_differ_the_wrong_way_round_are_not_alike():
    assert readings(World(lower=0.95, upper=0.3, half=0.05))["items_differ"]["verdict"] == "undecided"


def test_any_words_are_named_where_they_take_as_much():
    said = answer(World(), World(share=0.4, random=0.42, half=0.03), datasets=("popqa", "nq"))
    assert "– no more than any words take on NQ –" in said


def test_better_than_every_probe_that_sees_less_needs_all_of_them():
    findings = run_with_shares(World())
    tests = findings.question_share_tests
    other = (pl.col("quantity") == "auc") & (pl.col("group") != "probe")
    numbers = {"value": 0.55, "ci_low": 0.52, "ci_high": 0.58}
    low = tests.with_columns(pl.when(other).then(value).otherwise(name).alias(name) for name, value in numbers.items())

    def verdict(rows):
        found = read(replace(findings, question_share_tests=rows))
        return next(one["verdict"] for one in found if one["claim"] == "auc_above_nulls")

    assert verdict(low) == "holds"
    assert verdict(low.filter(pl.col("group").fill_null("") != "answer only")) == "undecided"
    wide = low.with_columns(ci_high=pl.when(pl.col("group") == "answer only").then(0.95).otherwise("ci_high"))
    assert verdict(wide) == "undecided"
