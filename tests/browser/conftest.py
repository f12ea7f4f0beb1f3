"""A real browser for the tests of the pages: Debian's chromium, driven by Playwright.

Playwright's own browsers are not fetched. Every page is watched: an error on its console, an uncaught exception, or any
request that is not for a file or for embedded data fails the test in which it happened.
"""

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import playwright.sync_api as playwright
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "report"))  # the synthetic findings of the report's tests
sys.path.insert(0, str(Path(__file__).parent))

NAMES = ("chromium", "chromium-browser", "google-chrome")
ARGUMENTS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip
LONGEST_WAIT_MS = 5_000

OpenPage = Callable[..., playwright.Page]


def _chromium() -> str | None:
    named = os.environ.get("ANCHORSCOPE_CHROMIUM")
    return named or next((found for name in NAMES if (found := shutil.which(name))), None)


@pytest.fixture(scope="session")
def browser() -> Iterator[playwright.Browser]:
    """One browser for all tests."""
    executable = _chromium()
    if executable is None:
        pytest.skip(f"no browser: none of {', '.join(NAMES)} is installed and ANCHORSCOPE_CHROMIUM is not set")
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
