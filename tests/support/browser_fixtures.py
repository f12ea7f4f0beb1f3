"""A real browser for the tests of the pages: Debian's chromium, driven by Playwright.

Playwright's own browsers are not fetched. Every page is watched: an error on its console, an uncaught exception, or any
request that is not for a file or for embedded data fails the test in which it happened.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import playwright.sync_api as playwright
import pytest

import needs

ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
LONGEST_WAIT_MS = 5_000

OpenPage = OpenServed = Callable[..., playwright.Page]


@pytest.fixture(scope="session")
def browser() -> Iterator[playwright.Browser]:
    executable = needs.chromium()
    with playwright.sync_playwright() as driver:
        running = driver.chromium.launch(executable_path=executable, args=ARGUMENTS)
        yield running
        running.close()


@pytest.fixture(scope="session")
def complaints() -> list[str]:
    """What the watched pages have done wrong since the last test."""
    return []


@pytest.fixture(autouse=True)
def _nothing_to_complain_of(complaints: list[str]) -> Iterator[None]:
    yield
    found = list(complaints)
    complaints.clear()
    assert found == []


@pytest.fixture(scope="module")
def open_page(browser: playwright.Browser, complaints: list[str]) -> Iterator[OpenPage]:
    """open_page(file, fragment="", **options of the browser context) gives the page, watched."""
    contexts = []

    def opened(file: Path, fragment: str = "", **options: object) -> playwright.Page:
        usual = {"viewport": {"width": 1200, "height": 900}, "reduced_motion": "reduce"}
        context = browser.new_context(**usual | options)
        contexts.append(context)
        context.set_default_timeout(LONGEST_WAIT_MS)
        page = context.new_page()
        _watch(page, complaints)
        page.goto(file.resolve().as_uri() + (f"#{fragment}" if fragment else ""))
        return page

    yield opened
    for context in contexts:
        context.close()


def _watch(page: playwright.Page, complaints: list[str]) -> None:
    def heard(message: playwright.ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            complaints.append(f"console: {message.text}")

    def asked(request: playwright.Request) -> None:
        if not request.url.startswith(("file:", "data:", "blob:")):
            complaints.append(f"asks for {request.url[:200]}")

    page.on("pageerror", lambda error: complaints.append(f"error: {error}"))
    page.on("console", heard)
    page.on("request", asked)


@pytest.fixture
def open_served(browser: playwright.Browser, served: Any, complaints: list[str]) -> Iterator[OpenServed]:
    """Opens the page; what it asks of anybody else, and whatever its console says, fails the test."""
    contexts = []

    def opened(address: str = "", expected: tuple[str, ...] = (), **options: object) -> playwright.Page:
        own = address or served.address
        usual = {"viewport": {"width": 1200, "height": 900}, "reduced_motion": "reduce"}
        context = browser.new_context(**usual | options)
        contexts.append(context)
        context.set_default_timeout(8_000)
        page = context.new_page()
        page.on("request", lambda one: complaints.append(one.url) if not one.url.startswith((own, "data:")) else None)
        page.on("pageerror", lambda error: complaints.append(f"error: {error}"))
        page.on(
            "console",
            lambda said: (
                complaints.append(said.text)
                if said.type in ("error", "warning") and not any(part in said.text for part in expected)
                else None
            ),
        )
        page.goto(own)
        return page

    yield opened
    for context in contexts:
        context.close()


def check(page: playwright.Page, question: str, *answers: str) -> None:
    page.get_by_label("Check an answer").check()
    page.fill("#question", question)
    page.fill("#answer-0", answers[0])
    if len(answers) > 1:
        page.click("#compare")
        page.fill("#answer-1", answers[1])
    page.click("#go")
    page.wait_for_selector("#depends:not([hidden]) #reading:not(:empty)")
