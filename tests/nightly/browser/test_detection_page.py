"""The page of the detectors in a browser: it opens without a complaint, and its table filters and sorts."""

from itertools import pairwise
from pathlib import Path

import polars as pl
import pytest

from anchorscope.report.detection import detection_page
from detection_synthetic import World, write_world

TABLE = "#detector-table"


@pytest.fixture(scope="module")
def report(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("detection_page")
    context = write_world(World(datasets=("popqa", "nq")), folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(detection_page, "save_all", lambda *_: None)  # the printed figures take the time
        detection_page.write_detection_report(folder, context)
    return folder / "report.html"


@pytest.fixture(scope="module")
def page(report, open_page):
    return open_page(report)


def _column(page, title: str) -> list[str]:
    heads = [text.rstrip(" ↓↑") for text in page.locator(f"{TABLE} th").all_inner_texts()]
    return page.locator(f"{TABLE} tbody td:nth-child({heads.index(title) + 1})").all_inner_texts()


def _number(text: str) -> float:
    return float(text.split(" ")[0].replace("−", "-"))


def test_the_answer_and_four_tiles_come_first(page):
    assert page.locator("header .sentence").inner_text().startswith("Use probe+confidence: AUROC 0.845")
    assert page.locator(".tile .asked span:last-child").all_inner_texts() == [
        "Is one worth its passes?",
        "Do pathways add to probe+confidence?",
        "Does it serve on other data?",
        "Are calibration and controls in order?",
    ]


def test_the_table_starts_with_the_best_on_their_own_data(page, report):
    values = [_number(text) for text in _column(page, "AUROC")]
    assert values == sorted(values, reverse=True)
    rows = pl.read_csv(report.parent / "detectors.csv").filter(
        (pl.col("metric") == "auroc") & (pl.col("prevalence") == "balanced") & (pl.col("train") == pl.col("test"))
    )
    assert len(values) == 2 * 12  # datasets × detectors that are neither baseline nor variant
    assert values[0] == pytest.approx(rows.filter(pl.col("detector") == "counterfactual")["value"].max(), abs=5e-4)
    assert not page.locator("details.printed").first.get_attribute("open")


def test_filters_and_sorting(page):
    page.locator(TABLE).get_by_label("Metric").select_option("ece")
    page.locator(TABLE).get_by_label("Tested on").select_option(label="NQ")
    page.locator(TABLE).get_by_label("Learned from").select_option(label="PopQA")
    page.locator(TABLE).get_by_role("radio", name="natural").check()
    page.locator(TABLE).get_by_role("radio", name="Baselines").check()
    assert set(_column(page, "learned from")) == {"PopQA"}
    assert set(_column(page, "tested on")) == {"NQ"}
    assert len(_column(page, "detector")) == 10
    assert page.locator(f"{TABLE} th[aria-sort]").get_attribute("aria-sort") == "ascending", "less is better"
    assert "10 rows: ECE, natural prevalence." in page.locator(f"{TABLE} [role=status]").inner_text()
    page.locator(TABLE).get_by_role("button", name="passes").press("Enter")
    passes = [int(text) for text in _column(page, "passes")]
    assert passes == sorted(passes)
    assert page.evaluate("document.activeElement.dataset.column") == "passes", "the keyboard stays where it was"
    page.locator(TABLE).get_by_role("button", name="passes").click()
    assert [int(text) for text in _column(page, "passes")] == sorted(passes, reverse=True)
    assert "dt-kind=baseline" in page.url


def test_a_view_can_be_linked_and_nonsense_is_ignored(report, open_page):
    other = open_page(report, "dt-metric=brier&dt-kind=variant&dt-test=99&dt-sort=x", color_scheme="dark")
    assert other.locator(TABLE).get_by_label("Metric").input_value() == "brier"
    assert other.locator(TABLE).get_by_label("Tested on").input_value() == "every"
    assert len(_column(other, "detector")) == 2 * 19


def test_a_narrow_page_does_not_scroll_sideways(report, open_page):
    narrow = open_page(report, viewport={"width": 390, "height": 800})
    assert narrow.evaluate("document.documentElement.scrollWidth") <= 390
    boxes = [narrow.locator(".tile").nth(place).bounding_box() for place in range(2)]
    assert boxes[1]["y"] > boxes[0]["y"] + 50


def test_every_control_has_a_name_and_headings_go_down_by_one(page):
    unnamed = page.evaluate("""[...document.querySelectorAll('button, select, input, [role=region]')].filter((node) =>
        !(node.getAttribute('aria-label') || node.textContent.trim() || node.labels?.length)).length""")
    assert unnamed == 0
    heads = "[...document.querySelectorAll('main h1, main h2, main h3')]"
    levels = page.evaluate(f"{heads}.map((head) => Number(head.tagName[1]))")
    assert levels[0] == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))
    ids = page.evaluate("[...document.querySelectorAll('[id]')].map((node) => node.id)")
    assert len(ids) == len(set(ids))


def test_without_a_script_the_printed_table_is_open(report, open_page):
    plain = open_page(report, java_script_enabled=False)
    assert plain.locator("details.printed[open] table").count() == 2
    assert not plain.locator(TABLE).is_visible()
