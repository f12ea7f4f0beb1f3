"""How every figure is laid out, styled and written, for page, print and notebook.

Places are computed in inches, not by an automatic layout: every part gets the room it needs, so that nothing is clipped
however many panels, legend entries or notes there are. An SVG carries its panels and lines as numbers
(`ShownFigure.values`); pages read them from there to show what is under the pointer, so that nothing is drawn a second
time. Nothing here goes through pyplot, so no global state is touched, and no file carries a date or a random id: the
same numbers give the same bytes.
"""

import json
import math
import textwrap
import warnings
from collections.abc import Iterable, Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO

import matplotlib
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from anchorscope.report.palette import INK, QUIET_INK, DatasetStyle

STYLE: dict[str, object] = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans", "Verdana", "Arial"],
    "font.size": 9.0,
    "axes.titlesize": 10.0,
    "axes.titley": 1.0,  # where it goes anyway; left open, every drawing measures all ticks to find that out
    "axes.labelsize": 10.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#444444",
    "axes.linewidth": 0.8,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "grid.color": "#e6e6e6",
    "grid.linewidth": 0.7,
    "xtick.labelsize": 8.5,
    "ytick.labelsize": 8.5,
    "xtick.color": "#444444",
    "ytick.color": "#444444",
    "lines.linewidth": 1.8,
    "lines.solid_capstyle": "round",
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "legend.handlelength": 2.8,
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
    "text.parse_math": False,  # names are other people's text: a "$" in one must stay a "$"
    "axes.unicode_minus": True,
    "svg.fonttype": "none",  # text stays text: searchable, and small
    "svg.hashsalt": "anchorscope",
    "pdf.fonttype": 42,  # real fonts in the PDF; many journals refuse type 3
}

# A date or a version in a file would make two equal runs differ.
_METADATA: dict[str, dict[str, Any]] = {
    "svg": {"Date": None, "Creator": None},
    "png": {"Software": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}
FORMATS = (*_METADATA, "csv")
"""What a figure can be written as."""
PNG_DPI = 200
_NOTEBOOK_DPI = 110


class ShownFigure(Figure):
    """A matplotlib figure that a notebook shows as an image, and that knows the numbers of its lines."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.curves: list[tuple[Axes, dict[str, Any]]] = []

    def _repr_png_(self) -> bytes:
        """The picture, which Jupyter asks for."""
        picture = BytesIO()
        with matplotlib.rc_context(STYLE):
            self.savefig(picture, format="png", dpi=_NOTEBOOK_DPI)
        return picture.getvalue()

    def values(self) -> list[dict[str, Any]]:
        """Every panel that has lines: its box as shares of the picture from the top left, its x axis, its lines."""
        panels = []
        for axes in dict.fromkeys(axes for axes, _ in self.curves):
            box = axes.get_position()
            panels.append(
                {
                    "title": axes.get_title(),
                    "box": [round(share, 4) for share in (box.x0, 1 - box.y1, box.x1, 1 - box.y0)],
                    "x": [round(end, 4) for end in axes.get_xlim()],
                    "of": axes.get_xlabel(),
                    "curves": [curve for mine, curve in self.curves if mine is axes],
                }
            )
        return panels


def note_curve(
    axes: Axes, name: str, colour: str, x: Iterable[float], y: Sequence[float | None], *ends: Sequence[float | None]
) -> None:
    """Keep a line's numbers with its figure; `ends` are the lower and upper ones of its interval."""
    if name and isinstance(axes.figure, ShownFigure):
        lists = [[_rounded(value) for value in values] for values in (y, *ends)]
        curve = {"name": name, "colour": to_hex(colour), "x": [_rounded(value) for value in x]}
        axes.figure.curves.append((axes, curve | dict(zip(("y", "low", "high"), lists, strict=False))))


def _rounded(value: float | None) -> float | None:
    """To six digits; JSON has no NaN."""
    if value is None or not math.isfinite(value):
        return None
    return int(value) if float(value).is_integer() else float(f"{value:.6g}")


def write_figure(figure: Figure, target: Path | BinaryIO, kind: str) -> None:
    """Write a figure as a picture."""
    metadata = _METADATA[kind]
    if kind == "svg" and isinstance(figure, ShownFigure) and figure.curves:
        metadata = metadata | {"Description": json.dumps(figure.values(), separators=(",", ":"))}
    with matplotlib.rc_context(STYLE), warnings.catch_warnings():
        # A model's name may use letters that the font lacks: a box in a title is no reason to fail a run.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        figure.savefig(target, format=kind, dpi=PNG_DPI, metadata=metadata)


# Where the parts of a figure stand, in inches

_LEFT, _RIGHT = 0.72, 0.18
_TITLE, _X_LABEL, _LEGEND_ROW, _NOTE_ROW, _EDGE = 0.62, 0.58, 0.215, 0.165, 0.12
_BETWEEN_ROWS = 0.78  # for the x labels above and the titles below
_LETTERS_PER_INCH = 15.0  # of small print
_LONGEST_TITLE = 110
_TALLEST = 16.0  # that the panels of a figure share
_LOWEST_PANEL = 0.85


def canvas(
    title: str,
    widths: Sequence[float],
    n_rows: int,
    height: float,
    *,
    labels: float = 0.0,
    gap: float = 0.42,
    handles: Sequence[Artist] = (),
    legend_columns: int = 1,
    notes: Sequence[str] = (),
) -> tuple[Figure, list[list[Axes]]]:
    """A figure and its panels by row and column, the title above and legend and notes below all of them.

    `labels` is room left of the first column. Rows are lower than `height` where they would not fit a page.
    """
    tall = max(_LOWEST_PANEL, min(height, _TALLEST / max(1, n_rows) - _BETWEEN_ROWS))
    width = _LEFT + labels + sum(widths) + (len(widths) - 1) * gap + _RIGHT
    longest = max((len(str(handle.get_label())) for handle in handles), default=1)
    columns = max(1, min(legend_columns, len(handles), int(width / (0.5 + 0.062 * longest))))
    legend_rows = math.ceil(len(handles) / columns)
    lines = [line for note in notes for line in textwrap.wrap(note, int((width - _LEFT) * _LETTERS_PER_INCH))]
    under = legend_rows * _LEGEND_ROW + 0.06 + len(lines) * _NOTE_ROW + _EDGE
    whole = _TITLE + n_rows * tall + (n_rows - 1) * _BETWEEN_ROWS + _X_LABEL + under
    figure = ShownFigure(figsize=(width, whole))
    rows: list[list[Axes]] = []
    for row in range(n_rows):
        bottom = whole - _TITLE - tall - row * (tall + _BETWEEN_ROWS)
        rows.append([])
        for column, wide in enumerate(widths):
            left = _LEFT + labels + sum(widths[:column]) + column * gap
            rows[row].append(figure.add_axes((left / width, bottom / whole, wide / width, tall / whole)))
    short = textwrap.shorten(title, _LONGEST_TITLE, placeholder=" …") if len(title) > _LONGEST_TITLE else title
    size = min(12.0, 0.94 * width * 72 / (0.68 * max(1, len(short))))  # a bold letter is about 0.68 of its size wide
    figure.suptitle(short, y=1 - 0.10 / whole, va="top", fontsize=size, fontweight="bold", color=INK)
    if handles:
        figure.legend(
            handles=_ordered_by_rows(handles, columns),
            loc="upper center",
            bbox_to_anchor=(0.5, (under + 0.05) / whole),
            ncol=columns,
            borderaxespad=0.0,
            columnspacing=2.0,
            labelcolor=INK,
        )
    top = under - legend_rows * _LEGEND_ROW - 0.06
    for number, line in enumerate(lines):
        figure.text(_LEFT / width, (top - number * _NOTE_ROW) / whole, line, fontsize=7.6, color=QUIET_INK, va="top")
    return figure, rows


def _ordered_by_rows(handles: Sequence[Artist], columns: int) -> list[Artist]:
    """Matplotlib fills a legend column by column; reorder so that it reads row by row."""
    rows = math.ceil(len(handles) / columns)
    full = len(handles) - (rows - 1) * columns  # columns that reach the last row
    depths = [rows if column < full else rows - 1 for column in range(columns)]
    return [handles[row * columns + column] for column, depth in enumerate(depths) for row in range(depth)]


# What panels have in common


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


_MARK_ROW = 0.034  # height of one row of l* ticks, as a share of the panel


def mark_reference(axes: Axes, layers: Mapping[str, Sequence[int]], styles: Mapping[str, DatasetStyle]) -> None:
    """A short tick at the foot of the panel for the l* of every fold, one row of ticks per dataset."""
    several = len(styles) > 1
    for row, (dataset, colours) in enumerate(styles.items()):
        for layer in sorted(set(layers.get(dataset, ()))):
            colour = colours.colour if several else INK
            foot = _MARK_ROW * row
            axes.axvline(layer, ymin=foot, ymax=foot + 0.84 * _MARK_ROW, color=colour, linewidth=2.2, zorder=4)
            axes.axvline(layer, color=colour, linewidth=0.6, alpha=0.22, zorder=1)


def reserve_mark_space(axes: Axes, n_datasets: int) -> None:
    """Lower the y axis so that the ticks of l* lie under the curves; call once all lines are drawn."""
    low, high = axes.get_ylim()
    share = _MARK_ROW * n_datasets
    axes.set_ylim(low - (high - low) * share / (1 - share), high)


def reference_handle(label: str = "Reference layer l* of a fold") -> Line2D:
    """Legend entry of the reference layers."""
    return Line2D([], [], color=INK, linestyle="none", marker="|", markersize=9, markeredgewidth=2.2, label=label)
