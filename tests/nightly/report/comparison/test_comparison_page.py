"""The page of a comparison: what it says follows from the runs, and nobody's text becomes its code."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from anchorscope.progress import Silent
from anchorscope.report import comparison
from anchorscope.report.checks import read
from anchorscope.report.comparison import (
    Compared,
    Difference,
    comparison_card,
    read_across,
    runs_table,
    setting_words,
)
from anchorscope.report.findings import Findings
from compared_runs import model_findings, with_random
from report_shares import World, with_shares

MARKUP = "<img src=x onerror=alert(1)></script><script>alert(2)</script>"


BOTH = ("popqa", "nq")


def run(
    model: str = "Small",
    share: float = 0.4,
    *,
    datasets: tuple[str, ...] = BOTH,
    parameters: int = 10**8,
    **world: Any,
) -> Findings:
    found = with_random(
        model_findings(model, layers=30, datasets=datasets, parameters=parameters)
    )
    return with_shares(
        found,
        World(
            **{
                "together": share,
                "question": 0.0,
                "answer": 0.2,
                "random": 0.05,
                "half": 0.03,
            }
            | world
        ),
    )


@pytest.fixture(scope="module")
def compared() -> Compared:
    """Two runs with all that there is, of which the larger one fails a control."""
    large = run("Large", 0.7, parameters=10**9, datasets=("popqa",), random=0.5)
    flags = (
        Difference("seed", False, {}, "seed: 0 in Small; 1 in Large", "drawn again"),
        Difference("site", True, {}, "site: a in Small", "elsewhere"),
    )
    return Compared(
        (run(), large), flags=flags, command="anchorscope compare 'my a' b --out both"
    )


def written(compared: Compared, folder: Path, claims: bool = False) -> dict[str, str]:
    """Both pages without figures: drawing takes the time and has tests of its own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(comparison, "save_all", lambda *_: None)
        comparison.write_comparison(compared, folder, Silent(), claims)
    return {
        kind: (folder / f"report.{kind}").read_text(encoding="utf-8")
        for kind in ("html", "md")
    }


def marks(compared: Compared, readings: Any, mark: str) -> set[str]:
    """The runs and datasets that have a control with this verdict."""
    table = comparison.controls_table(compared, readings)
    return {
        head
        for row in table.rows
        for head, cell in zip(table.head, row, strict=True)
        if cell.startswith(mark)
    }


def test_names_with_markup_stay_text(compared: Compared, tmp_path: Path) -> None:
    odd = run(MARKUP, 0.4, datasets=("popqa",), random=0.5)
    flag = Difference(MARKUP, True, {}, MARKUP, MARKUP)
    pages = written(
        replace(compared, runs=(odd, compared.runs[1]), flags=(flag,)), tmp_path, True
    )
    for page in pages.values():
        assert "<img" not in page.replace('<img alt="', "")
        assert "alert(2)</script>" not in page
        assert "&lt;img src=x" in page


def test_a_failed_control_is_named_and_decides_trust(compared: Compared) -> None:
    readings = {one.model: read(one) for one in compared.runs}
    assert marks(compared, readings, "✗") == {"Large, PopQA"}
    trust = comparison_card(compared, readings, read_across(compared.runs)).trust
    assert trust is not None
    assert trust.verdict == "no"
    assert "Large" in trust.reason
    assert "controls passed" in trust.reason


def test_inconclusive_controls_are_not_called_passed(compared: Compared) -> None:
    wide = run("Wide", 0.4, datasets=("popqa",), half=0.2)
    readings = {"Wide": read(wide)}
    alone = Compared((wide,))
    trust = comparison_card(alone, readings, []).trust
    assert trust is not None
    assert trust.verdict != "yes"
    assert "inconclusive" in trust.reason
    assert marks(alone, readings, "?") == {"Wide, PopQA"}


def test_the_table_has_a_row_for_every_run_and_dataset(compared: Compared) -> None:
    table = runs_table(compared, {one.model: read(one) for one in compared.runs})
    assert [row[:2] for row in table.rows] == [
        ("PopQA", "Small"),
        ("PopQA", "Large"),
        ("NQ", "Small"),
    ]
    assert {len(row) for row in table.rows} == {len(table.head)}
    assert table.rows[1][4] == "70% [67, 73]"
    old = Compared((model_findings("Old", datasets=("popqa",)),))
    assert runs_table(old, {"Old": read(old.runs[0])}).rows[0][4] == "–"


def test_the_same_model_twice_is_not_called_another(compared: Compared) -> None:
    small = run()
    same = Compared((small, replace(small, model="Small (2)")), same_weights=True)
    assert setting_words(same).endswith("All of them have the same model.")
    assert setting_words(replace(same, flags=compared.flags)).endswith(
        "They differ in seed and site."
    )
