"""The charts of several runs: a panel each, one legend, one y axis, controls, and numbers that are the runs' own."""

from dataclasses import replace

import polars as pl
import pytest
from matplotlib.figure import Figure

from anchorscope.report.charts import delta_p_of_runs
from anchorscope.report.checks import read
from anchorscope.report.comparison import Compared, comparison_card
from anchorscope.report.findings import Findings
from anchorscope.report.palette import CONTROL_GREY, Q_ANCHORED, dataset_styles
from anchorscope.stats.curves import FEWEST_GROUPS
from compared_runs import model_findings, with_random
from report_shares import World, with_shares

FOUR = ("popqa", "triviaqa", "hotpotqa", "nq")


@pytest.fixture(scope="module")
def runs() -> tuple[Findings, ...]:
    small = with_shares(
        model_findings("Small", layers=30, datasets=FOUR),
        World(together=0.4),
        World(together=0.5),
    )
    large = with_shares(
        model_findings(
            "Large", layers=30, depth=-70.0, parameters=10**9, datasets=FOUR
        ),
        World(together=0.7, question=0.0, answer=0.2),
    )
    noise = model_findings(
        "shape:x",
        layers=8,
        depth=-3.0,
        parameters=10**10,
        datasets=FOUR[:2],
        random_weights=True,
    )
    return with_random(small), with_random(large), noise


@pytest.fixture(scope="module")
def figure(runs: tuple[Findings, ...]) -> Figure:
    return delta_p_of_runs(runs).plot()


def test_eight_lines_with_bands_and_their_random_controls(figure: Figure) -> None:
    lines = [line for line in figure.axes[0].get_lines() if len(line.get_xdata()) == 30]
    controls = [line for line in lines if line.get_color() == CONTROL_GREY]
    assert (len(lines), len(controls)) == (16, 8)
    styles = dataset_styles(FOUR).values()
    wanted = [(one.colour, stroke) for stroke in ("-", "--") for one in styles]
    shown = [
        (line.get_color(), line.get_linestyle())
        for line in lines
        if line not in controls
    ]
    assert sorted(shown) == sorted(wanted)
    assert len(figure.axes[0].collections) == 8


def test_few_clusters_are_thin_and_never_drawn_as_random_words(
    runs: tuple[Findings, ...],
) -> None:
    """The legend gives dots to random words: no line of a group may have them, and thin lines are explained."""
    small = runs[0]
    is_few = (pl.col("dataset") == "popqa") & (pl.col("group") == Q_ANCHORED)
    few = pl.when(is_few).then(FEWEST_GROUPS - 1).otherwise(pl.col("n_groups"))
    curves = small.curves.with_columns(few.cast(pl.Int64).alias("n_groups"))
    figure = delta_p_of_runs([replace(small, curves=curves)]).plot()
    own = [
        line
        for line in figure.axes[0].get_lines()
        if line.get_color() != CONTROL_GREY and len(line.get_xdata()) == 30
    ]
    assert len(own) == 8
    assert {line.get_linestyle() for line in own} == {"-", "--"}
    (thin,) = (line for line in own if line.get_alpha())
    assert thin.get_color() == dataset_styles(FOUR)["popqa"].colour
    words = [text.get_text() for text in figure.legends[0].get_texts()]
    assert f"Thin: fewer than {FEWEST_GROUPS} clusters" in words


def test_what_is_drawn_is_what_the_runs_have(runs: tuple[Findings, ...]) -> None:
    chart = delta_p_of_runs(runs)
    for run in runs:
        drawn = chart.data.filter(pl.col("run") == run.model)
        own = run.curves.filter(pl.col("variant") == "all")
        keys = ["intervention", "dataset", "group", "layer"]
        assert (
            drawn.sort(keys)["delta_p"].to_list() == own.sort(keys)["delta_p"].to_list()
        )


def test_every_run_and_dataset_with_parts_has_a_bar(runs: tuple[Findings, ...]) -> None:
    bars = comparison_card(
        Compared(runs), {run.model: read(run) for run in runs}, ()
    ).bars
    assert len(bars) == 8  # the noise has none
    assert [
        bar.parts["together"] for bar in bars if bar.label.startswith("Large")
    ] == pytest.approx([0.7] * 4)
    assert [sum(bar.parts.values()) for bar in bars] == pytest.approx([1.0] * 8)
