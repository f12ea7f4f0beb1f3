"""A figure is a Display: it holds the numbers that it draws, and saves both together.

A subclass computes its table (`data`) when it is made and only draws in `plot`; `save` writes the picture as PNG, SVG
and PDF with the table as CSV beside it. Nothing here goes through pyplot, so no global state is touched, and no file
carries a date or a random id: the same numbers give the same bytes.
"""

import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, ClassVar

import matplotlib
import polars as pl
from matplotlib.figure import Figure

from anchorscope.report.charts.pdf_fonts import outlines_only

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
_METADATA: dict[str, dict[str, None]] = {
    "png": {"Software": None},
    "svg": {"Date": None, "Creator": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}

PNG_DPI = 200


@dataclass(frozen=True)
class Display(ABC):
    """The numbers of one figure, and how to draw them."""

    data: pl.DataFrame
    """Exactly what is drawn, one row per point."""
    notes: tuple[str, ...]
    """Lines under the chart, such as the groups that are empty."""

    name: ClassVar[str]

    @abstractmethod
    def draw(self) -> Figure:
        """Draw, under the shared style that `plot` sets."""

    def plot(self) -> Figure:
        """The figure in the shared style."""
        with matplotlib.rc_context(STYLE):
            return self.draw()

    def save(self, folder: Path) -> None:
        """Write figures/NAME.png, .svg, .pdf and .csv into the folder."""
        target = folder / "figures"
        target.mkdir(exist_ok=True)  # a folder that went away while figures were drawn is not made again
        self._print({kind: target / f"{self.name}.{kind}" for kind in _METADATA})
        self.data.write_csv(target / f"{self.name}.csv")

    def print_png(self, into: BinaryIO) -> None:
        """Write the picture alone."""
        self._print({"png": into})

    def _print(self, targets: Mapping[str, Path | BinaryIO]) -> None:
        with matplotlib.rc_context(STYLE), warnings.catch_warnings(), outlines_only():
            # A model's name may use letters that the font lacks: a box in a title is no reason to fail a run.
            warnings.filterwarnings("ignore", message="Glyph .* missing from font")
            figure = self.draw()
            for kind, target in targets.items():
                figure.savefig(target, format=kind, dpi=PNG_DPI, metadata=_METADATA[kind])
