"""The report in a browser: it opens, draws what the tables say, obeys its controls, and runs nobody else's code."""

import json
import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import polars as pl
import pytest

from anchorscope.report.charts.delta_p import DeltaPChart
from browser_pages import write_run
from report_shares import with_shares
from report_synthetic import LAYERS, make_findings

MARKUP = "<img src=x onerror=\"document.title='run'\"></script><script>document.title='run'</script>"
CONTROL = "\x00\x1b\u2028]]>" + "x" * 200
CHART = "#delta-p-view .chart"
FIRST_SCREEN = """() => {
  const texts = document.createTreeWalker(document.querySelector("main"), NodeFilter.SHOW_TEXT), shown = [];
  while (texts.nextNode()) {
    const owner = texts.currentNode.parentElement, range = document.createRange();
    range.selectNodeContents(texts.currentNode);
    const box = range.getBoundingClientRect();
    const visible = owner.checkVisibility({ opacityProperty: true }) && box.height && box.top < innerHeight;
    if (visible && !owner.closest("svg, code, style, script")) shown.push(texts.currentNode.data);
  }
  return shown.join(" ");
}"""
"""The words of the first screen, without the labels of axes and without commands."""


def _crossed_at_headline(findings):
    """Keeps the cross-fitted rule at the headline site only."""
    elsewhere = (pl.col("assignment") == "cross-fitted") & (pl.col("site") != "mlp")
    return replace(findings, curves=findings.curves.filter(~elsewhere))


@pytest.fixture(scope="module")
def findings():
    return with_shares(_crossed_at_headline(make_findings()))


@pytest.fixture(scope="module")
def report(findings, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("page")
    (folder / "figures").mkdir()
    printed = DeltaPChart.from_findings(findings).plot()  # one printed figure is enough
    printed.savefig(folder / "figures" / "delta_p.svg")
    return write_run(findings, folder)


@pytest.fixture(scope="module")
def page(report, open_page):
    return open_page(report)


@pytest.fixture(autouse=True)
def _as_it_was(request):
    """Tests share one open page: each leaves the chart as it came."""
    yield
    if "page" in request.fixturenames:
        _reset(request.getfixturevalue("page"))


def _reset(page, view="#delta-p-view") -> None:
    button = page.locator(view).get_by_role("button", name="Reset")
    if button.is_visible():
        button.click()


def _more(page, view="#delta-p-view"):
    """The further options, opened."""
    page.locator(f"{view} .more-options").evaluate("node => { node.open = true; }")
    return page.locator(view)


def _curve(findings, **about) -> list[float]:
    wanted = {
        "dataset": "popqa",
        "site": "mlp",
        "intervention": "knockout",
        "assignment": "plain",
        "group": "Q-Anchored",
        "truth": "all",
    } | about
    rows = findings.curves
    for column, value in wanted.items():
        rows = rows.filter(pl.col(column) == value)
    return rows.sort("layer")["delta_p"].to_list()


def shown(value: float) -> str:
    """As the page writes it."""
    return f"{value:.1f}".replace("-", "−")


def _readout(page, view="#delta-p-view") -> dict[str, float]:
    rows = page.locator(f"{view} .readout tr").all()
    cells = [(row.locator("th").inner_text(), row.locator(".value").inner_text()) for row in rows]
    return {name: float(value.replace("−", "-")) for name, value in cells if value}


def _choose(page, label: str, value: str, view="#delta-p-view") -> None:
    _more(page, view).get_by_role("group", name=label).get_by_role("radio", name=value, exact=True).check()


def _at_layer(page, layer: int, view="#delta-p-view") -> dict[str, float]:
    page.locator(f"{view} .chart").focus()
    page.keyboard.press("Home")
    for _ in range(layer):
        page.keyboard.press("ArrowRight")
    return _readout(page, view)


def test_the_chart_draws_every_line_with_its_band(page):
    assert page.locator(f"{CHART} .series:not(.quiet) .line").count() == 4  # two datasets × two groups
    assert page.locator(f"{CHART} .series.quiet .line").count() == 4  # their random controls
    assert page.locator(f"{CHART} .band").count() == 4
    for line in page.locator(f"{CHART} .series .line").all():
        assert line.get_attribute("d").count("L") == LAYERS - 1
    dashes = {
        line.get_attribute("data-series")[0]: line.locator(".line").get_attribute("stroke-dasharray")
        for line in page.locator(f"{CHART} .series:not(.quiet)").all()
    }
    assert dashes["q"] is None  # Q-Anchored solid
    assert dashes["a"]  # A-Anchored dashed
    assert page.locator("#delta-p-view .legend .toggle").count() == 5


def test_the_readout_says_what_the_table_says(page, findings):
    shown = _at_layer(page, 12)
    assert "Layer 12" in page.locator(f"{CHART} .readout .where").inner_text()
    for dataset, name in (("popqa", "PopQA"), ("triviaqa", "TriviaQA")):
        for group in ("Q-Anchored", "A-Anchored"):
            expected = _curve(findings, dataset=dataset, group=group)[12]
            assert shown[f"{group} ({name})"] == pytest.approx(expected, abs=0.051)
    values = [value for name, value in shown.items() if not name.startswith("Random")]
    assert values == sorted(values, reverse=True)
    interval = page.locator(f"{CHART} .readout .interval").first.inner_text()
    low, high = (float(end) for end in interval.replace("−", "-").strip("[]").split(", "))
    assert (low, high) == (pytest.approx(values[0] - 3, abs=0.11), pytest.approx(values[0] + 3, abs=0.11))


def test_the_readout_does_not_cover_the_chart(page):
    _at_layer(page, 12)
    plot = page.locator(f"{CHART} svg.lines .plot").bounding_box()
    readout = page.locator(f"{CHART} .readout").bounding_box()
    assert readout["y"] >= plot["y"] + plot["height"] - 30  # the axis's label may be covered
    assert readout["x"] >= 0


def test_the_first_screen_is_the_answer(report, open_page):
    for width, height in ((1440, 900), (390, 844)):
        opened = open_page(report, viewport={"width": width, "height": height})
        shown = opened.evaluate(FIRST_SCREEN)
        assert len(shown.split()) <= 120, shown
        assert "Trust it?" in shown
        assert opened.locator(".answer-card .bars").bounding_box()["y"] < height
        assert opened.evaluate("document.documentElement.scrollWidth") <= width


def test_the_keyboard_moves_the_cursor_and_the_pointer_too(page):
    page.locator(CHART).focus()
    where = page.locator(f"{CHART} .readout .where")
    for key, layer in (("End", 29), ("ArrowRight", 29), ("ArrowLeft", 28), ("PageDown", 23), ("Home", 0)):
        page.keyboard.press(key)
        assert re.match(rf"Layer {layer}\b", where.inner_text())
    page.keyboard.press("Escape")
    assert page.locator(f"{CHART} .readout").is_hidden()
    box = page.locator(f"{CHART} svg.lines").bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    assert re.match(r"Layer 1[3-6]\b", where.inner_text())
    page.mouse.move(2, 2)
    assert page.locator(f"{CHART} .readout").is_hidden()


@pytest.mark.parametrize(
    ("control", "value", "about"),
    [
        ("Sorted by the rule", "corrected", {"assignment": "corrected"}),
        ("Sorted by the rule", "cross-fitted", {"assignment": "cross-fitted"}),
        ("Site", "attention", {"site": "attention"}),
        ("Answers", "false", {"truth": "false"}),
    ],
)
def test_a_control_shows_other_curves(page, findings, control, value, about):
    _choose(page, control, value)
    expected = _curve(findings, **about)[15]
    assert _at_layer(page, 15)["Q-Anchored (PopQA)"] == pytest.approx(expected, abs=0.051)


def test_the_legend_switches_lines(page):
    button = page.get_by_role("button", name="Q-Anchored (PopQA)").first
    button.click()
    assert button.get_attribute("aria-pressed") == "false"
    assert page.locator(f"{CHART} .series[data-series='q0']").count() == 0
    button.click(modifiers=["Shift"])
    lines = page.locator(f"{CHART} .series:not(.quiet)")
    assert [line.get_attribute("data-series") for line in lines.all()] == ["q0"]
    page.get_by_role("button", name="Show only Q-Anchored (PopQA)").press("Enter")  # asked again: all
    assert lines.count() == 4


def test_a_view_can_be_linked(page, report, open_page):
    _choose(page, "Sorted by the rule", "corrected")
    page.get_by_role("button", name="A-Anchored (TriviaQA)").first.click()
    fragment = page.url.split("#")[1]
    assert "dp-rule=corrected" in fragment
    other = open_page(report, fragment)
    assert _more(other).get_by_role("radio", name="corrected").is_checked()
    assert other.locator(f"{CHART} .series:not(.quiet)").count() == 3
    assert other.locator(CHART).evaluate("node => node.getBoundingClientRect().top < innerHeight")  # it opens there
    _reset(other)
    assert other.locator(f"{CHART} .series:not(.quiet)").count() == 4
    assert "dp-" not in other.url


def test_the_chart_can_be_taken_along(page, findings):
    with page.expect_download() as started:
        _more(page).get_by_role("button", name="Download SVG").click()
    drawn = Path(started.value.path()).read_text(encoding="utf-8")
    assert drawn.startswith("<?xml")
    assert "Q-Anchored (PopQA)" in drawn
    assert "var(" not in drawn  # the file has no style sheet
    assert "class=" not in drawn
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.locator("#delta-p-view").get_by_role("button", name="Copy CSV").click()
    page.get_by_text("Copied.").wait_for()
    rows = pl.read_csv(page.evaluate("navigator.clipboard.readText()").encode())
    mine = rows.filter((pl.col("dataset") == "popqa") & (pl.col("group") == "Q-Anchored"))
    knockout = mine.filter(pl.col("intervention") == "knockout").sort("layer")["delta_p"].to_list()
    assert knockout == pytest.approx(_curve(findings), abs=0.0051)


def test_both_themes(page, report, open_page):
    ground = "getComputedStyle(document.body).backgroundColor"
    line = "getComputedStyle(document.querySelector('.series .line')).stroke"
    seen = {}
    for name in ("Light", "Dark"):
        page.get_by_role("button", name=name, exact=True).click()
        seen[name] = (page.evaluate(ground), page.evaluate(line))
    assert seen["Light"][0] != seen["Dark"][0]
    assert seen["Light"][1] != seen["Dark"][1]  # brighter on a dark page
    page.get_by_role("button", name="Auto", exact=True).click()
    assert page.evaluate(ground) == seen["Light"][0]
    assert open_page(report, color_scheme="dark").evaluate(ground) == seen["Dark"][0]


def test_without_scripts_the_printed_figure_is_shown(report, open_page):
    bare = open_page(report, java_script_enabled=False)
    assert bare.locator("#delta-p-view").is_hidden()
    picture = bare.locator("details[data-live='delta-p-view'] img")
    assert picture.is_visible()
    assert picture.bounding_box()["width"] > 450


def test_other_peoples_text_stays_text(tmp_path, open_page):
    findings = make_findings((MARKUP + CONTROL,))
    items = findings.items.with_columns(question=pl.lit(MARKUP), model_answer=pl.lit(MARKUP))
    findings = replace(findings, model=MARKUP, items=items, facts={"model": MARKUP}, command=MARKUP)
    hostile = open_page(write_run(findings, tmp_path))
    assert hostile.title() == f"{MARKUP} – anchorscope"
    assert hostile.locator("img[src=x]").count() == 0
    names = hostile.locator("#delta-p-view .legend .name").all_inner_texts()
    assert any(name.startswith(f"Q-Anchored ({MARKUP}") for name in names)
    hostile.locator(CHART).focus()
    hostile.keyboard.press("End")
    assert MARKUP in hostile.locator(f"{CHART} .readout").inner_text()
    box = hostile.locator(f"{CHART} .readout").bounding_box()
    numbers = [one.bounding_box() for one in hostile.locator(f"{CHART} .readout .value").all()]
    assert max(one["x"] + one["width"] for one in numbers) <= box["x"] + box["width"], "a long name pushes them out"
    with hostile.expect_download() as started:
        _more(hostile).get_by_role("button", name="Download SVG").click()
    texts = [one.text for one in ElementTree.parse(started.value.path()).iter() if one.text]
    assert any(text.startswith("Q-Anchored (<img") for text in texts)
    assert any("…" in text for text in texts), "a long name stays in its place"
    assert json.loads(hostile.locator("#chart-data").text_content())["model"] == MARKUP


def test_a_script_that_is_not_the_pages_own_cannot_run(report, tmp_path, open_page, complaints):
    page = report.read_text(encoding="utf-8")
    smuggled = page.replace("</main>", f"{MARKUP.replace('src=x', 'src=data:')}</main>")
    (tmp_path / "report.html").write_text(smuggled, encoding="utf-8")
    opened = open_page(tmp_path / "report.html")
    assert opened.title() != "run"
    assert any("Content Security Policy" in complaint for complaint in complaints)
    complaints.clear()
