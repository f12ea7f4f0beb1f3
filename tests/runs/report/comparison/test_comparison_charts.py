"""The charts of several runs: a panel each, one legend, one y axis, controls, and numbers that are the runs' own."""

from dataclasses import replace

import polars as pl
import pytest
from matplotlib.figure import Figure

from anchorscope.report.comparison.compared import Compared, panel_title
from anchorscope.report.comparison.run_panels import PlainPanels, SharePanels, delta_p_charts, fitted_title, panel_grid
from anchorscope.report.comparison.trends_chart import CurveTrendsChart, TrendsChart, trends_charts
from anchorscope.report.palette import CONTROL_GREY, dataset_styles
from anchorscope.report.statements.run_curves import RunCurves
from anchorscope.stats.curves import trough
from compared_runs import model_findings, with_random
from report_shares import World, with_shares

FOUR = ("popqa", "triviaqa", "hotpotqa", "nq")


@pytest.fixture(scope="module")
def compared() -> Compared:
    small = with_shares(model_findings("Small", layers=30, datasets=FOUR), World(share=0.4), World(share=0.5))
    large = with_shares(
        model_findings("Large", layers=30, depth=-70.0, parameters=10**9, datasets=FOUR), World(share=0.7)
    )
    noise = model_findings("shape:x", layers=8, depth=-3.0, parameters=10**10, datasets=FOUR[:2], random_weights=True)
    return Compared((with_random(small), with_random(large), noise), ("a", "b", "c"))


@pytest.fixture(scope="module")
def figure(compared: Compared) -> Figure:
    return delta_p_charts(compared)[0].plot()


def test_a_panel_per_run_with_its_name(figure: Figure) -> None:
    assert [axes.get_title() for axes in figure.axes] == ["Small", "Large", "shape:x (RANDOM WEIGHTS)"]
    assert [axes.get_xlabel() for axes in figure.axes] == ["Layer"] * 3
    assert figure.axes[0].get_ylabel() == "ΔP"


def test_layers_are_each_models_own_and_the_y_axis_is_one(figure: Figure) -> None:
    assert [round(axes.get_xlim()[1]) for axes in figure.axes] == [30, 30, 7]
    assert len({axes.get_ylim() for axes in figure.axes}) == 1


def test_eight_lines_with_bands_and_their_random_controls(figure: Figure) -> None:
    lines = [line for line in figure.axes[0].get_lines() if len(line.get_xdata()) == 30]
    controls = [line for line in lines if line.get_color() == CONTROL_GREY]
    assert (len(lines), len(controls)) == (16, 8)
    styles = dataset_styles(FOUR).values()
    wanted = [(one.q_colour, "-") for one in styles] + [(one.a_colour, "--") for one in styles]
    shown = [(line.get_color(), line.get_linestyle()) for line in lines if line not in controls]
    assert sorted(shown) == sorted(wanted)
    assert len(figure.axes[0].collections) == 8


def test_one_legend_under_all_panels(figure: Figure) -> None:
    (legend,) = figure.legends
    names = [text.get_text() for text in legend.get_texts()]
    assert len(names) == 9
    assert {"Q-Anchored (PopQA)", "A-Anchored (NQ)"} <= set(names)
    assert sum("andom" in name for name in names) == 1
    assert all(axes.get_legend() is None for axes in figure.axes)


def test_what_is_drawn_is_what_the_runs_have(compared: Compared) -> None:
    chart = delta_p_charts(compared)[0]
    for run in compared.runs:
        drawn = chart.data.filter(pl.col("run") == run.model)
        own = run.curves.filter((pl.col("assignment") == "plain") & (pl.col("variant") == "all"))
        keys = ["intervention", "dataset", "group", "layer"]
        assert drawn.sort(keys)["delta_p"].to_list() == own.sort(keys)["delta_p"].to_list()
    assert "shape:x: not run on HotpotQA, NQ" in chart.notes


def test_relative_depth_runs_from_nought_to_one(compared: Compared) -> None:
    relative = replace(compared, relative_depth=True)
    for chart in (delta_p_charts(relative)[1], SharePanels.from_compared(relative)):
        assert (chart.data["relative_depth"].min(), chart.data["relative_depth"].max()) == (0.0, 1.0)
        axes = chart.plot().axes
        assert [one.get_xlabel() for one in axes] == ["Relative depth"] * 3
        assert len({one.get_xlim() for one in axes}) == 1
        assert {line.get_xdata()[-1] for line in axes[0].lines if len(line.get_xdata()) == 30} == {1.0}


def test_the_second_chart_is_always_another_rule(compared: Compared) -> None:
    for first, second in (("plain", "corrected"), ("cross-fitted", "corrected"), ("corrected", "plain")):
        charts = delta_p_charts(replace(compared, assignment=first))
        assert [set(chart.data["assignment"]) for chart in charts] == [{first}, {second}]
        assert charts[0].name == "delta_p"
        assert charts[1].name == f"delta_p_{second}"
        assert isinstance(charts[1], PlainPanels) == (second == "plain")


def test_a_group_without_items_is_noted(compared: Compared) -> None:
    run = compared.runs[0]
    empty = pl.when((pl.col("group") == "A-Anchored") & (pl.col("dataset") == "nq")).then(0).otherwise(pl.col("n"))
    chart = delta_p_charts(replace(compared, runs=(replace(run, curves=run.curves.with_columns(n=empty)),)))[0]
    assert "Small: A-Anchored (NQ): no items" in chart.notes


def test_runs_that_were_read_elsewhere_say_so(compared: Compared) -> None:
    curves = compared.runs[1].curves.with_columns(site=pl.lit("residual"))
    other = replace(compared.runs[1], site="residual", curves=curves)
    chart = delta_p_charts(replace(compared, runs=(compared.runs[0], other)))[0]
    assert "Read at different places: Small at mlp, final; Large at residual, final." in chart.notes
    assert set(chart.data["run"]) == {"Small", "Large"}
    assert not any("different places" in note for note in delta_p_charts(compared)[0].notes)


def test_shares_have_a_panel_per_run_on_one_axis_with_all_controls(compared: Compared) -> None:
    chart = SharePanels.from_compared(compared)
    figure = chart.plot()
    assert [axes.get_title() for axes in figure.axes] == ["Small", "Large", "shape:x (RANDOM WEIGHTS)"]
    assert len({axes.get_ylim() for axes in figure.axes}) == 1
    lines = [len([line for line in axes.lines if len(line.get_xdata()) == 30]) for axes in figure.axes]
    assert lines == [4 * 4, 4 * 4, 0]  # knockout, random, nothing cut, permuted
    assert [text.get_text() for text in figure.axes[2].texts] == ["not measured"]
    assert "shape:x: not measured" in chart.notes
    drawn = chart.data.filter((pl.col("run") == "Large") & (pl.col("intervention") == "knockout"))
    assert drawn["share"].max() == pytest.approx(0.7, abs=0.01)


def test_panels_stand_in_full_rows() -> None:
    grids = {panels: panel_grid(panels) for panels in (1, 2, 3, 4, 5, 6, 8, 9)}
    assert grids == {1: (1, 1), 2: (1, 2), 3: (1, 3), 4: (1, 4), 5: (2, 3), 6: (2, 3), 8: (2, 4), 9: (3, 3)}
    named = model_findings("x", datasets=("popqa",), random_weights=True)
    assert panel_title(replace(named, model="x (RANDOM WEIGHTS)")) == "x (RANDOM WEIGHTS)"


def test_a_long_title_is_small_and_a_very_long_one_loses_its_middle() -> None:
    assert fitted_title("Small", 3.6) == ("Small", 10.0)
    whole, smaller = fitted_title("x" * 50, 3.6)
    assert (whole, 6.5 < smaller < 10) == ("x" * 50, True)
    cut, smallest = fitted_title("Name" + "x" * 200 + " (RANDOM WEIGHTS)", 3.05)
    assert cut.startswith("Name")
    assert cut.endswith(" (RANDOM WEIGHTS)")
    assert smallest == pytest.approx(6.5, abs=0.2)


def test_trends_are_numbers_of_the_runs_without_random_weights(compared: Compared) -> None:
    shares, curves = trends_charts(compared, shares=True)
    for chart in (shares, curves):
        assert set(chart.data["run"]) == {"Small", "Large"}
        assert any("shape:x" in note for note in chart.notes)

    def number(chart: TrendsChart, quantity: str) -> dict[str, float]:
        asked = (pl.col("run") == "Large") & (pl.col("dataset") == "nq") & (pl.col("quantity") == quantity)
        return chart.data.row(by_predicate=asked, named=True)

    curve = RunCurves(compared.runs[1], "plain").q("nq")
    assert curve is not None
    depth, row = trough(curve).depth, number(curves, "trough_depth")
    assert (row["value"], row["ci_low"], row["ci_high"]) == (depth.value, depth.ci_low, depth.ci_high)
    row = number(shares, "share_tested")
    assert (row["value"], row["ci_low"], row["ci_high"]) == pytest.approx((0.70, 0.62, 0.78), abs=0.01)


def test_trends_have_a_panel_per_quantity_and_a_place_per_run_in_order_of_size(compared: Compared) -> None:
    backwards = replace(compared, runs=compared.runs[1::-1])
    chart = TrendsChart.from_compared(backwards, None)
    axes = [one for one in chart.plot().axes if one.get_visible()]
    assert [one.get_title() for one in axes][:2] == ["Λ at the tested layer", "Random words, same layer"]
    assert [text.get_text() for text in axes[0].get_xticklabels()] == ["Small\n135\u00a0M", "Large\n1.0\u00a0B"]
    assert len(axes[0].containers) == 4  # a series with bars per dataset
    both = replace(compared, runs=compared.runs[:2])
    spread = CurveTrendsChart.from_compared(both, "plain").data.filter(pl.col("quantity") == "spread_at_end")
    assert spread.height == 2


def test_trends_need_two_runs_and_say_what_was_not_measured(compared: Compared) -> None:
    assert trends_charts(replace(compared, runs=compared.runs[:1]), shares=True) == []
    assert trends_charts(replace(compared, runs=compared.runs[1:]), shares=True) == []
    bare = replace(compared.runs[0], curve_samples=compared.runs[0].curve_samples.head(0))
    chart = CurveTrendsChart.from_compared(replace(compared, runs=(bare, replace(bare, model="b"))), "plain")
    assert not chart.data.height
    texts = [text.get_text() for one in chart.plot().axes if one.get_visible() for text in one.texts]
    assert set(texts) == {"not measured"}
