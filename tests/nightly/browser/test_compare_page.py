"""The comparison in a browser: a panel per run, one legend and one y axis, controls that move all panels together."""

from pathlib import Path
from xml.etree import ElementTree

import polars as pl
import pytest

from anchorscope.progress import Silent
from anchorscope.report.comparison import comparison_page
from anchorscope.report.comparison.compared import Compared
from compared_runs import model_findings, with_random
from report_shares import World, with_shares

VIEW = "#compare-view"
PANELS = f"{VIEW} .panels .chart"
SHARES = "#compare-share"
SHARE_PANELS = f"{SHARES} .panels .chart"
MARKUP = "<img src=x onerror=\"document.title='run'\"></script><script>document.title='run'</script>"


@pytest.fixture(scope="module")
def compared() -> Compared:
    runs = (
        with_shares(with_random(model_findings("Small", layers=30)), World(together=0.4)),
        with_shares(with_random(model_findings(MARKUP, layers=30, depth=-70.0, parameters=10**9)), World(together=0.7)),
        model_findings("Random", layers=8, depth=-3.0, parameters=10**10, random_weights=True),
    )
    return Compared(runs, ("a", "b", "c"))


@pytest.fixture(scope="module")
def report(compared, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("compare_page")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(comparison_page, "save_all", lambda *_: None)  # the printed figures take the time
        comparison_page.write_comparison(compared, folder, Silent())
    return folder / "report.html"


@pytest.fixture(scope="module")
def page(report, open_page):
    opened = open_page(report)
    opened.evaluate("document.querySelectorAll('.more-options').forEach((one) => { one.open = true; })")
    return opened


@pytest.fixture(autouse=True)
def _as_it_was(page):
    yield
    for view in (VIEW, SHARES):
        button = page.locator(view).get_by_role("button", name="Reset")
        if button.is_visible():
            button.click()


def _lines(page, panel: int) -> int:
    return page.locator(PANELS).nth(panel).locator("svg.lines .plot .series").count()


def _legend(page):
    return page.locator(f"{VIEW} .legend button.toggle")


def test_a_panel_per_run_with_a_legend_for_all(page, compared) -> None:
    small, markup, random = page.locator(f"{PANELS} svg.lines > .title").all_text_contents()
    assert (small, random) == ("Small", "Random (RANDOM WEIGHTS)")
    assert markup.startswith("<img src=x")
    assert page.locator(f"{PANELS} .title title").all_text_contents() == [MARKUP]  # all of it, when it is pointed at
    assert [_lines(page, panel) for panel in range(3)] == [8, 8, 4]  # with the random control, which one lacks
    assert page.locator(f"{VIEW} .legend").count() == 1
    names = _legend(page).all_inner_texts()
    assert [name for name in names if "Anchored" in name] == [
        f"{group} ({dataset})" for group in ("Q-Anchored", "A-Anchored") for dataset in ("PopQA", "TriviaQA")
    ]
    assert page.title().startswith("3 runs")  # no name with markup has run


def test_the_share_comes_first_with_its_controls_on_one_axis(page) -> None:
    assert page.locator(SHARES).bounding_box()["y"] < page.locator(VIEW).bounding_box()["y"]
    panels = page.locator(SHARE_PANELS)
    assert panels.count() == 3
    counted = [panels.nth(panel).locator("svg.lines .plot .series").count() for panel in range(3)]
    assert counted == [6, 6, 0]  # two datasets: key words, random, permuted
    ticks = [panels.nth(panel).locator("svg.lines .tick.y").all_text_contents() for panel in range(2)]
    assert ticks[0] == ticks[1]
    names = page.locator(f"{SHARES} .legend button.toggle").all_inner_texts()
    assert {"Random words cut", "Key words cut (PopQA)"} <= set(names)


def test_the_rule_changes_every_panel(page, compared) -> None:
    before = page.locator(f"{PANELS} .line").first.get_attribute("d")
    page.locator(VIEW).get_by_role("group", name="Sorted by the rule").get_by_role("radio", name="corrected").check()
    assert page.locator(f"{PANELS} .line").first.get_attribute("d") != before
    page.locator(PANELS).nth(1).focus()
    page.keyboard.press("End")
    told = page.locator(PANELS).nth(1).locator(".readout tr").filter(has_text="Q-Anchored (PopQA)")
    curve = compared.runs[1].curves
    last = curve.filter(
        (curve["dataset"] == "popqa")
        & (curve["assignment"] == "corrected")
        & (curve["group"] == "Q-Anchored")
        & (curve["layer"] == 29)
        & (curve["intervention"] == "knockout")
    )["delta_p"][0]
    assert float(told.locator(".value").inner_text().replace("−", "-")) == pytest.approx(last, abs=0.051)


def test_all_panels_can_be_taken_along(page, compared) -> None:
    with page.expect_download() as started:
        page.locator(VIEW).get_by_role("button", name="Download SVG").click()
    sheet = ElementTree.parse(started.value.path()).getroot()
    texts = [one.text for one in sheet.iter() if one.text]
    assert {"Small", "Random (RANDOM WEIGHTS)"} <= set(texts)
    assert texts.count("Q-Anchored (PopQA)") == 1, "one legend for all"
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.locator(VIEW).get_by_role("button", name="Copy CSV").click()
    page.get_by_text("Copied.").wait_for()
    rows = pl.read_csv(page.evaluate("navigator.clipboard.readText()").encode())
    assert rows.group_by("run", maintain_order=True).len().rows() == [("Small", 240), (MARKUP, 240), ("Random", 32)]
    keys = ["run", "intervention", "dataset", "group", "layer"]
    own = pl.concat(run.curves.with_columns(run=pl.lit(run.model)) for run in compared.runs)
    own = own.filter((pl.col("assignment") == "plain") & (pl.col("variant") == "all"))
    assert rows.sort(keys)["delta_p"].to_list() == pytest.approx(own.sort(keys)["delta_p"].to_list(), abs=0.00051)
