"""AUROC of a few detectors for every dataset learned from and every dataset tested: numbers on coloured cells."""

import math
from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np
import polars as pl
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.patches import Patch, Rectangle

from anchorscope.report.charts.display import Display
from anchorscope.report.charts.heatmap import NO_CELL
from anchorscope.report.charts.layout import Grid, Legend, beside, canvas
from anchorscope.report.detection.results import (
    ANCHOR,
    AUROC,
    BOTH,
    CONFIDENCE,
    PROBE,
    Cell,
    DetectionResults,
    shown_place,
)
from anchorscope.report.palette import INK
from anchorscope.report.wording import count, number

SHOWN = (PROBE, CONFIDENCE, BOTH, ANCHOR)
"""A panel each."""
_OTHERS = "all others"
_MAP = "Blues"  # one hue, from light to dark: the order can be seen in grey
_LOWEST, _HIGHEST = 0.5, 1.0
_CELL, _CELL_HEIGHT, _NARROWEST = 0.5, 0.36, 2.0
_LONGEST_NAME, _LETTER_INCHES = 20, 0.078


@final
@dataclass(frozen=True)
class TransferChart(Display):
    """A panel per detector: rows are what it learned from, columns what it was tested on."""

    model: str
    datasets: tuple[str, ...]
    detectors: tuple[str, ...]

    name: ClassVar[str] = "detector_transfer"

    @classmethod
    def from_results(cls, results: DetectionResults, model: str) -> "TransferChart":
        """Cells of the matrix, and those in which all other datasets were learned from."""
        cells = {(cell.train, cell.test) for cell in (*results.in_domain, *results.elsewhere, *results.held_out)}
        rows = results.detectors.filter(
            (pl.col("metric") == AUROC) & (pl.col("prevalence") == results.prevalence) & pl.col("value").is_finite()
            & pl.col("detector").is_in(SHOWN)
        )  # fmt: skip
        inside = [pair in cells for pair in rows.select("train", "test").iter_rows()]
        data = rows.filter(pl.Series(inside, dtype=pl.Boolean)).drop("metric")
        there = set(data["detector"])
        tested = ", ".join(f"{shown_place(cell.test)} {count(results.n_tested(cell))}" for cell in results.in_domain)
        notes = (f"AUROC, {results.prevalence} answers. Framed: tested on what it learned from, out of fold. "
                 f"“{_OTHERS}”: learned from every dataset but the tested one. Grey: not measured. "
                 f"Answers tested: {tested}.",)  # fmt: skip
        return cls(data, notes, model, results.datasets, tuple(name for name in SHOWN if name in there))

    @property
    def was_made(self) -> bool:
        """Whether anything was tested on other data than it learned from."""
        return bool(self.data.filter(pl.col("train") != pl.col("test")).height)

    @property
    def trains(self) -> list[str]:
        """The rows of a panel, from the top."""
        there = set(self.data["train"])
        held_out = any(Cell(*pair).held_out for pair in self.data.select("train", "test").iter_rows())
        return [*(name for name in self.datasets if name in there), *([_OTHERS] if held_out else [])]

    def matrix(self, detector: str) -> np.ndarray:
        """AUROC [train, test]; NaN where nothing was measured."""
        found = np.full((len(self.trains), len(self.datasets)), np.nan)
        for train, test, value in (
            self.data.filter(pl.col("detector") == detector).select("train", "test", "value").iter_rows()
        ):
            row = _OTHERS if Cell(train, test).held_out else train
            found[self.trains.index(row), self.datasets.index(test)] = value
        return found

    def draw(self) -> Figure:
        """Two panels in a row."""
        names = [_cut(shown_place(name)) for name in self.datasets]
        rows = [_cut(shown_place(name)) for name in self.trains]
        columns = min(2, len(self.detectors))
        n_rows = math.ceil(len(self.detectors) / columns)
        slant = 0.6 * _LETTER_INCHES * max(map(len, names)) + 0.15
        width = max(_NARROWEST, _CELL * len(names))
        grid = Grid([width] * columns, [_CELL_HEIGHT * len(rows)] * n_rows,
                    labels=max(0.3, _LETTER_INCHES * max(map(len, rows)) - 0.2), gap_x=0.45, gap_y=0.85 + slant,
                    right=0.7, foot=slant)  # fmt: skip
        diagonal = Patch(facecolor="none", edgecolor=INK, linewidth=1.8, label="tested on what it learned from")
        page = canvas(f"{self.model}: on other data", grid, Legend([diagonal], 1, self.notes))
        for place, (axes, detector) in enumerate(zip(page.panels, self.detectors, strict=False)):
            image = self._draw_panel(axes, detector)
            axes.set_title(detector)
            axes.set_xticks(range(len(names)), names, rotation=35, ha="right", rotation_mode="anchor", fontsize=8)
            axes.set_yticks(range(len(rows)), rows if place % columns == 0 else [""] * len(rows), fontsize=8)
            axes.set_xlabel("tested on", fontsize=8.5)
            if place % columns == 0:
                axes.set_ylabel("learned from", fontsize=8.5)
            if place % columns == columns - 1:
                page.figure.colorbar(image, cax=beside(page.figure, axes, 0.12, 0.13)).outline.set_visible(False)
        for axes in page.panels[len(self.detectors) :]:
            axes.set_axis_off()
        return page.figure

    def _draw_panel(self, axes: Axes, detector: str) -> AxesImage:
        values, scale = self.matrix(detector), Normalize(_LOWEST, _HIGHEST)
        image = axes.imshow(np.ma.masked_invalid(values), cmap=colormaps[_MAP], norm=scale, aspect="auto")
        axes.set_facecolor(NO_CELL)
        axes.grid(False)
        axes.tick_params(length=0)
        for spine in axes.spines.values():
            spine.set_visible(False)
        for row, column in np.argwhere(np.isfinite(values)):
            value = float(values[row, column])
            axes.text(column, row, number(value, 2), ha="center", va="center", fontsize=8,
                      color="white" if scale(value) > 0.62 else INK)  # fmt: skip
            if self.trains[row] == self.datasets[column]:
                axes.add_patch(Rectangle((column - 0.47, row - 0.46), 0.94, 0.92, fill=False, edgecolor=INK,
                                         linewidth=1.8))  # fmt: skip
        return image


def _cut(name: str) -> str:
    return name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 1]}…"
