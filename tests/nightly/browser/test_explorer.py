"""The explorer of single items in a browser: finds, filters, opens, marks, and shows other people's text as text."""

from pathlib import Path

import numpy as np
import pytest

from anchorscope.report.items.item_records import record, records
from browser_pages import write_run
from report_items_synthetic import make_items, with_texts

playwright = pytest.importorskip("playwright.sync_api")

MARKUP = "<img src=x onerror=\"document.title='run'\"></script><script>document.title='run'</script>"
EVIL = f"Who, 🦊, {MARKUP} wrote <b>Emma</b> & co?"


@pytest.fixture(scope="module")
def findings():
    found, _ = make_items(n=60)
    words = [[EVIL.index("🦊"), EVIL.index("🦊") + 1], [EVIL.index("<b>"), EVIL.index("</b>")]]
    return with_texts(
        found,
        7,
        question=EVIL,
        question_words=words,
        model_answer=MARKUP,
        answers=[MARKUP],
        subject=MARKUP,
        relation=MARKUP,
        item_id=f"a/b {MARKUP}",
        status=MARKUP,
    )


@pytest.fixture(scope="module")
def report(findings, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("explorer")
    return write_run(findings, folder)


@pytest.fixture(scope="module")
def page(report, open_page):
    return open_page(report)


@pytest.fixture(autouse=True)
def _as_it_was(request):
    """Tests share one page: each begins without search and filters, at the first item."""
    if "page" in request.fixturenames:
        page = request.getfixturevalue("page")
        page.evaluate(
            """() => document.querySelectorAll(".explorer-controls select").forEach((list) => {
              list.selectedIndex = 0;
              list.dispatchEvent(new Event("change"));
            })"""
        )
        page.fill("#item-search", "")
        page.locator(".item-list").press("Home")


def chosen(page) -> str:
    return page.locator(".item-name code").text_content()


def choose(page, label: str, value: str) -> None:
    page.locator(".explorer-controls").get_by_label(label, exact=True).select_option(value)


def count(page) -> str:
    return page.locator(".explorer-list .count").text_content()


def test_the_numbers_are_those_of_the_item(page, findings):
    item = record(findings, "popqa", "popqa-0")
    for effect in item.effects:
        row = page.locator(f"tr[data-intervention={effect.intervention}]")
        number = row.locator("td.number").nth(1).text_content()
        assert float(number.replace("−", "-")) == pytest.approx(effect.delta_p_reference, abs=0.051)
        assert ("flips" in row.inner_text()) == (effect.flips > 0)
    chart = page.locator(".item-chart .chart")
    chart.focus()
    for _ in range(4):
        chart.press("ArrowRight")
    shown = [
        float(page.locator(f".item-chart .readout tr[data-series={name}] .value").text_content())
        for name in ("untouched", "knockout")
    ]
    sign = 1 if item.truthful else -1
    for value, log_odds in zip(shown, (item.effects[0].log_odds_before, item.effects[0].log_odds_after), strict=True):
        assert value == pytest.approx(100 / (1 + np.exp(-sign * log_odds[3])), abs=0.061), "of the true label"
    lines = page.locator(".item-chart .plot g.series")
    assert lines.count() == 4, "untouched, the knockout, random and nothing cut"
    page.locator("button[data-curve=patch-same]").click()
    assert lines.count() == 5
    page.locator(".steps button").nth(1).click()
    assert page.locator("button[data-curve=patch-same]").get_attribute("aria-pressed") == "true", (
        "kept from item to item"
    )
    page.locator("button[data-curve=patch-same]").click()


def test_search_finds_words_in_any_order_without_accents(page):
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") == "item-search"
    page.keyboard.type("NUMBER 13? sao")
    assert count(page) == "2 of 124 items"
    assert chosen(page) == "popqa-13"
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    assert chosen(page) == "triviaqa-13"
    page.fill("#item-search", "no such item anywhere")
    assert count(page) == "0 of 124 items"
    assert "No item fits" in page.locator(".item-list").text_content()


def test_filters_and_sorting(page, findings):
    found = [one for one in records(findings) if one.dataset == "triviaqa"]
    choose(page, "dataset", "triviaqa")
    choose(page, "answer", "false")
    choose(page, "pathway", "Q-Anchored")
    fitting = [one for one in found if one.truthful is False and one.pathways.get("plain") == "Q-Anchored"]
    assert count(page) == f"{len(fitting)} of 124 items"
    choose(page, "rule", "corrected")
    other = [one for one in found if one.truthful is False and one.pathways.get("corrected") == "Q-Anchored"]
    assert count(page) == f"{len(other)} of 124 items"
    assert {one.item_id for one in other} != {one.item_id for one in fitting}
    choose(page, "pathway", "")
    choose(page, "answer", "")
    choose(page, "status", "used")
    choose(page, "sorted by", "delta up")
    page.locator(".item-list").press("Home")
    deltas = {one.item_id: one.effects[0].delta_p_reference for one in found if one.status == "used"}
    assert chosen(page) == min(deltas, key=deltas.get)
    page.locator(".item-list").press("End")
    assert chosen(page) == max(deltas, key=deltas.get)
    choose(page, "sorted by", "id")
    page.locator(".item-list").press("Home")
    page.locator(".item-list").press("ArrowDown")
    assert chosen(page) == "triviaqa-1", "numbers in ids count as numbers"


def test_other_peoples_text_stays_text(page, findings):
    title = page.title()
    page.fill("#item-search", "emma")
    assert count(page) == "1 of 124 items"
    assert page.locator(".item-body .question").text_content() == EVIL
    assert page.locator(".item-body mark").all_text_contents() == ["🦊", "<b>Emma"]
    assert page.locator(".item-body q").text_content() == MARKUP
    assert page.locator("#explorer img, #explorer script, #explorer b").count() == 0
    assert page.title() == title


def test_an_item_has_an_address(report, open_page, page):
    named = open_page(report, "item=triviaqa/triviaqa-11")
    assert chosen(named) == "triviaqa-11"
    assert named.locator("[role=option][aria-selected=true]").is_visible()
    named.fill("#item-search", "number 12?")
    named.wait_for_url(lambda url: url.endswith("#item=popqa/popqa-12"))
    named.evaluate("location.hash = 'item=popqa/popqa-3'")
    playwright.expect(named.locator(".item-name code")).to_have_text("popqa-3")
    assert named.locator("#item-search").input_value() == "", "an item that the filters hide is shown all the same"
    named.evaluate("location.hash = 'item=popqa/nobody'")
    playwright.expect(named.locator("#announcement")).to_have_text("The item popqa/nobody is not in this page.")
    assert chosen(named) == "popqa-3"
    page.fill("#item-search", "emma")
    page.wait_for_url(lambda url: "#item=popqa/a/b" in url)
    named.evaluate("(text) => { location.hash = text; }", page.url.split("#")[1])
    playwright.expect(named.locator(".item-name code")).to_have_text(f"a/b {MARKUP}")
