"""A figure is a `Display`: the numbers that it draws, and the one way to draw them, for page, print and notebook.

A subclass computes its table (`data`) when it is made and only draws in `draw`. `save` writes the picture with the
table as CSV beside it. An SVG carries its panels and lines as numbers (`ShownFigure.values`); pages read them from
there to show what is under the pointer, so that nothing is drawn a second time. Nothing here goes through pyplot, so no
global state is touched, and no file carries a date or a random id: the same numbers give the same bytes.
"""

import json
import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO, ClassVar

import matplotlib
import polars as pl
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from anchorscope.progress import Progress

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


@dataclass(frozen=True)
class Display(ABC):
    """The numbers of one figure, and how to draw them."""

    data: pl.DataFrame
    """Exactly what is drawn, one row per point."""
    notes: tuple[str, ...]
    """Lines under the chart, such as the groups that are empty."""

    name: ClassVar[str]
    formats: ClassVar[tuple[str, ...]] = ("svg",)
    """The pictures that a results folder has of it; `write` makes the others."""

    @abstractmethod
    def draw(self) -> Figure:
        """Draw, under the shared style that `plot` sets."""

    def plot(self) -> Figure:
        """The figure in the shared style."""
        with matplotlib.rc_context(STYLE):
            return self.draw()

    def save(self, folder: Path) -> None:
        """Write figures/NAME with every format of its own, and NAME.csv, into the folder."""
        target = folder / "figures"
        target.mkdir(exist_ok=True)  # a folder that went away while figures were drawn is not made again
        figure = self.plot()
        for kind in self.formats:
            write_figure(figure, target / f"{self.name}.{kind}", kind)
        self.data.write_csv(target / f"{self.name}.csv")

    def write(self, target: Path | BinaryIO, kind: str) -> None:
        """Write one file: a picture, or the numbers as CSV."""
        if kind == "csv":
            self.data.write_csv(target)
        else:
            write_figure(self.plot(), target, kind)


def write_figure(figure: Figure, target: Path | BinaryIO, kind: str) -> None:
    """Write a figure as a picture."""
    metadata = _METADATA[kind]
    if kind == "svg" and isinstance(figure, ShownFigure) and figure.curves:
        metadata = metadata | {"Description": json.dumps(figure.values(), separators=(",", ":"))}
    with matplotlib.rc_context(STYLE), warnings.catch_warnings():
        # A model's name may use letters that the font lacks: a box in a title is no reason to fail a run.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        figure.savefig(target, format=kind, dpi=PNG_DPI, metadata=metadata)


def save_all(figures: Sequence[Display], out: Path, progress: Progress) -> None:
    """Save every figure into the folder."""
    for figure in figures:
        figure.save(out)
        progress.advance(1)
