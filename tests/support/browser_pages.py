"""One page of every kind from made-up numbers, and a measure of contrasts."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import compared_runs as runs_on_disk
from anchorscope import viewing
from anchorscope.artefacts.run_folder import open_run
from anchorscope.artefacts.sealed_folder import sealed
from anchorscope.progress import Silent
from anchorscope.report import comparison, detection, run_page
from anchorscope.report.answer_card import answer_card
from anchorscope.report.checks import read
from anchorscope.report.findings import Findings
from compared_runs import model_findings
from detection_synthetic import World, write_detection_page
from report_items_synthetic import make_items
from report_shares import run_with_shares, with_shares

PALE = """() => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const parts = (colour) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    const [red, green, blue, alpha] = canvas.getImageData(0, 0, 1, 1).data;
    return [red, green, blue, alpha / 255];
  };
  const over = (top, below) => [0, 1, 2].map((at) => top[at] * top[3] + below[at] * (1 - top[3]));
  const behind = (node) => {
    const own = parts(node ? getComputedStyle(node).backgroundColor : "white");
    return own[3] === 1 || !node ? own : over(own, behind(node.parentElement));
  };
  const light = (colour) => colour.slice(0, 3).map((one) => one / 255)
    .map((one) => one <= 0.04045 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4)
    .reduce((sum, one, at) => sum + one * [0.2126, 0.7152, 0.0722][at], 0.05);
  const texts = [...document.body.querySelectorAll("*")].filter((one) => one.getClientRects().length
    && [...one.childNodes].some((inner) => inner.nodeType === 3 && inner.data.trim())
    && one.checkVisibility({ opacityProperty: true, visibilityProperty: true })
    && !one.closest(".off-screen, :disabled, script, style, [aria-hidden=true]"));
  const told = texts.map((one) => {
    const style = getComputedStyle(one), back = behind(one);
    const ink = parts(one.closest("svg") ? style.fill : style.color);
    const [low, high] = [light(over(ink, back)), light(back)].sort((first, second) => first - second);
    const size = parseFloat(style.fontSize), large = size >= 24 || (size >= 18.66 && style.fontWeight >= 700);
    return [high / low, large ? 3 : 4.5, `${one.tagName} ${one.getAttribute("class")} ${one.textContent.slice(0, 60)}`];
  });
  return { seen: told.length, pale: told.filter(([ratio, least]) => ratio < least) };
}"""
"""Texts whose colour is too near to what lies behind them, by the formula of WCAG 2."""


def write_run(findings: Findings, folder: Path) -> Path:
    """The page of a run; figures that a test wants to see must lie in the folder already."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            run_page, "save_all", lambda *figures: None
        )  # drawing them takes longer than all else
        run_page.write_all(findings, folder)
    return folder / "report.html"


def _run(folder: Path) -> Path:
    findings = with_shares(make_items(n=6, layers=30, datasets=("popqa",))[0])
    return write_run(findings, folder)


def _compare(folder: Path) -> Path:
    runs = (
        with_shares(model_findings("SmolLM2-135M-Instruct (demo)")),
        model_findings("Large", layers=16, depth=-70.0, parameters=10**9),
    )
    comparison.write_comparison(comparison.Compared(runs), folder, Silent())
    return folder / "report.html"


def _detection(folder: Path) -> Path:
    write_detection_page(World(datasets=("popqa", "nq")), folder)
    return folder / "report.html"


def _study(folder: Path) -> Path:
    runs = tuple(
        with_shares(model_findings(name, layers=30)) for name in ("small", "large")
    )
    missing = (("large-1", "failed", "12 true answers; ask more questions"),)
    compared = comparison.Compared(runs, missing=missing)
    comparison.write_comparison(compared, folder, Silent())
    return folder / "report.html"


MARKUP = "<img src=x onerror=\"document.title='run'\"></script><script>document.title='run'</script>"
HOSTILE_NAME = """it's "$(touch hacked)" & <b onclick=alert`1`>; `id`"""


def _view(folder: Path) -> Path:
    """Three runs, one of them with hostile names; a comparison; a run that was stopped."""
    for name, model, auc in (
        ("one", "small", 0.71),
        ("two", "large", 0.84),
        (HOSTILE_NAME, MARKUP, 0.93),
    ):
        findings = replace(run_with_shares(datasets=("popqa",)), model=model)
        card = answer_card(findings, read(findings))
        numbers = tuple(
            replace(number, value=auc)
            for number in card.numbers
            if number.name == "AUC of the probe"
        )
        answer = json.dumps(replace(card, numbers=numbers).record())
        run = runs_on_disk.write_run(folder / name, findings, answer=answer)
        (run / "report.html").write_text(
            f"<!doctype html><html lang=en><title>{name}</title><h1>Report {name}</h1>"
        )
    (folder / "both").mkdir()
    compared = {"runs": [{"run": "small"}, {"run": "large"}], "answer": [MARKUP]}
    (folder / "both" / "comparison.json").write_text(json.dumps(sealed(compared)))
    with open_run(folder / "half") as half:
        half.write_recipe('model = "small"\ndatasets = ["popqa"]\n')
    page = folder / viewing.PAGE
    viewing.write_page(viewing.list_results(folder), folder, page)
    return page


PAGES: dict[str, Callable[[Path], Path]] = {
    "run": _run,
    "compare": _compare,
    "detection": _detection,
    "study": _study,
    "view": _view,
}


def write_page(kind: str, folder: Path) -> Path:
    """A page without its printed figures, which take the time."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (comparison, detection):
            patch.setattr(module, "save_all", lambda *_: None)
        return PAGES[kind](folder)
