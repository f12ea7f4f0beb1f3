"""Readings of the question share in worlds whose answer is known: no share, no difference, a control that fails."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from anchorscope.report.charts.question_share import QuestionShareChart
from anchorscope.report.statements.layer_band import widening
from anchorscope.report.statements.share_statements import TESTED as QUESTIONS
from report_readings import read
from report_shares import LAYER, World, run_with_shares
from report_synthetic import LAYERS

TESTED = [question.claim for question in QUESTIONS]
NULL = World(share=0.0, random=0.0, lower=0.0, upper=0.0, given=0.0, half=0.03)


def readings(*worlds, datasets=("atlas",), dataset="atlas"):
    found = read(run_with_shares(*worlds, datasets=datasets))
    return {one["claim"]: one for one in found if (one["dataset"], one["assignment"]) == (dataset, None)}


def test_a_clear_share_holds_with_its_number_and_its_p_values():
    found = readings(World())
    assert {found[claim]["verdict"] for claim in TESTED} == {"yes"}
    assert {found[claim]["standing"] for claim in TESTED} == {"tested"}
    needed = found["share_needed"]
    assert needed["value"] == pytest.approx(0.7, abs=0.01)
    assert (needed["layer"], needed["n"], needed["unit"]) == (LAYER, 360, "share of the evidence")
    assert "Λ 0.70 [0.62, 0.78] at layer 17; T = 17.4" in needed["text"]
    assert needed["p_corrected"] >= needed["p_value"]


def test_a_null_share_does_not_hold():
    found = readings(NULL)
    assert {found[claim]["verdict"] for claim in TESTED} == {"no"}


def test_a_wide_interval_decides_nothing():
    wide = World(share=0.15, random=0.05, lower=0.1, upper=0.2, given=0.1, half=0.3)
    found = readings(wide)
    assert {found[claim]["verdict"] for claim in TESTED} == {"inconclusive"}


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
    assert (good[claim]["verdict"], good[claim]["failing_layers"]) == ("yes", [])
    assert (bad[claim]["verdict"], bad[claim]["failing_layers"], bad[claim]["layer"]) == ("no", [20], 20)
    assert "at layer 20" in bad[claim]["text"]
    others = [one for one in good if one.startswith("share_") and one != claim and good[one]["standing"] == "control"]
    assert [bad[one]["verdict"] for one in others] == [good[one]["verdict"] for one in others]


def test_one_interval_of_thirty_off_zero_is_chance_and_no_failure():
    just_off = World(half=0.08, spoilt={("permuted", 12): 0.085})  # its own interval leaves out zero
    assert readings(just_off)["share_permuted_zero"]["verdict"] == "inconclusive"


def test_random_weights_are_read_where_they_were_run():
    assert "share_random_weights" not in readings(World())
    assert readings(World(random_weights=0.01))["share_random_weights"]["verdict"] == "yes"
    assert readings(World(random_weights=0.6, half=0.03))["share_random_weights"]["verdict"] == "no"


def test_the_shape_along_the_depth():
    found = readings(World(half=0.03))
    peak = found["share_peak"]
    assert (peak["verdict"], peak["layer"]) == ("yes", 18)
    assert peak["ci_low"] <= 18 <= peak["ci_high"]
    assert found["share_rises"]["verdict"] == found["share_falls"]["verdict"] == "yes"
    assert found["share_rises"]["value"] == pytest.approx(0.69, abs=0.02)
    flat = readings(replace(NULL, half=0.02))
    assert flat["share_rises"]["verdict"] == "no"
    assert flat["share_peak"]["verdict"] == "inconclusive"


def test_p_values_are_corrected_over_all_datasets():
    one = readings(World(given=0.065, half=0.08))["share_given"]
    worlds = (World(given=0.065, half=0.08), World(given=0.065, half=0.08))
    two = readings(*worlds, datasets=("popqa", "nq"), dataset="popqa")["share_given"]
    assert one["p_value"] == two["p_value"]
    assert two["p_corrected"] > one["p_corrected"] > 0


def test_the_band_is_as_wide_as_so_many_layers_ask():
    assert widening(1) == pytest.approx(1.0)
    assert widening(30) == pytest.approx(3.144 / 1.960, abs=0.001)  # the normal quantile of 1 − 0.025 / 30
    rng = np.random.default_rng(3)
    noise = np.abs(rng.normal(size=(4000, 30)))
    assert (noise.max(axis=1) < 1.96 * widening(30)).mean() == pytest.approx(0.95, abs=0.015)


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


def test_a_control_that_was_not_measured_is_no_pass():
    findings = run_with_shares(World(random=0.03, half=0.03))
    bare = replace(
        findings,
        question_share=findings.question_share.filter(pl.col("intervention") == "knockout"),
        curves=findings.curves.clear(),
        summary=findings.summary.clear(),
    )
    controls = [one for one in read(bare) if one["standing"] == "control" and one["key"]]
    assert {one["verdict"] for one in controls} == {"not measured"}


def test_better_than_every_probe_that_sees_less_needs_all_of_them():
    findings = run_with_shares(World())
    tests = findings.question_share_tests
    other = (pl.col("quantity") == "auc") & (pl.col("group") != "probe")
    numbers = {"value": 0.55, "ci_low": 0.52, "ci_high": 0.58}
    low = tests.with_columns(pl.when(other).then(value).otherwise(name).alias(name) for name, value in numbers.items())

    def verdict(rows):
        found = read(replace(findings, question_share_tests=rows))
        return next(one["verdict"] for one in found if one["claim"] == "auc_above_nulls")

    assert verdict(low) == "yes"
    assert verdict(low.filter(pl.col("group").fill_null("") != "answer only")) == "inconclusive"
    wide = low.with_columns(ci_high=pl.when(pl.col("group") == "answer only").then(0.95).otherwise("ci_high"))
    assert verdict(wide) == "inconclusive"
