"""Every page opens in a real browser, on a desk and on a phone: a headline, its charts, nothing wider than the window.

Errors on a page's console and requests to anybody else fail the test (`browser_fixtures`). What the pages let a reader
do is tested in `tests/nightly/browser`.
"""

import shlex
from pathlib import Path

import playwright.sync_api as playwright
import pytest

from browser_fixtures import OpenPage, OpenServed, check
from browser_pages import HOSTILE_NAME, MARKUP, PAGES, write_page
from serve_fixtures import *  # noqa: F403


def fits(page: playwright.Page) -> bool:
    """Whether nothing is wider than the window, on a desk and on a phone."""
    for width in (1440, 390):
        page.set_viewport_size({"width": width, "height": 844})
        if page.evaluate("document.documentElement.scrollWidth") > width:
            return False
    return True


@pytest.mark.parametrize("kind", PAGES)
def test_a_written_page_opens(kind: str, open_page: OpenPage, tmp_path: Path) -> None:
    page = open_page(write_page(kind, tmp_path))
    assert page.locator("h1").first.is_visible()
    assert page.locator("table").count() > 0
    assert fits(page)


def test_the_service_checks_an_answer_on_its_page(open_served: OpenServed) -> None:
    page = open_served()
    check(page, "What is the capital of Peru?", "Lima")
    assert fits(page)


def texts(page: playwright.Page, column: int) -> list[str]:
    cells = page.locator(f"#results tbody tr:visible td:nth-child({column})")
    return [text.split("\n")[0] for text in cells.all_inner_texts()]


def test_the_table_of_runs_sorts_and_filters_and_reports_open(
    open_page: OpenPage, tmp_path: Path
) -> None:
    page = open_page(write_page("view", tmp_path))
    assert fits(page)
    assert page.locator(".count").inner_text() == "5 results"
    page.get_by_role("button", name="AUC of the probe").click()
    aucs = texts(page, 7)
    assert aucs == [*sorted(aucs[:3]), "–", "–"]
    assert len(set(aucs[:3])) == 3
    page.get_by_role("button", name="AUC of the probe").click()
    assert texts(page, 7) == [*aucs[2::-1], "–", "–"]
    page.get_by_label("filter").fill("run PopQA 0.71")
    assert texts(page, 2) == ["one"]
    assert page.locator(".count").inner_text() == "1 of 5 results"
    page.get_by_role("link", name="one").click()
    assert page.locator("h1").inner_text() == "Report one"


def test_ticked_runs_give_the_command_that_compares_them(
    open_page: OpenPage, tmp_path: Path
) -> None:
    page = open_page(write_page("view", tmp_path))
    assert page.title() != "run"
    assert page.locator("#results img").count() == 0
    assert MARKUP in page.locator("#results").inner_text()
    command = page.locator("#compare pre")
    names = ("one", HOSTILE_NAME)
    page.get_by_label(f"Compare {names[0]}", exact=True).check()
    assert "tick another" in page.locator("#compare").inner_text()
    assert command.is_hidden()
    page.get_by_label(f"Compare {names[1]}", exact=True).check()
    *words, out = shlex.split(command.inner_text())
    runs = {str(tmp_path / name) for name in names}
    assert words[:2] == ["anchorscope", "compare"]
    assert set(words[2:4]) == runs
    assert words[4:] == ["--out"]
    assert Path(out).parent == tmp_path
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.get_by_role("button", name="Copy the command").click()
    page.get_by_text("Copied.").wait_for()
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied == command.inner_text()
