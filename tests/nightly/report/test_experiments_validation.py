"""The page of the calibration: recovery, confusion matrices, and what happens where pieces are missing."""

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anchorscope.report.recovery_chart import other_recovery_table, recovery_table
from anchorscope.report.validation_page import CALLED, PLANTED, Validation, confusion_tables, write_validation
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
    assert "](figures/confusion.svg)" in (folder / "validation.md").read_text(encoding="utf-8")
