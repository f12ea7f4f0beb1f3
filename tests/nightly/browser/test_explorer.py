"""The explorer of single items in a browser: finds, filters, opens, marks, and shows other people's text as text."""

import base64
from pathlib import Path

import numpy as np
import pytest

from anchorscope.report.items.explorer_data import item_data
from anchorscope.report.items.item_records import record, records
from anchorscope.report.page_writer import embedded_json
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


def test_a_line_of_the_chart_leads_to_its_items(report, findings, open_page):
    opened = open_page(report)
    opened.get_by_role("button", name="Items behind Q-Anchored (TriviaQA)").click()
    mine = [one for one in records(findings) if one.dataset == "triviaqa"]
    found = [one for one in mine if one.pathways.get("plain") == "Q-Anchored"]
    assert count(opened) == f"{len(found)} of 124 items"
    assert chosen(opened) == found[0].item_id
    assert opened.evaluate("document.activeElement.className") == "item-list", "the keyboard goes on there"
    opened.evaluate("location.hash = 'dp-rule=corrected&dp-truth=true'")
    opened.locator("#delta-p-view").get_by_role("radio", name="corrected").and_(opened.locator(":checked")).wait_for()
    ring = opened.locator("#delta-p-view .ring[data-series='a0']")
    ring.scroll_into_view_if_needed()
    ring.hover()
    ring.click()  # a line leads there as well
    some = [
        one
        for one in records(findings)
        if one.dataset == "popqa" and one.truthful and one.pathways.get("corrected") == "A-Anchored"
    ]
    assert count(opened) == f"{len(some)} of 124 items"


def test_the_list_by_keyboard(page):
    items = page.locator(".item-list")
    for key, expected in (
        ("ArrowDown", "popqa-1"),
        ("ArrowDown", "popqa-2"),
        ("ArrowUp", "popqa-1"),
        ("Home", "popqa-0"),
    ):
        items.press(key)
        assert chosen(page) == expected
        active = page.locator(f"#{items.get_attribute('aria-activedescendant')}")
        assert active.get_attribute("aria-selected") == "true"
        assert page.locator("[role=option][aria-selected=true]").count() == 1
    items.press("End")
    assert page.locator(".item-body").inner_text().count("It was not used") == 1
    last = page.locator("[role=option][aria-selected=true]")
    assert last.get_attribute("aria-posinset") == last.get_attribute("aria-setsize") == "124"
    assert last.is_visible()
    assert page.locator(".steps button").nth(1).is_disabled()
    items.press("Enter")
    assert page.evaluate("document.activeElement.className") == "item-body"


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


def test_six_thousand_items_stay_fluid(findings, report, open_page, tmp_path):
    before, _, rest = report.read_text().partition('id="item-data">')
    _, end, after = rest.partition("</script>")
    large = tmp_path / "large.html"
    large.write_text(f'{before}id="item-data">{embedded_json(many(item_data(findings), 50))}{end}{after}')
    page = open_page(large)
    assert count(page) == "6200 items"
    assert page.locator(".item-row").count() < 60
    page.fill("#item-search", "number")  # the first search makes the text that is searched
    took = page.evaluate(
        """() => {
          const box = document.getElementById("item-search");
          const began = performance.now();
          for (const text of ["sao", "sao 3", "sao 13", "bern", ""]) {
            box.value = text;
            box.dispatchEvent(new Event("input"));
          }
          return (performance.now() - began) / 5;
        }"""
    )
    assert took < 400, "milliseconds; 20 on a free machine"
    page.locator(".item-list").press("End")
    assert page.locator("[role=option][aria-selected=true]").get_attribute("aria-posinset") == "6200"


def many(data: dict, times: int) -> dict:
    """The same items over and over, under other ids."""
    items = data["items"]
    size = len(items["id"])
    longer = {name: values * times for name, values in items.items() if isinstance(values, list)}
    longer |= {name: coded | {"of": coded["of"] * times} for name, coded in items.items() if "of" in coded}
    longer["pathways"] = {rule: coded | {"of": coded["of"] * times} for rule, coded in items["pathways"].items()}
    longer["id"] = [f"{name}-{turn}" for turn in range(times) for name in items["id"]]
    interventions = []
    for one in data["interventions"]:
        rows = np.arange(one["count"]) if one["rows"] is None else np.frombuffer(base64.b64decode(one["rows"]), "<u4")
        every = (rows[None] + size * np.arange(times)[:, None]).astype("<u4")
        repeated = {name: base64.b64encode(base64.b64decode(one[name]) * times).decode() for name in ("at", "curves")}
        lists = {name: one[name] * times for name in ("n_cut", "runs", "flips") if isinstance(one[name], list)}
        about = {"rows": base64.b64encode(every.tobytes()).decode(), "count": every.size}
        interventions.append(one | repeated | lists | about)
    return data | {"items": longer, "interventions": interventions, "total": size * times}
