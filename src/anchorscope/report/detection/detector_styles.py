"""Colours, dashes and markers of the detectors that are drawn as lines: told apart in grey and by the colour-blind."""

from typing import Any

from anchorscope.report.detection.results import ANCHOR, BOTH, CONFIDENCE, PROBE

Dashes = str | tuple[int, tuple[float, ...]]

_STYLES: dict[str, tuple[str, Dashes, str]] = {
    CONFIDENCE: ("#6f6f6f", (0, (1.0, 1.4)), "s"),
    PROBE: ("#0072b2", (0, (5.0, 2.0)), "o"),
    BOTH: ("#d55e00", "-", "^"),
    "mop": ("#009e73", (0, (4.0, 1.4, 1.0, 1.4)), "D"),
    "counterfactual": ("#a3457f", (0, (2.6, 1.2)), "v"),
    ANCHOR: ("#111111", (0, (2.2, 2.2)), "X"),
}
KEY_DETECTORS = tuple(_STYLES)
"""Detectors that have lines of their own."""
CALIBRATED_DETECTORS = (CONFIDENCE, PROBE, BOTH, ANCHOR)
"""Detectors of the reliability diagram: more lines could not be told apart."""


def line_of(detector: str, *, marker: bool = False) -> dict[str, Any]:
    """A detector's line, as `Line2D` takes it."""
    colour, dashes, sign = _STYLES[detector]
    width = 2.6 if detector == BOTH else 1.6  # anchor may be the same line: both can be seen
    style: dict[str, Any] = {"color": colour, "linestyle": dashes, "linewidth": width}
    if marker:
        style |= {"marker": sign, "markersize": 5.0, "markeredgewidth": 0.6, "markeredgecolor": "white"}
    return style


def colour_of(detector: str) -> str:
    """Its colour."""
    return _STYLES[detector][0]
