"""The report in a browser: it opens, draws what the tables say, obeys its controls, and runs nobody else's code."""

import json
import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import polars as pl
import pytest

from anchorscope.report.charts.delta_p import DeltaPChart
from anchorscope.report.shares import share_layer
from browser_pages import write_run
from report_shares import with_shares
from report_synthetic import LAYERS, make_findings

MARKUP = "<img src=x onerror=\"document.title='run'\"></script><script>document.title='run'</script>"
CONTROL = "\x00\x1b\u2028]]>" + "x" * 200
CHART = "#delta-p-view .chart"
PAPER = 695  # pixels between the margins of an A4 page


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
    page.locator(view).get_by_role("group", name=label).get_by_role("radio", name=value, exact=True).check()


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


def test_another_intervention(page, findings):
    _more(page).get_by_role("radio", name="nothing cut").check()
    expected = _curve(findings, intervention="none")[3]
    assert _at_layer(page, 3)["Q-Anchored (PopQA)"] == pytest.approx(expected, abs=0.051)
    assert "nothing cut" in page.locator("#delta-p-view .shown-now").inner_text()


def test_the_axis_stays_whatever_is_chosen(page):
    ticks = page.locator(f"{CHART} .tick.y")
    first = ticks.all_text_contents()
    for rule in ("corrected", "cross-fitted", "plain"):
        _choose(page, "Sorted by the rule", rule)
        assert ticks.all_text_contents() == first
    _choose(page, "Answers", "false")
    _more(page).get_by_role("radio", name="nothing cut").check()
    assert ticks.all_text_contents() == first
    both = [page.locator(f"{view} .tick.y").all_text_contents() for view in ("#probe-view", "#surviving-view")]
    assert both[0] == both[1], "one axis per quantity"


def test_the_number_that_the_text_quotes_is_ringed(page, findings):
    rings = page.locator(f"{CHART} .plot .ring")
    assert rings.count() == 4
    layer = share_layer(findings, "popqa")
    told = page.locator(f"{CHART} .ring[data-series='q0'] title").text_content()
    value = _curve(findings)[layer]
    assert told == f"Q-Anchored (PopQA): {shown(value)} [{shown(value - 3)}, {shown(value + 3)}] at layer {layer}"
    x = float(page.locator(f"{CHART} .ring[data-series='q0']").get_attribute("transform").split("(")[1].split(",")[0])
    points = page.locator(f"{CHART} .series[data-series='q0'] .line").get_attribute("d").strip("M").split("L")
    assert x == float(points[layer].split(",")[0]), "it lies on the line"
    keys = page.locator("#delta-p-view .legend .key-words").all_inner_texts()
    assert [key.split(":")[0] for key in keys] == ["l* of a fold", "at the layer that is tested"]
    _choose(page, "Site", "attention")
    assert rings.count() == 0, "no text quotes other sites"


def test_a_line_of_few_items_has_no_band(tmp_path, open_page):
    findings = make_findings(("atlas",))
    few = (pl.col("group") == "Q-Anchored") & (pl.col("truth") == "false") & (pl.col("assignment") == "plain")
    counts = [pl.when(few).then(2).otherwise(name).alias(name) for name in ("n", "n_groups")]
    wild = pl.when(few & (pl.col("layer") == 3)).then(-99.0).otherwise("delta_p").alias("delta_p")
    opened = open_page(write_run(replace(findings, curves=findings.curves.with_columns(*counts, wild)), tmp_path))
    ticks = opened.locator(f"{CHART} .tick.y").all_text_contents()
    assert min(float(tick.replace("−", "-")) for tick in ticks) > -80, "it does not stretch the axis"
    _choose(opened, "Answers", "false")
    assert opened.locator(f"{CHART} .band").count() == 1
    line = opened.locator(f"{CHART} .series[data-series='q0'] .line")
    assert line.get_attribute("stroke-dasharray") == "1.5 4"
    assert "n = 2" in opened.locator("#delta-p-view .legend .entry").first.inner_text()
    assert "fewer than 10 groups" in opened.locator("#delta-p-view .shown-now").inner_text()
    left = opened.locator(f"{CHART} .beyond title").all_text_contents()
    assert "Q-Anchored (Atlas): −99.0 at layer 3" in left, "it is marked where it leaves the axis"


def test_what_does_not_exist_cannot_be_chosen(page):
    _choose(page, "Site", "attention")
    rules = page.locator("#delta-p-view").get_by_role("group", name="Sorted by the rule")
    assert rules.get_by_role("radio", name="cross-fitted").is_disabled()
    assert rules.get_by_role("radio", name="corrected").is_enabled()


def test_bands_random_control_and_relative_depth(page):
    view = _more(page)
    view.get_by_label("95 % bands").uncheck()
    assert page.locator(f"{CHART} .band").count() == 0
    view.locator(".legend .entry[data-series='c0'] .toggle").click()
    assert page.locator(f"{CHART} .series.quiet").count() == 0
    view.get_by_label("Relative depth").check()
    assert page.locator(f"{CHART} .label.x").text_content() == "Relative depth"
    assert page.locator(f"{CHART} .tick.x").all_text_contents() == ["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"]


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


def test_pointing_at_the_legend_brings_out_the_line(page):
    page.locator("#delta-p-view .legend .entry[data-series='a1']").hover()
    faded = page.locator(f"{CHART} .series.faded")
    assert faded.count() == 7
    assert "a1" not in [line.get_attribute("data-series") for line in faded.all()]
    page.locator("#delta-p-view .legend .entry[data-series='c0']").hover()
    assert faded.count() == 4
    page.mouse.move(2, 2)
    assert faded.count() == 0


def test_a_view_can_be_linked(page, report, open_page):
    _choose(page, "Sorted by the rule", "corrected")
    page.get_by_role("button", name="A-Anchored (TriviaQA)").first.click()
    fragment = page.url.split("#")[1]
    assert "dp-rule=corrected" in fragment
    other = open_page(report, fragment)
    assert other.locator("#delta-p-view").get_by_role("radio", name="corrected").is_checked()
    assert other.locator(f"{CHART} .series:not(.quiet)").count() == 3
    assert other.locator(CHART).evaluate("node => node.getBoundingClientRect().top < innerHeight")  # it opens there
    _reset(other)
    assert other.locator(f"{CHART} .series:not(.quiet)").count() == 4
    assert "dp-" not in other.url


def test_an_old_or_mistyped_link_does_not_empty_the_chart(page):
    page.evaluate("location.hash = 'dp-rule=nobodys&dp-site=heart&dp-bands=7&dp-hide=q0.z9&dp-truth=false'")
    view = page.locator("#delta-p-view")
    view.get_by_role("radio", name="false").and_(page.locator(":checked")).wait_for()
    assert view.get_by_role("radio", name="plain").is_checked()
    assert page.locator(f"{CHART} .series:not(.quiet)").count() == 3
    assert page.locator(f"{CHART} .band").count() == 3
    page.evaluate("location.hash = 'dp-hide=q0.q1.a0.a1'")
    page.locator(CHART).get_by_text("All lines are switched off.").wait_for()


def test_a_link_to_a_section_does_not_lose_the_view(page):
    _more(page, "#probe-view").get_by_label("95 % bands").uncheck()
    page.locator(".bar a[href='#chart']").click()
    assert page.url.endswith("#chart")
    _choose(page, "Sorted by the rule", "corrected")
    assert page.url.endswith("#auc-bands=0&dp-rule=corrected"), "every part of the view stands in the address again"
    page.go_back()
    page.locator("#delta-p-view").get_by_role("radio", name="plain").and_(page.locator(":checked")).wait_for()
    assert not page.locator("#probe-view").get_by_label("95 % bands").is_checked()
    _reset(page, "#probe-view")


def test_a_browser_without_two_themes_shows_the_light_one(report, tmp_path, open_page):
    text = report.read_text(encoding="utf-8").replace("light-dark(", "not-yet(").replace("color-mix(", "not-yet(")
    (tmp_path / "report.html").write_text(text, encoding="utf-8")
    older = open_page(tmp_path / "report.html", color_scheme="dark")
    assert older.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(252, 252, 250)"
    assert older.evaluate("getComputedStyle(document.querySelector('.series .line')).stroke").startswith("rgb(")
    older.locator(CHART).focus()
    older.keyboard.press("End")
    readout = older.locator(f"{CHART} .readout").evaluate("node => getComputedStyle(node).backgroundColor")
    assert readout == "rgb(255, 255, 255)", "what lies under the readout must not be seen through it"
    assert older.locator(".themes").is_hidden()


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


def test_probe_scores_with_their_baselines(page, findings):
    shown = _at_layer(page, 10, "#probe-view")
    scores = findings.probe_scores.filter((pl.col("dataset") == "popqa") & (pl.col("intervention") == "clean"))
    transfer = scores.filter((pl.col("kind") == "transfer") & (pl.col("site") == "mlp") & (pl.col("layer") == 10))
    assert shown["Probe at mlp"] == pytest.approx(transfer["auc"][0], abs=0.00051)
    assert shown["Baseline: model's confidence, minimum"] == 0.71
    _choose(page, "Dataset", "TriviaQA", "#surviving-view")
    after = _at_layer(page, 10, "#surviving-view")
    assert after["Untouched"] > after["Key words cut, probe trained again"] > after["Key words cut, same probe"]


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


def test_the_section_that_is_read_is_marked(page):
    page.evaluate("document.querySelector('#trust').scrollIntoView()")
    page.locator(".bar a[aria-current]").get_by_text("Can I trust it?").wait_for()


def test_on_paper_it_is_light_and_folded(page):
    page.emulate_media(media="print", color_scheme="dark")
    for gone in (".bar", "#delta-p-view .controls", "#explorer", "details[data-live='delta-p-view']", ".legend .items"):
        assert page.locator(gone).first.is_hidden()
    assert page.locator("#delta-p-view svg.lines").is_visible()
    assert page.locator("#delta-p-view .legend").is_visible(), "a chart has its legend"
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    page.set_viewport_size({"width": PAPER, "height": 900})
    rights = page.evaluate("[...document.querySelectorAll('table')].map((one) => one.getBoundingClientRect().right)")
    assert max(rights) <= PAPER + 1, "paper cannot be scrolled"
    page.set_viewport_size({"width": 1200, "height": 900})
    page.emulate_media(media="screen", color_scheme="light")


def test_a_run_prints_on_ten_pages(tmp_path, open_page):
    printed = open_page(write_run(with_shares(make_findings(("atlas",))), tmp_path)).pdf(format="A4")
    assert 2 <= len(re.findall(rb"/Type\s*/Page\b", printed)) <= 10


def test_without_scripts_the_printed_figure_is_shown(report, open_page):
    bare = open_page(report, java_script_enabled=False)
    assert bare.locator("#delta-p-view").is_hidden()
    picture = bare.locator("details[data-live='delta-p-view'] img")
    assert picture.is_visible()
    assert picture.bounding_box()["width"] > 450


def test_a_narrow_page_reads_out_by_touch(report, open_page):
    narrow = open_page(report, viewport={"width": 380, "height": 800}, has_touch=True)
    assert narrow.evaluate("document.documentElement.scrollWidth") <= 380
    box = narrow.locator(f"{CHART} svg.lines").bounding_box()
    assert box["width"] > 280
    assert narrow.locator("#delta-p-view").get_by_label("95 % bands").is_hidden(), "few options are open"
    narrow.locator(CHART).scroll_into_view_if_needed()
    narrow.touchscreen.tap(*_middle(narrow.locator(f"{CHART} svg.lines").bounding_box()))
    assert narrow.locator(f"{CHART} .readout").is_visible()
    assert narrow.evaluate("document.documentElement.scrollWidth") <= 380


def _middle(box) -> tuple[float, float]:
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


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
