"""The page of the detectors in a browser: it opens without a complaint, and its table filters and sorts."""

from pathlib import Path

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
    assert len(_column(other, "detector")) == 2 * 4


def test_without_a_script_the_printed_table_is_open(report, open_page):
    plain = open_page(report, java_script_enabled=False)
    assert plain.locator("details.printed[open] table").count() == 1
    assert not plain.locator(TABLE).is_visible()
