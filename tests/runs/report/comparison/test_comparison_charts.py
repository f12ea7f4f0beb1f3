"""The charts of several runs: a panel each, one legend, one y axis, controls, and numbers that are the runs' own."""

import polars as pl
import pytest
from matplotlib.figure import Figure

from anchorscope.report.charts.delta_p import delta_p_of_runs
from anchorscope.report.charts.evidence_parts import part_bars
from anchorscope.report.findings import Findings
from anchorscope.report.palette import CONTROL_GREY, dataset_styles
from compared_runs import model_findings, with_random
from report_shares import World, with_shares

FOUR = ("popqa", "triviaqa", "hotpotqa", "nq")


@pytest.fixture(scope="module")
def runs() -> tuple[Findings, ...]:
    small = with_shares(model_findings("Small", layers=30, datasets=FOUR), World(together=0.4), World(together=0.5))
    large = with_shares(
        model_findings("Large", layers=30, depth=-70.0, parameters=10**9, datasets=FOUR), World(together=0.7)
    )
    noise = model_findings("shape:x", layers=8, depth=-3.0, parameters=10**10, datasets=FOUR[:2], random_weights=True)
    return with_random(small), with_random(large), noise


@pytest.fixture(scope="module")
def figure(runs: tuple[Findings, ...]) -> Figure:
    return delta_p_of_runs(runs, {run.model: run.model for run in runs}, ()).plot()


def test_eight_lines_with_bands_and_their_random_controls(figure: Figure) -> None:
    lines = [line for line in figure.axes[0].get_lines() if len(line.get_xdata()) == 30]
    controls = [line for line in lines if line.get_color() == CONTROL_GREY]
    assert (len(lines), len(controls)) == (16, 8)
    styles = dataset_styles(FOUR).values()
    wanted = [(one.colour, stroke) for stroke in ("-", "--") for one in styles]
    shown = [(line.get_color(), line.get_linestyle()) for line in lines if line not in controls]
    assert sorted(shown) == sorted(wanted)
    assert len(figure.axes[0].collections) == 8


def test_what_is_drawn_is_what_the_runs_have(runs: tuple[Findings, ...]) -> None:
    chart = delta_p_of_runs(runs, {run.model: run.model for run in runs}, ())
    for run in runs:
        drawn = chart.data.filter(pl.col("run") == run.model)
        own = run.curves.filter((pl.col("assignment") == "plain") & (pl.col("variant") == "all"))
        keys = ["intervention", "dataset", "group", "layer"]
        assert drawn.sort(keys)["delta_p"].to_list() == own.sort(keys)["delta_p"].to_list()


def test_every_run_and_dataset_with_parts_has_a_bar(runs: tuple[Findings, ...]) -> None:
    chart = part_bars(runs)
    assert chart is not None
    assert chart.data["bar"].n_unique() == 8  # the noise has none
    (axes,) = chart.plot().axes
    assert len(axes.get_yticklabels()) == 8
    large = chart.data.filter((pl.col("model") == "Large") & (pl.col("part") == "together"))
    assert large["share"].to_list() == pytest.approx([0.7] * 4)
    assert chart.data.group_by("bar").agg(pl.col("share").sum())["share"].to_list() == pytest.approx([1.0] * 8)
