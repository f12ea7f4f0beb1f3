"""A forest plot: named lines from top to bottom, on each one or several values with their intervals."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from anchorscope.report.palette import GROUPS, INK, Q_ANCHORED, DatasetStyle
from anchorscope.report.verdicts import has_interval
from anchorscope.stats.estimate import Estimate


@dataclass(frozen=True)
class Mark:
    """One value on a line of the forest."""

    line: int
    """Which line, from the top."""
    offset: float
    """How far above (negative) or below the line it stands, as a share of the distance between lines."""
    estimate: Estimate
    style: dict[str, Any]
    """Colour and marker, as `Line2D` takes them."""


def group_style(group: str, colours: DatasetStyle) -> dict[str, Any]:
    """Q-Anchored filled, A-Anchored open: the group can be told in grey."""
    colour = colours.colour
    face = colour if group == Q_ANCHORED else "white"
    marker = "o" if group == Q_ANCHORED else "s"
    return {
        "color": colour,
        "marker": marker,
        "markersize": 4.6,
        "markerfacecolor": face,
        "markeredgecolor": colour,
        "markeredgewidth": 1.1,
        "linewidth": 1.5,
    }


def group_offset(group: str) -> float:
    """Q-Anchored stands above, A-Anchored below."""
    return -0.17 if group == Q_ANCHORED else 0.17


def legend_style(styles: Sequence[DatasetStyle]) -> DatasetStyle:
    """One dataset shows its own colours in the legend; with several, the panel's title names the dataset."""
    return styles[0] if len(styles) == 1 else DatasetStyle(INK, "o")


def group_marks_handles(colours: DatasetStyle) -> list[Line2D]:
    """Legend entries of the two groups."""
    return [Line2D([], [], label=group, **group_style(group, colours)) for group in GROUPS]


def draw_forest(axes: Axes, labels: Sequence[str], marks: Sequence[Mark], null: float | None = 0.0) -> None:
    """Lines with their labels at the left, values with intervals, and the value at which nothing happens."""
    if null is not None:
        axes.axvline(null, color="#555555", linewidth=0.8, zorder=1.5)
    for mark in marks:
        y = mark.line + mark.offset
        found, colour = mark.estimate, mark.style["color"]
        if has_interval(found) and math.isfinite(found.ci_low) and math.isfinite(found.ci_high):
            axes.plot(
                [found.ci_low, found.ci_high],
                [y, y],
                color=colour,
                zorder=2.5,
                linewidth=mark.style.get("linewidth", 1.4),
            )
        axes.plot([found.value], [y], zorder=3, **{**mark.style, "linestyle": "none"})
    axes.set_ylim(max(1, len(labels)) - 0.4, -0.6)
    axes.set_yticks(range(len(labels)), labels)
    axes.tick_params(axis="y", length=0)
    axes.grid(False)
    for line in range(len(labels)):  # a faint line leads from the label to its marks
        axes.axhline(line, color="#ececec", linewidth=0.7, zorder=0.5)
    axes.grid(True, axis="x")
