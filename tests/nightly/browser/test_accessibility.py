"""Every page can be read by everybody: axe-core finds nothing, and a telephone's width clips nothing."""

import pytest
from axe_playwright_python.sync_playwright import Axe

from browser_pages import PAGES, PALE, write_page

WIDE, NARROW = {"width": 1440, "height": 900}, {"width": 390, "height": 844}


AXE = {
    "run": "dark",
    "compare": "dark",
    "detection": "light",
    "study": "light",
    "view": "light",
}
"""The look in which axe-core goes over a page. Nearly all of its time goes into contrasts, and only they differ between
looks: for both looks of every page they are taken here as well (`PALE`)."""


@pytest.mark.parametrize("kind", PAGES)
def test_everybody_can_read_it(kind, tmp_path, open_page):
    page = open_page(write_page(kind, tmp_path), viewport=NARROW, color_scheme="dark")
    page.evaluate(
        "document.querySelectorAll('details').forEach((one) => { one.open = true; })"
    )
    assert _clipped(page) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= NARROW["width"]
    page.evaluate(
        "document.querySelectorAll('tbody tr:nth-child(n + 3)').forEach((row) => row.remove())"
    )  # all alike
    for look in ("dark", "light"):
        if look == "light":
            page.set_viewport_size(WIDE)
            page.emulate_media(color_scheme="light")
        found = page.evaluate(PALE)
        assert found["seen"] > 30
        assert found["pale"] == [], look
        if look == AXE[kind]:
            assert _violations(page) == []


def test_pale_text_is_found(tmp_path, open_page):
    file = tmp_path / "page.html"
    file.write_text(
        "<!doctype html><html lang=en><title>x</title>"
        "<p style='color: #777'>on white 4.48</p><p style='color: #767676'>on white 4.54</p>"
        "<p style='color: #949494; font-size: 24px'>large 3.03</p><p style='color: #959595; font-size: 24px'>2.996</p>"
        "<div style='background: #000'><p style='color: rgb(255 255 255 / 40%)'>through 3.66</p></div>",
        encoding="utf-8",
    )
    page = open_page(file)
    assert [round(ratio, 2) for ratio, *_ in page.evaluate(PALE)["pale"]] == [
        4.48,
        3.0,
        3.66,
    ]


def _violations(page) -> list[str]:
    found = Axe().run(page).response["violations"]
    return [
        f"{one['id']}: {node['html'][:160]}; {node['failureSummary']}"
        for one in found
        for node in one["nodes"]
    ]


def _clipped(page) -> list[str]:
    """What reaches beyond the page, and does not lie in a box of its own that scrolls."""
    return page.evaluate(
        """() => [...document.querySelectorAll("main *")].filter((one) => {
          const box = one.getBoundingClientRect();
          const scrolls = one.closest(".scroll, pre, .plate, [hidden]");
          return box.width && box.right > innerWidth + 1 && !scrolls && !one.closest("svg");
        }).map((one) => `${one.tagName} ${one.className} ${one.textContent.slice(0, 60)}`)"""
    )
