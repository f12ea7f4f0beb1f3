"""The page of the calibration: recovery, what rules call the items, and what happens where pieces are missing."""

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from anchorscope.report.validation_page import (
    CALLED,
    CONFUSION_SCHEMA,
    PLANTED,
    Validation,
    confusion_table,
    recovery_table,
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


@given(st.lists(st.tuples(st.sampled_from(PLANTED), st.sampled_from(CALLED), st.booleans()), max_size=40))
def test_counts_of_any_items_come_back(items):
    rows = [("r", "true" if true else "false", planted, called, 1) for planted, called, true in items]
    lines = confusion_table(pl.DataFrame(rows, schema=CONFUSION_SCHEMA, orient="row")).rows
    assert sum(int(row[-1]) for row in lines if row[1] == "all answers") == len(items)
    for line in lines:
        assert sum(int(cell.split(" ")[0]) for cell in line[3:6]) == int(line[-1])


def test_pages_and_figure_are_written_and_names_stay_text(tmp_path):
    facts = {"model": "planted <b>"}
    sentences = ["Of 400 items, half were planted.", "The plain rule finds 50% of them."]
    write_validation(Validation("planted", sentences, recovery(), confusion(), facts, "anchorscope validate"), tmp_path)
    assert {path.name for path in (tmp_path / "figures").iterdir()} == {"recovery.svg", "recovery.csv"}
    for name in ("validation.html", "validation.md"):
        text = (tmp_path / name).read_text(encoding="utf-8")
        for wanted in ("How to read it", "0.740 [0.710, 0.770]", "corrected", "anchorscope validate", *sentences):
            assert wanted in text
        assert "planted <b>" not in text
    assert (tmp_path / "validation.html").read_text(encoding="utf-8").count("data:image/svg+xml;base64,") == 1
