"""The figures of the further experiments: what is drawn is what is saved, and nothing missing breaks them."""

from dataclasses import replace
from functools import cache
from itertools import pairwise

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anchorscope.report.panel_figure import canvas, catalogued_sections
from report_further_synthetic import make_further

CHARTS = [chart for section in catalogued_sections() for chart in section.charts]
NAMED = {chart.name: chart for chart in CHARTS}


@cache
def many_datasets():
    """Five datasets, one of them without any further experiment."""
    return make_further(
        ("popqa", "triviaqa", "hotpotqa", "mine", "nq"), lacking=("nq",)
    )


def texts(figure) -> list[str]:
    return [
        text.get_text() for axes in figure.axes for text in (*axes.texts, axes.title)
    ]


def without_intervals(experiments: pl.DataFrame) -> pl.DataFrame:
    """What a model of one layer would give, its intervals unknown."""
    first = (pl.col("layer").fill_null(0) == 0) & (
        pl.col("probe_layer").fill_null(0) == 0
    )
    unknown = {
        "ci_low": pl.lit(None, pl.Float64),
        "ci_high": pl.lit(float("nan")),
        "q_value": pl.lit(None, pl.Float64),
    }
    return experiments.filter(first | (pl.col("experiment") == "heads")).with_columns(
        **unknown
    )


@pytest.mark.parametrize("chart", CHARTS, ids=lambda chart: chart.name)
def test_figures_survive_missing_pieces(further, chart):
    bare = replace(
        further,
        n_layers=1,
        experiments=without_intervals(further.experiments),
        curves=further.curves.filter(pl.col("layer") == 0).with_columns(
            ci_low=pl.lit(None, pl.Float64)
        ),
        summary=further.summary.with_columns(ci_low=pl.lit(None, pl.Float64)),
        reference_layers={},
    )
    assert chart.was_made(bare)
    chart.from_findings(bare).plot()
    one_group = replace(
        further,
        experiments=further.experiments.filter(
            pl.col("group").is_null() | (pl.col("group") == "A-Anchored")
        ),
        curves=further.curves.filter(pl.col("group") == "A-Anchored"),
        summary=further.summary.filter(
            pl.col("group").is_null() | (pl.col("group") == "A-Anchored")
        ),
    )
    chart.from_findings(one_group).plot()


def test_the_forest_holds_every_value_of_its_table(further):
    chart = NAMED["interventions"].from_findings(further)
    figure = chart.plot()
    lines = [line for axes in figure.axes for line in axes.lines]
    drawn = {
        round(float(line.get_xdata()[0]), 6)
        for line in lines
        if len(line.get_xdata()) == 1
    }
    assert {round(value, 6) for value in chart.data["value"]} <= drawn
    labels = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert labels[0] == "key words cut (the chart)"
    assert "own key words put in again" in labels


def test_densities_of_parts_add_up_to_the_whole(further):
    data = NAMED["saliency"].from_findings(further).data
    for key, rows in data.group_by("dataset", "variant"):
        step = rows["log10_saliency"].unique().sort().diff().drop_nulls().mean()
        areas = {
            part: float(part_rows["density"].sum() * step)
            for (part,), part_rows in rows.group_by("part")
        }
        assert areas.pop("all items") == pytest.approx(1.0, abs=0.01), key
        counted = {
            part: part_rows["n"][0]
            for (part,), part_rows in rows.group_by("part")
            if part != "all items"
        }
        for part, area in areas.items():
            assert area == pytest.approx(
                counted[part] / sum(counted.values()), abs=0.01
            )


@settings(deadline=None, max_examples=8)
@given(st.integers(1, 14), st.integers(1, 4), st.floats(0, 3))
def test_panels_lie_within_the_figure_and_apart(rows, columns, labels):
    _, panels = canvas(
        "title", [2.0] * columns, rows, 2.5, labels=labels, notes=("note",)
    )
    boxes = [[axes.get_position() for axes in row] for row in panels]
    assert all(
        0 <= box.x0 < box.x1 <= 1 and 0 <= box.y0 < box.y1 <= 1
        for row in boxes
        for box in row
    )
    assert all(left.x1 <= right.x0 for row in boxes for left, right in pairwise(row))
    assert all(upper[0].y0 >= lower[0].y1 for upper, lower in pairwise(boxes))


@pytest.mark.parametrize("chart", CHARTS, ids=lambda chart: chart.name)
def test_figures_of_many_datasets_fit_a_page_and_tell_who_lacks_them(chart):
    display = chart.from_findings(many_datasets())
    width, height = display.plot().get_size_inches()
    assert width < 16
    assert height < 22
    assert set(display.data["dataset"]) == {"popqa", "triviaqa", "hotpotqa", "mine"}
    assert any("Not measured here: NQ" in note for note in display.notes)
