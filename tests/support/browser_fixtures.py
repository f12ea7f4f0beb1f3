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
LONGEST_WAIT_MS = 30_000

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


class _Pages:
    """Opens pages in contexts of their own, and closes these in the end."""

    def __init__(self, browser: playwright.Browser, complaints: list[str]) -> None:
        self._browser, self._complaints = browser, complaints
        self._contexts: list[playwright.BrowserContext] = []

    def open(
        self,
        address: str,
        own: tuple[str, ...],
        expected: tuple[str, ...],
        **options: object,
    ) -> playwright.Page:
        """What the page asks of anybody else, and whatever its console says, fails the test."""
        usual = {"viewport": {"width": 1200, "height": 900}, "reduced_motion": "reduce"}
        context = self._browser.new_context(**usual | options)
        self._contexts.append(context)
        context.set_default_timeout(LONGEST_WAIT_MS)
        page = context.new_page()

        def heard(message: playwright.ConsoleMessage) -> None:
            if message.type in ("error", "warning") and not any(
                part in message.text for part in expected
            ):
                self._complaints.append(f"console: {message.text}")

        def asked(request: playwright.Request) -> None:
            if not request.url.startswith(own):
                self._complaints.append(f"asks for {request.url[:200]}")

        page.on("pageerror", lambda error: self._complaints.append(f"error: {error}"))
        page.on("console", heard)
        page.on("request", asked)
        page.goto(address)
        return page

    def close(self) -> None:
        for context in self._contexts:
            context.close()


@pytest.fixture(scope="module")
def open_page(browser: playwright.Browser, complaints: list[str]) -> Iterator[OpenPage]:
    """open_page(file, fragment="", **options of the browser context) gives the page, watched."""
    pages = _Pages(browser, complaints)

    def opened(file: Path, fragment: str = "", **options: object) -> playwright.Page:
        address = file.resolve().as_uri() + (f"#{fragment}" if fragment else "")
        return pages.open(address, ("file:", "data:", "blob:"), (), **options)

    yield opened
    pages.close()


@pytest.fixture
def open_served(
    browser: playwright.Browser, served: Any, complaints: list[str]
) -> Iterator[OpenServed]:
    """open_served(address of another service, expected=parts of console lines, **options) gives its page, watched."""
    pages = _Pages(browser, complaints)

    def opened(
        address: str = "", expected: tuple[str, ...] = (), **options: object
    ) -> playwright.Page:
        own = address or served.address
        return pages.open(own, (own, "data:"), expected, **options)

    yield opened
    pages.close()


def check(page: playwright.Page, question: str, *answers: str) -> None:
    page.get_by_label("Check an answer").check()
    page.fill("#question", question)
    page.fill("#answer-0", answers[0])
    if len(answers) > 1:
        page.click("#compare")
        page.fill("#answer-1", answers[1])
    page.click("#go")
    page.wait_for_selector("#depends:not([hidden]) #reading:not(:empty)")
