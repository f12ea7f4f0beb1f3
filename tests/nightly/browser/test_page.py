"""The report in a browser: it opens, shows the numbers of its tables, sorts its items, and runs nobody else's code."""

from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

from anchorscope.report.charts import delta_p_chart
from browser_pages import MARKUP, write_run
from report_items_synthetic import make_items, with_texts
from report_shares import with_shares
from report_synthetic import make_findings

PICTURE = ".picture[data-figure='delta_p']"
FIRST_SCREEN = """() => {
  const texts = document.createTreeWalker(document.querySelector("main"), NodeFilter.SHOW_TEXT), shown = [];
  while (texts.nextNode()) {
    const text = texts.currentNode, owner = text.parentElement, range = document.createRange();
    if (!owner.checkVisibility({ opacityProperty: true }) || owner.closest("svg, code, style, script")) continue;
    for (const word of text.data.matchAll(/\\S+/g)) {
      range.setStart(text, word.index);
      range.setEnd(text, word.index + word[0].length);
      const box = range.getBoundingClientRect();
      if (box.height && box.top < innerHeight) shown.push(word[0]);
    }
  }
  return shown.join(" ");
}"""
"""The words of the first screen, without the labels of axes and without commands."""


@pytest.fixture(scope="module")
def findings():
    return with_shares(make_findings())


@pytest.fixture(scope="module")
def report(findings, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("page")
    delta_p_chart(findings).save(folder)  # one figure is enough
    return write_run(findings, folder)


@pytest.fixture(scope="module")
def page(report, open_page):
    return open_page(report)


def test_the_readout_says_what_the_table_says_and_does_not_cover_the_chart(
    page, findings
):
    page.locator(PICTURE).focus()
    for key in ("Home", *["ArrowRight"] * 12):
        page.keyboard.press(key)
    figure = page.locator("figure", has=page.locator(PICTURE))
    assert figure.locator(".readout .where").inner_text() == "Layer 12"
    rows = figure.locator(".readout tr").all()
    shown = {
        row.locator("th").inner_text(): row.locator(".value").inner_text()
        for row in rows
    }
    chosen = {"site": "mlp", "intervention": "knockout", "truth": "all", "layer": 12}
    for dataset, name in (("popqa", "PopQA"), ("triviaqa", "TriviaQA")):
        for group in ("Q-Anchored", "A-Anchored"):
            wanted = chosen | {"dataset": dataset, "group": group}
            curve = findings.curves.filter(
                *(pl.col(column) == value for column, value in wanted.items())
            )
            number = float(shown[f"{group} ({name})"].replace("−", "-"))
            assert number == pytest.approx(curve["delta_p"][0], abs=0.051)
    picture, readout = (
        page.locator(name).first.bounding_box() for name in (PICTURE, ".readout")
    )
    assert readout["y"] >= picture["y"] + picture["height"]
    page.keyboard.press("Escape")
    assert figure.locator(".readout").is_hidden()


def test_the_pointer_moves_the_cursor(page):
    box = page.locator(PICTURE).bounding_box()
    page.mouse.move(box["x"] + 0.55 * box["width"], box["y"] + box["height"] / 3)
    assert page.locator(f"{PICTURE} .cursor").is_visible()
    page.mouse.move(2, 2)
    assert page.locator(f"{PICTURE} .cursor").is_hidden()


def test_the_first_screen_is_the_answer(report, open_page):
    for width, height in ((1440, 900), (390, 844)):
        opened = open_page(report, viewport={"width": width, "height": height})
        shown = opened.evaluate(FIRST_SCREEN)
        assert len(shown.split()) <= 120, shown
        assert "Trust it?" in shown
        assert opened.locator(".answer-card .bars").bounding_box()["y"] < height
        assert opened.evaluate("document.documentElement.scrollWidth") <= width
    assert open_page(report).locator(PICTURE).bounding_box()["y"] < 500


def test_both_themes_and_no_scripts(page, report, open_page):
    ground = "getComputedStyle(document.body).backgroundColor"
    picture = "getComputedStyle(document.querySelector('.plate img')).filter"
    seen = {}
    for name in ("Light", "Dark"):
        page.get_by_role("button", name=name, exact=True).click()
        seen[name] = page.evaluate(ground), page.evaluate(picture)
    assert all(
        light != dark for light, dark in zip(seen["Light"], seen["Dark"], strict=True)
    )
    page.get_by_role("button", name="Auto", exact=True).click()
    assert open_page(report, color_scheme="dark").evaluate(ground) == seen["Dark"][0]
    assert (
        open_page(report, java_script_enabled=False)
        .locator(f"{PICTURE} img")
        .is_visible()
    )


@pytest.fixture(scope="module")
def items_page(tmp_path_factory, open_page):
    question = f"Who, 🦊, {MARKUP} wrote <b>Emma</b> & co?"
    words = [[question.index("<b>"), question.index("</b>")]]
    findings = with_texts(
        make_items(n=60)[0],
        7,
        question=question,
        question_words=words,
        model_answer=MARKUP,
        item_id=f"a/b {MARKUP}",
    )
    return open_page(write_run(findings, tmp_path_factory.mktemp("items")))


def test_items_sort_filter_and_open_and_the_view_is_in_the_address(
    items_page, open_page
):
    page = items_page
    table = page.locator("table.items")
    table.get_by_role("button", name="score, %").click()
    scores = [float(text) for text in table.locator("td.score").all_inner_texts()]
    assert scores == sorted(scores, reverse=True)
    page.get_by_label("answer", exact=True).select_option("false")
    assert set(table.locator("td.truth").all_inner_texts()) == {"✗"}
    assert "items-sort=score.down" in page.url
    assert "items-truth=false" in page.url
    page.get_by_label("pathway", exact=True).select_option("A-Anchored")
    assert set(table.locator("td.pathway").all_inner_texts()) == {"A-Anchored"}
    assert "items-pathway=A-Anchored" in page.url
    page.get_by_label("search").fill("nothing at all")
    assert "No matches" in table.inner_text()
    page.get_by_label("search").fill("")
    table.locator(".open-item").first.click()
    detail = table.locator("tr.detail")
    assert detail.locator("dl").is_visible()
    assert "Anchored" not in detail.inner_text()
    path, fragment = page.url.removeprefix("file://").split("#")
    other = open_page(Path(path), fragment)
    assert other.locator("table.items tr.detail").inner_text() == detail.inner_text()
    assert set(other.locator("table.items td.truth").all_inner_texts()) == {"✗"}
    other.get_by_label("answer", exact=True).select_option("")
    other.get_by_label("pathway", exact=True).select_option("")
    assert {"Q-Anchored", "A-Anchored"} <= set(
        other.locator("table.items td.pathway").all_inner_texts()
    )


def test_other_peoples_text_stays_text(items_page):
    page = items_page
    page.get_by_label("answer", exact=True).select_option("")
    page.get_by_label("pathway", exact=True).select_option("")
    page.get_by_label("search").fill("emma")
    row = page.locator("table.items tbody tr").first
    assert MARKUP in row.inner_text()
    assert row.locator("mark").inner_text() == "<b>Emma"
    assert page.locator("img[src=x]").count() == 0
    assert page.title() != "run"


def test_a_script_that_is_not_the_pages_own_cannot_run(
    report, tmp_path, open_page, complaints
):
    page = report.read_text(encoding="utf-8")
    smuggled = page.replace("</main>", f"{MARKUP.replace('src=x', 'src=data:')}</main>")
    (tmp_path / "report.html").write_text(smuggled, encoding="utf-8")
    opened = open_page(tmp_path / "report.html")
    assert opened.title() != "run"
    assert any("Content Security Policy" in complaint for complaint in complaints)
    complaints.clear()


def test_hostile_names_of_models_and_datasets(tmp_path, open_page):
    findings = make_findings((MARKUP,))
    findings = replace(findings, model=MARKUP, facts={"model": MARKUP}, command=MARKUP)
    delta_p_chart(findings).save(tmp_path)
    hostile = open_page(write_run(findings, tmp_path))
    assert hostile.title() == f"{MARKUP} – anchorscope"
    assert hostile.locator("img[src=x]").count() == 0
    hostile.locator(PICTURE).focus()
    hostile.keyboard.press("End")
    assert MARKUP in hostile.locator(".readout").first.inner_text()
