"""The page of the calibration: recovery, and names that stay text."""

import polars as pl

from anchorscope.artefacts.schema import WORLDS_SCHEMA
from anchorscope.progress import Silent
from anchorscope.validation.validate import (
    areas_table,
    worlds_section,
    write_validation,
)
from report_further_synthetic import recovery


def test_the_recovery_table_has_all_true_and_false_side_by_side():
    table = areas_table(recovery())
    assert table.rows[0] == (
        "knockout",
        "plain",
        "0.740 [0.710, 0.770]",
        "0.930 [0.900, 0.960]",
        "0.520 [0.490, 0.550]",
        "400",
    )
    assert [row[0] for row in table.rows[1:3]] == ["patching"] * 2
    assert table.rows[-1][:2] == ("self-awareness", "–")


def test_pages_and_figure_are_written_and_names_stay_text(tmp_path):
    facts = {"model": "planted <b>"}
    sentences = [
        "Of 400 items, half were planted.",
        "The plain rule finds 50% of them.",
    ]
    worlds = worlds_section(pl.DataFrame(schema=WORLDS_SCHEMA), {})
    write_validation(
        tmp_path, sentences, recovery(), worlds, facts, "anchorscope validate", Silent()
    )
    assert {path.name for path in (tmp_path / "figures").iterdir()} == {
        "recovery.svg",
        "recovery.csv",
    }
    for name in ("validation.html", "validation.md"):
        text = (tmp_path / name).read_text(encoding="utf-8")
        for wanted in (
            "How to read it",
            "0.740 [0.710, 0.770]",
            "patch-same",
            "anchorscope validate",
            *sentences,
        ):
            assert wanted in text
        assert "planted <b>" not in text
    assert (tmp_path / "validation.html").read_text(encoding="utf-8").count(
        "data:image/svg+xml;base64,"
    ) == 1
