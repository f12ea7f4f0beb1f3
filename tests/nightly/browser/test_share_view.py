"""The lead chart in a browser: the question share with its controls, the thirds, and the numbers behind them."""

import polars as pl
import pytest

from browser_pages import write_run
from report_shares import World, run_with_shares
from report_synthetic import LAYERS

PICTURE = '<svg xmlns="http://www.w3.org/2000/svg" width="400" height="200"><path d="M0 0L400 200"/></svg>'
CHART = "#share-view .chart"
CONTROLS = 3  # random words, nothing cut, permuted labels


@pytest.fixture(scope="module")
def findings():
    return run_with_shares(World(), World(share=0.5, lower=0.4, upper=0.6), datasets=("popqa", "triviaqa"))


@pytest.fixture(scope="module")
def report(findings, tmp_path_factory):
    folder = tmp_path_factory.mktemp("share")
    (folder / "figures").mkdir()
    (folder / "figures" / "question_share.svg").write_text(PICTURE, encoding="utf-8")  # test_page.py has a drawn one
    return write_run(findings, folder)


@pytest.fixture(scope="module")
def page(report, open_page):
    return open_page(report)


@pytest.fixture(autouse=True)
def _as_it_was(page):
    yield
    button = page.locator("#share-view").get_by_role("button", name="Reset")
    if button.is_visible():
        button.click()


def _share(findings, layer, **about):
    rows = findings.question_share.filter(pl.col("layer") == layer)
    wanted = {"dataset": "popqa", "intervention": "knockout", "group": "all", "truth": "all"} | about
    for column, value in wanted.items():
        rows = rows.filter(pl.col(column) == value)
    return rows["share"].item()


def _at_layer(page, layer):
    page.locator(CHART).focus()
    page.keyboard.press("Home")
    for _ in range(layer):
        page.keyboard.press("ArrowRight")
    rows = page.locator("#share-view .readout tr").all()
    cells = [(row.locator("th").inner_text(), row.locator(".value").inner_text()) for row in rows]
    return {name: float(value.replace("−", "-")) for name, value in cells if value}


def test_it_draws_the_share_with_its_controls(page, findings):
    assert page.locator(f"{CHART} .series:not(.quiet) .line").count() == 2
    assert page.locator(f"{CHART} .series.quiet .line").count() == 2 * CONTROLS
    assert page.locator(f"{CHART} .band").count() == 2
    for line in page.locator(f"{CHART} .series .line").all():
        assert line.get_attribute("d").count("L") == LAYERS - 1
    assert page.locator("#share-view .legend .toggle").count() == 2 + CONTROLS  # a control is switched for all datasets
    shown = _at_layer(page, 17)
    assert shown["Key words cut (PopQA)"] == pytest.approx(_share(findings, 17), abs=0.0051)
    assert shown["Random words cut (PopQA)"] == pytest.approx(_share(findings, 17, intervention="random"), abs=0.0051)


def test_the_numbers_are_there_as_a_table(page, findings):
    table = page.locator("#chart details table.numbers").first
    assert table.locator("tbody tr").count() == 2 * LAYERS
    row = table.locator("tbody tr").nth(17).locator("td").all_text_contents()
    assert row[:2] == ["PopQA", "17"]
    assert row[2].startswith(f"{_share(findings, 17):.2f} [")
