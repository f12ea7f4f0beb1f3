"""Every page opens in a real browser, on a desk and on a phone: a headline, its charts, nothing wider than the window.

Errors on a page's console and requests to anybody else fail the test (`browser_fixtures`). What the pages let a reader
do is tested in `tests/nightly/browser`.
"""

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import playwright.sync_api as playwright
import pytest

from anchorscope.report.answer_card import answer_card
from anchorscope.report.checks import read
from anchorscope.viewing import ViewServer
from browser_fixtures import OpenPage, OpenServed, check
from browser_pages import PAGES, write_page
from compared_runs import write_run
from report_shares import run_with_shares
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


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    runs = tmp_path_factory.mktemp("runs")
    findings = run_with_shares(datasets=("popqa",))
    for name in ("one", "two"):
        card = json.dumps(answer_card(findings, read(findings)).record())
        folder = write_run(runs / name, findings, answer=card)
        (folder / "report.html").write_text(
            f"<!doctype html><html lang=en><title>{name}</title><h1>Report {name}</h1>"
        )
    with ViewServer(runs) as server:
        serving = threading.Thread(
            target=server.serve_forever, kwargs={"poll_interval": 0.05}
        )
        serving.start()
        yield server.address
        server.shutdown()
        serving.join()


def test_the_table_of_runs_sorts_and_reports_open(
    open_served: OpenServed, address: str
) -> None:
    page = open_served(address)
    assert page.locator("tbody tr").count() == 2
    assert fits(page)
    page.get_by_role("link", name="AUC of the probe").click()
    assert "sort=auc" in page.url
    page.locator("tbody a").first.click()
    assert page.locator("h1").inner_text().startswith("Report ")
