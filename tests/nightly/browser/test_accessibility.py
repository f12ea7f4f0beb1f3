"""Every page can be read by everybody: axe-core finds nothing, and a telephone's width clips nothing."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from axe_playwright_python.sync_playwright import Axe

from anchorscope.progress import Silent
from anchorscope.report import validation_page
from anchorscope.report.answer_card import answer_card
from anchorscope.report.comparison import comparison_page
from anchorscope.report.comparison.compared import Compared
from anchorscope.report.detection import detection_page
from anchorscope.report.statements import read
from anchorscope.report.study import study_page
from anchorscope.report.study.studied import ShownRun, Studied
from browser_pages import PALE, write_run
from compared_runs import model_findings
from detection_synthetic import World, write_world
from report_further_synthetic import confusion, recovery
from report_items_synthetic import make_items
from report_shares import with_shares

WIDE, NARROW = {"width": 1440, "height": 900}, {"width": 390, "height": 844}


def _run(folder: Path) -> Path:
    findings = with_shares(make_items(n=6, layers=30, datasets=("popqa",))[0])
    columns = {"question_share": 0.5, "question_share_low": 0.1, "question_share_high": 0.9, "pathway_call": "question"}
    items = findings.items.with_columns(*(pl.lit(value).alias(name) for name, value in columns.items()))
    return write_run(replace(findings, items=items), folder)


def _compare(folder: Path) -> Path:
    runs = (model_findings("Small"), model_findings("Large", layers=16, depth=-70.0, parameters=10**9))
    comparison_page.write_comparison(Compared(runs, ("a", "b")), folder, Silent())
    return folder / "report.html"


def _detection(folder: Path) -> Path:
    detection_page.write_detection_report(folder, write_world(World(datasets=("popqa", "nq")), folder))
    return folder / "report.html"


def _validation(folder: Path) -> Path:
    validation_page.write_validation(validation_page.Validation("planted", (), recovery(), confusion()), folder)
    return folder / "validation.html"


def _study(folder: Path) -> Path:
    runs = [with_shares(model_findings(name, layers=30)) for name in ("small", "large")]
    cards = [answer_card(one, read(one)) for one in runs]
    shown = [
        ShownRun(one.model, one.model, "few-shot", 0, "done", None, f"runs/{one.model}/report.html", one, card)
        for one, card in zip(runs, cards, strict=True)
    ]
    failed = ShownRun("large-seed1", "large", "few-shot", 1, "failed", "12 true answers; ask more questions")
    study_page.write_study_page(
        Studied("sizes", (*shown, replace(shown[0], name="small-seed1", seed=1), failed)), folder, Silent()
    )
    return folder / "report.html"


PAGES: dict[str, Callable[[Path], Path]] = {
    "run": _run,
    "compare": _compare,
    "detection": _detection,
    "validation": _validation,
    "study": _study,
}


@pytest.fixture(params=list(PAGES))
def kind(request) -> str:
    return request.param


@pytest.fixture
def report(kind, tmp_path) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        for module in (comparison_page, detection_page, validation_page, study_page):
            patch.setattr(module, "save_all", lambda *_: None)  # the printed figures take the time
        return PAGES[kind](tmp_path)


AXE = {"run": "dark", "compare": "dark", "detection": "light", "validation": "dark", "study": "light"}
"""The look in which axe-core goes over a page. Nearly all of its time goes into contrasts, and only they differ between
looks: for both looks of every page they are taken here as well (`PALE`)."""


def test_everybody_can_read_it(kind, report, open_page):
    page = open_page(report, viewport=NARROW, color_scheme="dark")
    page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    assert _clipped(page) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= NARROW["width"]
    page.evaluate("document.querySelectorAll('tbody tr:nth-child(n + 3)').forEach((row) => row.remove())")  # all alike
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
    assert [round(ratio, 2) for ratio, *_ in page.evaluate(PALE)["pale"]] == [4.48, 3.0, 3.66]


def _violations(page) -> list[str]:
    found = Axe().run(page).response["violations"]
    return [f"{one['id']}: {node['html'][:160]}; {node['failureSummary']}" for one in found for node in one["nodes"]]


def _clipped(page) -> list[str]:
    """What reaches beyond the page, and does not lie in a box of its own that scrolls."""
    return page.evaluate(
        """() => [...document.querySelectorAll("main *")].filter((one) => {
          const box = one.getBoundingClientRect();
          const scrolls = one.closest(".scroll, pre, .item-list, .off-screen, [hidden]");
          return box.width && box.right > innerWidth + 1 && !scrolls && !one.closest("svg");
        }).map((one) => `${one.tagName} ${one.className} ${one.textContent.slice(0, 60)}`)"""
    )
