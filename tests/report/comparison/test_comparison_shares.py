"""The question share of several models: a panel each on one axis, a table, and runs that did not measure it."""

import sys
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))  # pytest's import mode does not make helper modules importable

from compared_runs import model_findings  # isort: skip
from report_shares import World, with_shares

from anchorscope.report.comparison.compared import Compared
from anchorscope.report.comparison.comparison_page import write_pages
from anchorscope.report.comparison.comparison_text import comparison_summary, shares_table
from anchorscope.report.comparison.model_panels import panel_charts
from anchorscope.report.comparison.share_panels import SharePanels
from anchorscope.report.statements.across_models import read_across
from anchorscope.report.statements.all_statements import read
from anchorscope.report.statements.claims import judge

TWO = ("popqa", "nq")


@pytest.fixture(scope="module")
def compared() -> Compared:
    small = with_shares(model_findings("Small", layers=30, datasets=TWO), World(share=0.4), World(share=0.5))
    large = with_shares(model_findings("Large", layers=30, parameters=10**9, datasets=TWO), World(share=0.7))
    return Compared((small, large, model_findings("Old", layers=16, datasets=TWO)), ("a", "b", "c"))


def test_a_panel_per_model_on_one_axis(compared: Compared) -> None:
    chart = SharePanels.from_compared(compared)
    figure = chart.plot()
    assert [axes.get_title() for axes in figure.axes] == ["Small", "Large", "Old"]
    assert len({axes.get_ylim() for axes in figure.axes}) == 1
    assert [len([line for line in axes.lines if len(line.get_xdata()) == 30]) for axes in figure.axes] == [4, 4, 0]
    assert [text.get_text() for text in figure.axes[2].texts] == ["not measured"]
    assert "Old: not measured" in chart.notes
    drawn = chart.data.filter((pl.col("run") == "Large") & (pl.col("intervention") == "knockout"))
    assert drawn["share"].max() == pytest.approx(0.7, abs=0.01)


def test_relative_depth_runs_from_zero_to_one(compared: Compared) -> None:
    figure = SharePanels.from_compared(replace(compared, relative_depth=True)).plot()
    lines = [line for line in figure.axes[0].lines if len(line.get_xdata()) == 30]
    assert {(line.get_xdata()[0], line.get_xdata()[-1]) for line in lines} == {(0.0, 1.0)}


def test_the_table_and_the_first_sentence_tell_it(compared: Compared) -> None:
    rows = {row[:2]: row[2:] for row in shares_table(compared).rows}
    assert rows["PopQA", "Large"][0] == "17"
    assert rows["PopQA", "Large"][1] == "0.70 [0.62, 0.78]"
    assert rows["PopQA", "Old"][1] == "not available"
    first = comparison_summary(compared, read_across(compared.runs))[0]
    assert "40\u00a0% to 50\u00a0% in Small (random words: 8\u00a0%) and 70\u00a0% in Large" in first


def test_runs_that_did_not_measure_it_have_the_page_without(compared: Compared, tmp_path: Path) -> None:
    def page(some: Compared, folder: Path) -> str:
        folder.mkdir()
        readings = {run.model: read(run) for run in some.runs}
        write_pages(some, panel_charts(some), read_across(some.runs), judge(some.runs), readings, folder)
        return (folder / "report.html").read_text(encoding="utf-8")

    assert 'id="share"' in page(compared, tmp_path / "with")
    old = replace(compared, runs=compared.runs[2:], folders=("c",))
    assert not SharePanels.was_made(old)
    assert 'id="share"' not in page(old, tmp_path / "without")
