"""The page of a study: the answer per model, the grid, the spread over seeds, what failed, a way to every run."""

import re
from pathlib import Path

import polars as pl
import pytest

from anchorscope.progress import Silent
from anchorscope.report.answer_card import answer_card
from anchorscope.report.statements import read
from anchorscope.report.study import study_page
from anchorscope.report.study import study_tables as text
from anchorscope.report.study.studied import ShownRun, Studied, auc, share
from compared_runs import model_findings, with_random
from report_shares import World, with_shares

DATASETS = ("popqa", "triviaqa")
MARKUP = "<img src=x onerror=alert(1)>"


def shown(model: str, seed: int, level: float, random_weights: bool = False) -> ShownRun:
    made = model_findings(model, layers=30, datasets=DATASETS, random_weights=random_weights)
    found = with_shares(with_random(made), World(together=level))
    card = answer_card(found, read(found))
    name = f"{model}-seed{seed}"
    return ShownRun(name, model, "few-shot", seed, "done", None, f"runs/{name}/report.html", found, card)


@pytest.fixture(scope="module")
def studied() -> Studied:
    runs = (
        shown("small", 0, 0.3),
        shown("small", 1, 0.4),
        shown("large", 0, 0.6),
        ShownRun("large-seed1", "large", "few-shot", 1, "failed", f"12 true answers {MARKUP}; ask more questions"),
        ShownRun("none-seed0", "none", "few-shot", 0, "waiting"),
    )
    return Studied("sizes", runs, (), "anchorscope study run runs/s/study.toml --out runs/s")


def cells(table: text.Table, row: str) -> list[str]:
    return next(list(one) for one in table.rows if one[0] == row)


def test_a_cell_is_one_run_with_its_interval_or_several_with_their_range(studied: Studied) -> None:
    (one,) = studied.measured(studied.of("large"), "popqa", share)
    grid = text.share_grid(studied)
    assert grid.head == ("model", "PopQA", "TriviaQA")
    assert cells(grid, "large")[1] == f"{100 * one.value:.0f}\u00a0% [{100 * one.ci_low:.0f}, {100 * one.ci_high:.0f}]"
    two = sorted(100 * one.value for one in studied.measured(studied.of("small"), "popqa", share))
    mean = f"{sum(two) / 2:.0f}\u00a0%"
    assert cells(grid, "small")[1] == f"{mean} ({two[0]:.0f}\u00a0% to {two[1]:.0f}\u00a0%)"
    (probe,) = studied.measured(studied.of("large"), "triviaqa", auc)
    assert cells(text.auc_grid(studied), "large")[2].startswith(f"{probe.value:.2f} [")
    assert [row[1] for row in text.spread_table(studied).rows] == ["small", "small"]
    assert cells(text.answers_table(studied), "small")[-1] == "2"


def test_the_page_tells_it_all_and_lets_no_markup_in(studied: Studied, tmp_path: Path) -> None:
    study_page.write_study_page(studied, tmp_path, Silent())
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert MARKUP not in page
    assert MARKUP not in (tmp_path / "report.md").read_text(encoding="utf-8")
    assert "12 true answers &lt;img" in page
    assert set(re.findall(r'href="(runs/[^"]+)"', page)) == {run.page for run in studied.done}
    assert 'id="compare-share"' in page
    names = {path.stem for path in (tmp_path / "figures").glob("*.svg")}
    assert names == {"study_shares", "evidence_bars", "delta_p"}
    drawn = pl.read_csv(tmp_path / "figures" / "study_shares.csv")
    assert drawn["first"].sum() == 2 * len(DATASETS)
    table = pl.read_csv(tmp_path / "summary.csv")
    assert table["run"].to_list() == ["small-seed0"] * 2 + ["small-seed1"] * 2 + ["large-seed0"] * 2 + [
        "large-seed1",
        "none-seed0",
    ]
    by_hand = studied.measured(studied.of("large"), "popqa", share)[0]
    row = table.filter((pl.col("run") == "large-seed0") & (pl.col("dataset") == "popqa")).row(0, named=True)
    assert (row["needs_question"], row["needs_question_low"]) == pytest.approx((by_hand.value, by_hand.ci_low))
