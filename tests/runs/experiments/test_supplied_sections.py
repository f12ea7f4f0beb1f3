"""Matched strings and other wordings on the page: the numbers of the reference layer, each where it belongs."""

import polars as pl

from anchorscope.experiments import matched, wordings
from anchorscope.experiments.matched import reference_rows
from anchorscope.report.panel_figure import chart_named
from report_further_synthetic import make_further

FINDINGS = make_further(("popqa", "nq"), lacking=("nq",))


def tables(spec) -> dict[str, list[tuple[str, ...]]]:
    section = spec.section(FINDINGS)
    return {title: list(table.rows) for title, table in section.tables}


def test_only_the_reference_layer_is_shown():
    rows = reference_rows(FINDINGS)
    assert set(rows["probe_layer"].drop_nulls()) == {8}
    drawn = chart_named("matched").rows(FINDINGS)
    assert set(drawn["truth"]) == {"all"}
    assert drawn.filter(pl.col("quantity") == "auc").height == 2


def test_both_sets_stand_side_by_side():
    areas, shares, wins = tables(matched.SECTION).values()
    assert areas[0][2:] == ("0.70 [0.66, 0.74]", "120", "0.80 [0.76, 0.84]", "120")
    assert areas[4][1:] == ("words alone", "0.50 [0.47, 0.53]", "120", "–", "–")
    assert [row[1:4] for row in shares[:2]] == [
        ("exchanged answers", "key words cut", "0.93 [0.85, 1.01]"),
        ("exchanged answers", "random tokens cut", "0.10 [0.02, 0.18]"),
    ]
    assert shares[3][1:4] == ("the model's own answers", "key words cut", "0.60 [0.52, 0.68]")
    assert len(wins) == 3
    assert {row[0] for row in (*areas, *shares, *wins)} == {"PopQA"}


def test_reliability_is_told_within_truth_and_shares_wording_by_wording():
    reliable, shares = tables(wordings.SECTION).values()
    assert [row[1:5] for row in reliable[:2]] == [
        ("share of an item", "all answers", "0.45 [0.36, 0.54]", "0.50 [0.41, 0.59]"),
        ("share of an item", "true answers", "0.41 [0.32, 0.50]", "0.46 [0.37, 0.55]"),
    ]
    assert len(reliable) == 9
    assert [row[1] for row in shares] == ["original wording", *(f"wording {number}" for number in range(1, 8))]
