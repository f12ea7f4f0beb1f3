"""The page of the calibration: recovery, confusion matrices, and what happens where pieces are missing."""

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anchorscope.report.recovery_chart import RECOVERY_SCHEMA, RecoveryChart, other_recovery_table, recovery_table
from anchorscope.report.validation_page import (
    CALLED,
    PLANTED,
    ConfusionChart,
    Validation,
    confusion_tables,
    with_totals,
    write_validation,
)
from report_further_synthetic import confusion, recovery


def test_the_recovery_table_has_all_true_and_false_side_by_side():
    table = recovery_table(recovery())
    assert table.rows[0] == (
        "knockout",
        "plain",
        "0.740 [0.710, 0.770]",
        "0.930 [0.900, 0.960]",
        "0.520 [0.490, 0.550]",
        "400",
    )
    assert [row[0] for row in table.rows[:2]] == ["knockout"] * 2
    assert table.rows[-1][:2] == ("self-awareness", "–")
    others = other_recovery_table(recovery())
    assert others.rows[0] == ("knockout", "plain", "balanced accuracy", "0.690", "–", "–", "400")


def test_the_forest_draws_every_area():
    chart = RecoveryChart.from_table(recovery(), "planted")
    panels = chart.plot().axes
    for panel, truth in zip(panels, ("all", "true", "false"), strict=True):
        drawn = sorted(float(line.get_xdata()[0]) for line in panel.lines if len(line.get_xdata()) == 1)
        assert drawn == sorted(chart.data.filter(pl.col("truth") == truth)["value"])
    assert panels[0].get_yticklabels()[0].get_text() == "knockout: plain"


def test_totals_are_added_up_once():
    totals = with_totals(confusion())
    assert with_totals(totals).equals(totals)
    everyone = totals.filter((pl.col("truth") == "all") & (pl.col("rule") == "plain"))
    assert everyone["n"].sum() == 1000
    (name, table), *_ = confusion_tables(confusion())
    assert name == "Rule: plain"
    assert table.rows[0] == ("all answers", "question", "200 (50\u00a0%)", "186 (46\u00a0%)", "14 (4\u00a0%)", "400")


@given(st.lists(st.tuples(st.sampled_from(PLANTED), st.sampled_from(CALLED), st.booleans()), max_size=40))
def test_counts_of_any_items_come_back(items):
    names = ("rule", "truth", "planted", "called", "n")
    rows = [("r", "true" if true else "false", planted, called, 1) for planted, called, true in items]
    counts = pl.DataFrame(rows, schema=dict(zip(names, [pl.String] * 4 + [pl.Int64], strict=True)), orient="row")
    tables = confusion_tables(counts)
    if not items:
        assert tables == ()
        return
    lines = tables[0][1].rows
    assert sum(int(row[-1]) for row in lines if row[0] == "all answers") == len(items)
    for line in lines:
        assert sum(int(cell.split(" ")[0]) for cell in line[2:5]) == int(line[-1])


def test_an_empty_matrix_is_said():
    only_true = confusion().filter(pl.col("truth") == "true")
    figure = ConfusionChart.from_counts(only_true, "planted").plot()
    assert "no items" in [text.get_text() for text in figure.axes[2].texts]


def test_nothing_to_draw_is_said():
    chart = RecoveryChart.from_table(pl.DataFrame(schema=RECOVERY_SCHEMA), "planted")
    assert [text.get_text() for text in chart.plot().axes[0].texts] == ["not available"]
    assert recovery_table(chart.data).rows == ()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    out = tmp_path_factory.mktemp("validation")
    facts = {"model": "planted <b>"}
    sentences = ["The plain rule finds 50 % of the items that were planted in the question."]
    write_validation(Validation("planted", sentences, recovery(), confusion(), facts, "anchorscope validate"), out)
    return out


def test_both_pages_and_both_figures_are_written(folder):
    for name in ("recovery", "confusion"):
        for kind in ("png", "svg", "pdf", "csv"):
            assert (folder / "figures" / f"{name}.{kind}").stat().st_size > 0
    for name in ("validation.html", "validation.md"):
        text = (folder / name).read_text(encoding="utf-8")
        for wanted in ("How to read it", "0.740 [0.710, 0.770]", "Rule: corrected", "anchorscope validate"):
            assert wanted in text
        assert "The plain rule finds 50 %" in text
        assert "planted <b>" not in text
    assert (folder / "validation.html").read_text(encoding="utf-8").count("data:image/svg+xml;base64,") == 2
    assert "](figures/confusion.png)" in (folder / "validation.md").read_text(encoding="utf-8")
