"""The page of `anchorscope serve` in a real browser, on a real server with a tiny model."""

import re

import pytest
from axe_playwright_python.sync_playwright import Axe

from anchorscope.detectors.verdict import VERDICTS
from anchorscope.serve.guard import Keys
from browser_fixtures import OpenServed, check
from browser_pages import PALE
from running import Running
from serve_fixtures import *  # noqa: F403

HOSTILE = (
    "<script>window.hacked=1</script><img src=x onerror=window.hacked=1>\"'><svg/onload=window.hacked=1> "
    "\u202eabc\u202c ‏שלום‏ מה בירת פרו? {{7*7}} ${window.hacked=1} javascript:window.hacked=1"
)
KEY = "a-key-of-sixteen-letters"


def test_check_cut_and_compare(open_served: OpenServed) -> None:
    page = open_served()
    assert page.locator("#examples button").count() == 3
    check(page, "What is the capital of Peru?", "Lima")
    assert page.locator(".headline").inner_text() in VERDICTS
    assert "% likely to be true" in page.locator(".probability").inner_text()
    assert (
        "Of 40 answers that got 50–60% in testing, 61% were true."
        in page.locator(".verdict").inner_text()
    )
    assert page.locator(".cuttable.key").all_inner_texts() == ["capital", "Peru"]
    first = page.locator("#reading").inner_text()
    assert "Without the key words it gives" in first
    assert "As many random words" in first
    assert "mostly noise" in page.locator("#cautions").inner_text()
    page.locator(".cuttable.key").first.click()
    page.locator("#reading", has_text="Without “capital”").wait_for()
    page.locator(".cuttable", has_text="What").click()  # a set that was not run yet
    page.locator(
        "#reading", has_text="Without “What” and “capital” it gives"
    ).wait_for()
    assert page.locator(".cuttable[aria-pressed=true]").all_inner_texts() == [
        "What",
        "capital",
    ]
    page.click("#compare")
    page.fill("#answer-1", "Cusco")
    page.keyboard.press("Enter")
    page.wait_for_selector(".compared")
    assert page.locator(".verdict").count() == 2


def test_words_have_the_colour_of_the_text_that_they_stand_in(
    open_served: OpenServed,
) -> None:
    page = open_served()
    page.fill("#passage", "Ann Lee was its founder.")
    check(page, "Who founded Veltra?", "Veltra, by Ann Lee and Bob")
    assert (
        " the passage: without the passage it would be"
        in page.locator(".verdict").inner_text()
    )
    passage, question, answer = page.locator("#source-texts dd").all()
    assert passage.locator("mark.passage").all_inner_texts() == ["Ann", "Lee"]
    assert question.locator("mark.question").all_inner_texts() == ["Veltra"]
    assert answer.locator("mark.passage").all_inner_texts() == ["Ann", "Lee"]
    assert answer.locator("mark.question").all_inner_texts() == ["Veltra"]
    assert answer.locator("mark.own").all_inner_texts() == ["by", "and", "Bob"]
    page.fill("#passage", "")
    page.get_by_label("Ask the model").check()
    page.click("#go")
    page.locator("h3", has_text="The model's answer").wait_for()
    page.wait_for_selector("#depends:not([hidden]) #reading:not(:empty)")
    assert page.locator("#sources").is_hidden()


def test_ask_with_the_keyboard_alone(open_served: OpenServed) -> None:
    page = open_served()
    page.focus("#question")
    page.keyboard.type("What is the capital of Peru?")
    page.keyboard.press("Enter")
    page.wait_for_selector("#depends:not([hidden]) #reading:not(:empty)")
    assert page.locator(".verdict h3").inner_text() == "The model's answer"
    for _ in range(40):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.classList.contains('cuttable')"):
            break
    assert page.evaluate("document.activeElement.className").startswith("cuttable")
    page.keyboard.press("Space")
    assert (
        page.evaluate("document.activeElement.getAttribute('aria-pressed')") == "true"
    )


def test_hostile_text_is_text(open_served: OpenServed) -> None:
    page = open_served(expected=("413",), viewport={"width": 360, "height": 740})
    page.fill("#passage", HOSTILE[:32])
    check(page, HOSTILE + " " + "W" * 80, HOSTILE)
    assert page.evaluate("window.hacked") is None
    assert page.locator("main script, main img").count() == 0
    assert "<script>" in page.locator("#words").inner_text()
    assert "<script>" in page.locator(".answer").inner_text()
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    page.fill("#question", "W" * 30_000)
    page.click("#go")
    page.locator(
        "#state", has_text="The text"
    ).wait_for()  # too long, and the page says so
    assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_everybody_can_read_it(open_served: OpenServed) -> None:
    page = open_served(
        viewport={"width": 360, "height": 800}, color_scheme="dark", bypass_csp=True
    )
    page.fill("#passage", "Lima has been the capital of Peru since 1535.")
    check(page, "What is the capital of Peru?", "Lima", "Cusco")
    page.locator(".cuttable.key").first.click()
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    assert page.evaluate(PALE)["pale"] == []
    found = Axe().run(page).response["violations"]
    told = [
        f"{one['id']}: {node['html'][:160]}; {node['failureSummary']}"
        for one in found
        for node in one["nodes"]
    ]
    assert told == []
    page.set_viewport_size({"width": 1200, "height": 800})
    page.emulate_media(color_scheme="light")
    assert page.evaluate(PALE)["seen"] > 30
    assert page.evaluate(PALE)["pale"] == []
    assert page.evaluate("document.documentElement.scrollWidth") <= 1200


def test_a_key_is_asked_for_only_where_the_server_wants_one(
    open_served: OpenServed, served: Running
) -> None:
    assert open_served().locator("#key-form").is_hidden()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(served.server.keys, "_hashes", Keys((KEY,))._hashes)
        page = open_served(expected=("Failed to load resource",))
        page.wait_for_selector("#key-form:not([hidden])")
        page.fill("#key", "another-key-of-sixteen")
        page.keyboard.press("Enter")
        page.locator("#state", has_text="not known").wait_for()
        page.fill("#key", KEY)
        page.keyboard.press("Enter")
        page.locator("#model-name", has_text="tiny llama").wait_for()
        assert page.locator("#key-form").is_hidden()
        assert KEY not in page.content()


def test_the_page_is_closed_to_all_else(served: Running) -> None:
    answer = served.client.get("/")
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    text = answer.text
    assert "http://" not in text
    assert "https://" not in text
    assert " style=" not in text
    assert " onclick" not in text
    for name in ("page.html", "..%2Fpage.html", "report.html.j2", "secret"):
        assert served.client.get(f"/page/{name}").status_code == 404
    for name in re.findall(r'"/page/([^"]+)"', text):
        assert served.client.get(f"/page/{name}").status_code == 200
