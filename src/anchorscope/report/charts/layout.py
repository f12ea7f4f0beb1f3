"""Where the parts of a figure stand: a grid of panels, one legend and notes below.

Places are computed in inches, not by an automatic layout: every part gets the room it needs, so that nothing is clipped
however many datasets, rows, legend entries or notes there are.
"""

import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from anchorscope.report.charts.display import ShownFigure
from anchorscope.report.palette import INK, QUIET_INK

_LEFT, _RIGHT = 0.72, 0.18
_TITLE, _X_LABEL, _LEGEND_ROW, _NOTE_ROW, _EDGE = 0.62, 0.58, 0.215, 0.165, 0.12
_LETTERS_PER_INCH = 15.0  # of small print
_LONGEST_TITLE = 110
_TALLEST = 16.0  # inches that the panels of a figure share
_LOWEST_PANEL = 0.85


@dataclass(frozen=True)
class Legend:
    """What stands under the panels."""

    handles: Sequence[Artist]
    """Entries in reading order."""
    columns: int
    """Entries per row."""
    notes: Sequence[str]
    """Lines of small print below the entries."""

    @property
    def rows(self) -> int:
        """Rows of entries."""
        return math.ceil(len(self.handles) / self.columns)


@dataclass(frozen=True)
class Grid:
    """Panels in rows and columns, in inches."""

    widths: Sequence[float]
    """Of each column of panels."""
    heights: Sequence[float]
    """Of each row."""
    labels: float = 0.0
    """Room left of the first column, beside what every figure has."""
    gap_x: float = 0.42
    """Between columns."""
    gap_y: float = 0.78
    """Between rows, for the x labels above and the titles below."""


@dataclass(frozen=True)
class Sheet:
    """A figure with its panels and its legend."""

    figure: Figure
    axes: list[list[Axes]]
    """Panels by row and column."""


def canvas(title: str, grid: Grid, legend: Legend) -> Sheet:
    """Panels with the title above and legend and notes below all of them."""
    width = _LEFT + grid.labels + sum(grid.widths) + (len(grid.widths) - 1) * grid.gap_x + _RIGHT
    notes = [line for note in legend.notes for line in textwrap.wrap(note, int((width - _LEFT) * _LETTERS_PER_INCH))]
    foot = _X_LABEL + legend.rows * _LEGEND_ROW + 0.06 + len(notes) * _NOTE_ROW + _EDGE
    height = _TITLE + sum(grid.heights) + (len(grid.heights) - 1) * grid.gap_y + foot
    figure = ShownFigure(figsize=(width, height))
    rows: list[list[Axes]] = []
    top = height - _TITLE
    for tall in grid.heights:
        left, row = _LEFT + grid.labels, []
        for wide in grid.widths:
            row.append(figure.add_axes((left / width, (top - tall) / height, wide / width, tall / height)))
            left += wide + grid.gap_x
        rows.append(row)
        top -= tall + grid.gap_y
    short = textwrap.shorten(title, _LONGEST_TITLE, placeholder=" …") if len(title) > _LONGEST_TITLE else title
    size = min(12.0, 0.94 * width * 72 / (0.68 * max(1, len(short))))  # a bold letter is about 0.68 of its size wide
    figure.suptitle(short, y=1 - 0.10 / height, va="top", fontsize=size, fontweight="bold", color=INK)
    _write_foot(figure, legend, notes, foot - _X_LABEL)
    return Sheet(figure, rows)


def _write_foot(figure: Figure, legend: Legend, notes: Sequence[str], top: float) -> None:
    width, height = figure.get_size_inches()
    if legend.handles:
        figure.legend(
            handles=_ordered_by_rows(legend.handles, legend.columns),
            loc="upper center",
            bbox_to_anchor=(0.5, (top + 0.05) / height),
            ncol=legend.columns,
            borderaxespad=0.0,
            columnspacing=2.0,
            labelcolor=INK,
        )
    y = top - legend.rows * _LEGEND_ROW - 0.06
    for number, line in enumerate(notes):
        figure.text(_LEFT / width, (y - number * _NOTE_ROW) / height, line, fontsize=7.6, color=QUIET_INK, va="top")


def _ordered_by_rows(handles: Sequence[Artist], columns: int) -> list[Artist]:
    """Matplotlib fills a legend column by column; reorder so that it reads row by row."""
    rows = math.ceil(len(handles) / columns)
    full = len(handles) - (rows - 1) * columns  # columns that reach the last row
    depths = [rows if column < full else rows - 1 for column in range(columns)]
    return [handles[row * columns + column] for column, depth in enumerate(depths) for row in range(depth)]


def columns_that_fit(handles: Sequence[Artist], inches: float, most: int) -> int:
    """How many entries of a legend stand beside each other under panels of this width."""
    longest = max((len(str(handle.get_label())) for handle in handles), default=1)
    return max(1, min(most, len(handles), int((_LEFT + inches + _RIGHT) / (0.5 + 0.062 * longest))))


def rows_that_fit(n_rows: int, height: float, gap: float) -> list[float]:
    """Heights of this many equal rows: as wished, or lower where they would not fit a page."""
    room = _TALLEST / max(1, n_rows) - gap
    return [max(_LOWEST_PANEL, min(height, room))] * n_rows


def layer_axis(axes: Axes, n_layers: int) -> None:
    """Whole layers on the x axis, with a little room at both ends."""
    pad = max(0.3, 0.02 * (n_layers - 1))
    axes.set_xlim(-pad, n_layers - 1 + pad)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=8, integer=True))
    axes.set_xlabel("Layer")


def zero_line(axes: Axes, height: float = 0.0) -> None:
    """The line at which nothing happens."""
    axes.axhline(height, color="#555555", linewidth=0.8, zorder=1.5)


def empty_panel(axes: Axes, text: str) -> None:
    """Say in the panel that there is nothing to draw."""
    axes.text(0.5, 0.5, text, transform=axes.transAxes, ha="center", va="center", color=QUIET_INK, fontsize=9)
