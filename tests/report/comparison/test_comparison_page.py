"""The page of a comparison: what it says follows from the runs, and nobody's text becomes its code."""

import json
import re
import sys
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))  # pytest's import mode does not make helper modules importable

from compared_runs import model_findings  # isort: skip

from anchorscope.progress import Silent
from anchorscope.report.comparison import comparison_page
from anchorscope.report.comparison.compared import Compared, Flag
from anchorscope.report.comparison.comparison_page import OWN, comparison_data
from anchorscope.report.comparison.comparison_text import (
    comparison_summary,
    groups_table,
    models_table,
    results_table,
    side_by_side,
)
from anchorscope.report.statements.all_statements import read
from anchorscope.report.wording import spanned

MARKUP = "<img src=x onerror=alert(1)></script><script>alert(2)</script>"


@pytest.fixture(scope="module")
def compared() -> Compared:
    runs = (
        model_findings("Small", datasets=("popqa", "triviaqa")),
        model_findings("Large", layers=16, depth=-70.0, parameters=10**9, datasets=("popqa",)),
    )
    flags = (Flag("seed: 0 in Small; 1 in Large", "drawn anew", False), Flag("site: a in Small", "elsewhere", True))
    return Compared(runs, ("a", "b"), flags=flags, command="anchorscope compare a b --out NEW_FOLDER")


@pytest.fixture(scope="module")
def pages(compared: Compared, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return written(compared, tmp_path_factory.mktemp("pages"))


def written(compared: Compared, folder: Path) -> dict[str, str]:
    """Both pages without figures: drawing takes the time and has tests of its own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(comparison_page, "save_all", lambda *_: None)
        comparison_page.write_comparison(compared, folder, Silent())
    return {kind: (folder / f"report.{kind}").read_text(encoding="utf-8") for kind in ("html", "md")}


def test_both_pages_tell_the_same(pages: dict[str, str]) -> None:
    for page in pages.values():
        for said in (
            "Small and Large: question or answer?", "Compared on PopQA", "What else differs", "seed", "drawn anew",
            "Drawn anew", "refused unless asked for", "What changes with size", "earlier readings", "Run by run",
            "anchorscope compare a b --out", "comparison.json",
        ):  # fmt: skip
            assert said.lower() in page.lower(), said
    assert "{{" not in pages["html"] + pages["md"]


def test_the_page_runs_its_own_script_and_loads_nothing(pages: dict[str, str]) -> None:
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', pages["html"])
    assert policy is not None
    assert policy.group(1).startswith("default-src &#39;none&#39;")
    assert "script-src &#39;sha256-" in policy.group(1)
    assert not re.search(r'(?:src|href)="(?!data:|#)', pages["html"])


def test_names_with_markup_stay_text(compared: Compared, tmp_path: Path) -> None:
    odd = model_findings(MARKUP, datasets=("popqa",), parameters=5)
    folders, flag = (MARKUP, "b"), Flag(MARKUP, MARKUP, True)
    pages = written(replace(compared, runs=(odd, compared.runs[1]), folders=folders, flags=(flag,)), tmp_path)
    for page in pages.values():
        assert "<img" not in page.replace('<img alt="', "")
        assert "alert(2)</script>" not in page
        assert "&lt;img src=x" in page


def test_tables_have_a_row_for_every_run_and_dataset(compared: Compared) -> None:
    assert [row[:2] for row in models_table(compared).rows] == [("Small", "a"), ("Large", "b")]
    for table in (groups_table(compared), results_table(compared)):
        assert [row[:2] for row in table.rows] == [("PopQA", "Small"), ("PopQA", "Large"), ("TriviaQA", "Small")]
        assert {len(row) for row in table.rows} == {len(table.head)}
    assert results_table(compared).rows[0][2] == "−52.0 [−54.5, −49.5]"


def test_the_summary_is_put_together_from_numbers(compared: Compared) -> None:
    who, found = comparison_summary(compared, [])
    assert "Small (135\u00a0M, 12 layers) and Large (1.0\u00a0B, 16 layers)" in who
    assert "differ in 2 things" in who
    assert "−51 to −47 points in Small" in found
    assert "98\u00a0% of the plain Q-Anchored groups and 11\u00a0%" in found
    verdicts = [{"verdict": verdict, "values": [1]} for verdict in ("holds", "holds", "undecided")]
    assert comparison_summary(compared, verdicts)[-1].endswith("2 hold and 1 are undecided.")


def test_random_weights_are_never_part_of_what_is_found(compared: Compared) -> None:
    noise = replace(compared.runs[1], random_weights=True)
    who, found = comparison_summary(replace(compared, runs=(compared.runs[0], noise), flags=()), [])
    assert "Large has random weights and knows nothing" in who
    assert "Large" not in found


def test_a_span_is_one_number_where_all_are_alike() -> None:
    assert spanned([3.0, 1.0, float("nan"), 2.0], lambda value: f"{value:.0f}") == "1 to 3"
    assert spanned([1.1, 0.9], lambda value: f"{value:.0f}") == "1"
    assert spanned([], str) == ""


def test_the_menu_holds_what_all_runs_have(compared: Compared) -> None:
    data = comparison_data(compared)
    assert [entry["id"] for entry in data["menu"]["datasets"]] == ["popqa", "triviaqa"]
    assert [rule for rule, _ in data["menu"]["rules"]] == ["plain", "corrected", "cross-fitted", "retained"]
    assert data["start"] == {"rule": "plain", "depth": "0", "site": "mlp", "position": "final"}
    assert [run["layers"] for run in data["runs"]] == [12, 16]
    assert {row[0] for row in data["runs"][1]["curves"]["rows"]} == {"popqa"}
    json.dumps(data, allow_nan=False)


def test_a_rule_that_one_run_lacks_is_not_offered(compared: Compared) -> None:
    lacking = replace(compared.runs[1], curves=compared.runs[1].curves.filter(pl.col("assignment") == "plain"))
    data = comparison_data(replace(compared, runs=(compared.runs[0], lacking)))
    assert [rule for rule, _ in data["menu"]["rules"]] == ["plain"]


def test_runs_read_at_other_sites_start_at_their_own(compared: Compared) -> None:
    curves = compared.runs[1].curves.with_columns(site=pl.lit("residual"))
    data = comparison_data(replace(compared, runs=(compared.runs[0], replace(
        compared.runs[1], site="residual", curves=curves))))  # fmt: skip
    assert data["start"]["site"] == OWN
    assert data["menu"]["sites"] == [OWN]
    assert all(run["curves"]["rows"] for run in data["runs"])


def test_key_readings_stand_beside_each_other(compared: Compared) -> None:
    small, large = compared.runs[1], replace(compared.runs[1], model="Other")
    rows = side_by_side({run.model: read(run) for run in (small, large)})
    keys = [one for one in read(small) if one["key"]]
    assert len(rows) == len(keys) > 5
    for row, one in zip(rows, keys, strict=True):
        assert one["statement"] in row.claim
        assert [cell.verdict for cell in row.cells] == [one["verdict"]] * 2


def test_runs_on_other_numbers_of_datasets_meet_dataset_by_dataset(compared: Compared) -> None:
    rows = side_by_side({run.model: read(run) for run in compared.runs})
    assert rows
    assert all(row.claim.startswith("PopQA") for row in rows)
    assert all(cell.verdict for row in rows for cell in row.cells)
