"""The list of `anchorscope view` in a real browser: cards, reports that open, nothing wider than a phone."""

import json
import threading
from collections.abc import Iterator

import playwright.sync_api as playwright
import pytest

from anchorscope.report.answer_card import answer_card
from anchorscope.report.statements import read
from anchorscope.viewing.server import ViewServer
from compared_runs import write_run
from report_shares import run_with_shares


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    runs = tmp_path_factory.mktemp("runs")
    findings = run_with_shares(datasets=("popqa",))
    for name in ("one", "two"):
        card = json.dumps(answer_card(findings, read(findings)).record())
        folder = write_run(runs / name, findings, answer=card)
        (folder / "report.html").write_text(f"<!doctype html><html lang=en><title>{name}</title><h1>Report {name}</h1>")
    with ViewServer(runs) as server:
        serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        serving.start()
        yield server.address
        server.shutdown()
        serving.join()


@pytest.mark.parametrize("width", [1440, 390])
def test_the_newest_card_is_open_and_reports_open(browser: playwright.Browser, address: str, width: int) -> None:
    context = browser.new_context(viewport={"width": width, "height": 844})
    try:
        page = context.new_page()
        heard: list[str] = []
        page.on("console", lambda message: heard.append(message.text))
        page.on("pageerror", lambda error: heard.append(str(error)))
        page.goto(address)
        assert page.locator("article").count() == 2
        assert page.locator("details[open]").count() == 1
        assert page.locator("details[open] .tile").count() == 4
        page.locator("details:not([open]) summary").click()
        assert page.locator("details[open] .tile:visible").count() == 8
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        page.locator("article a").first.click()
        assert page.locator("h1").inner_text().startswith("Report ")
        page.go_back()
        assert page.locator("h1").inner_text().startswith("Results in ")
        assert heard == []
    finally:
        context.close()
