"""What tests of several pages share: the page of a synthetic run, and a measure of contrasts."""

from pathlib import Path

import pytest

from anchorscope.report import render
from anchorscope.report.findings import Findings

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
        patch.setattr(render, "save_all", lambda *figures: None)  # drawing them takes longer than all else
        render.write_all(findings, folder)
    return folder / "report.html"
