"""The chart of several models: one panel each, eight lines with their bands, one legend under all, one y axis for all.

Models differ in depth. With `relative_depth` the x axis runs from the first layer (0) to the last (1), so that the same
place in two panels is the same share of the way through the model.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Self, final

import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from anchorscope.report.assignment_rules import CHART_TITLES
from anchorscope.report.charts.display import Display
from anchorscope.report.charts.layout import Grid, Legend, canvas, empty_panel, layer_axis, zero_line
from anchorscope.report.charts.line_chart import POINTS_NOTE, draw_lines, group_handles, group_lines, missing_groups
from anchorscope.report.comparison.compared import Compared, chart_rows, panel_title
from anchorscope.report.palette import GROUPS, DatasetStyle, dataset_styles, display_name

_COLUMNS = (
    "run", "dataset", "assignment", "group", "layer", "relative_depth", "delta_p", "ci_low", "ci_high", "n", "n_groups",
)  # fmt: skip
PANEL_WIDTHS = {1: 5.6, 2: 4.35, 3: 3.6, 4: 3.05}
"""Inches of a panel, by panels in a row."""
PANEL_HEIGHT = 3.3
GAPS = 0.42, 0.86
"""Between columns and rows."""
_TITLE_LETTERS, _TITLE_POINTS, _SMALLEST_POINTS = 11.0, 10.0, 6.5  # of a panel's title: letters in an inch, sizes


@dataclass(frozen=True)
class ModelPanels(Display):
    """ΔP per layer, a panel per run, under one rule."""

    title: str
    panels: Mapping[str, str]
    """Panel titles by run, in order."""
    layers: Mapping[str, int]
    """Number of layers by run."""
    styles: Mapping[str, DatasetStyle]
    """Colours and marker of every dataset, in order."""
    relative_depth: bool

    @classmethod
    def from_compared(cls, compared: Compared, assignment: str) -> Self:
        """Choose the rows to draw: knockout, all items, each run at its headline site and position."""
        tables = [
            chart_rows(run, assignment).with_columns(
                run=pl.lit(run.model), relative_depth=pl.col("layer") / max(1, run.n_layers - 1)
            )
            for run in compared.runs
        ]
        data = pl.concat(table.select(_COLUMNS) for table in tables)
        panels = {run.model: panel_title(run) for run in compared.runs}
        return cls(
            data=data,
            notes=(POINTS_NOTE, *_read_at_notes(compared), *_missing(compared, data)),
            title=f"ΔP when the question's key words are cut: {CHART_TITLES[assignment]}",
            panels=panels,
            layers={run.model: run.n_layers for run in compared.runs},
            styles=dataset_styles(compared.datasets),
            relative_depth=compared.relative_depth,
        )

    def draw(self) -> Figure:
        """Draw the panels, up to four in a row; those left over in the last row stay empty."""
        rows, columns = panel_grid(len(self.panels))
        legend = Legend(group_handles(self.styles, self.data), _legend_columns(self.styles, columns), self.notes)
        grid = Grid([PANEL_WIDTHS[columns]] * columns, [PANEL_HEIGHT] * rows, gap_x=GAPS[0], gap_y=GAPS[1])
        page = canvas(self.title, grid, legend)
        for axes, (run, title) in zip(page.panels, self.panels.items(), strict=False):
            self._draw_panel(axes, run)
            text, points = fitted_title(title, PANEL_WIDTHS[columns])
            axes.set_title(text, fontsize=points)
        used = page.panels[: len(self.panels)]
        low, high = min(axes.get_ylim()[0] for axes in used), max(axes.get_ylim()[1] for axes in used)
        for number, axes in enumerate(page.panels):
            axes.set_ylim(low, high)
            axes.set_visible(number < len(used))
            axes.tick_params(labelleft=number % columns == 0)
            axes.set_ylabel("ΔP" if number % columns == 0 else "")
        return page.figure

    def _draw_panel(self, axes: Axes, run: str) -> None:
        here = self.data.filter(pl.col("run") == run)
        zero_line(axes)
        if not here.height:
            empty_panel(axes, "no items in either group")
        x = "relative_depth" if self.relative_depth else "layer"
        draw_lines(axes, group_lines(here.with_columns(layer=pl.col(x)), self.styles), "delta_p")
        if self.relative_depth:
            axes.set_xlim(-0.02, 1.02)
            axes.set_xlabel("Relative depth")
        else:
            layer_axis(axes, self.layers[run])


@final
@dataclass(frozen=True)
class FirstPanels(ModelPanels):
    """The chart under the rule that was asked for."""

    name: ClassVar[str] = "delta_p"


@final
@dataclass(frozen=True)
class CorrectedPanels(ModelPanels):
    """The chart with the common shift taken out."""

    name: ClassVar[str] = "delta_p_corrected"


@final
@dataclass(frozen=True)
class PlainPanels(ModelPanels):
    """The paper's chart, where the first one shows another rule."""

    name: ClassVar[str] = "delta_p_plain"


def panel_charts(compared: Compared) -> list[ModelPanels]:
    """The chart, and beside it the same with the common shift taken out (or the paper's, where the first is that)."""
    second = {"corrected": CorrectedPanels, "plain": PlainPanels}[compared.second_assignment]
    return [
        FirstPanels.from_compared(compared, compared.assignment),
        second.from_compared(compared, compared.second_assignment),
    ]


def fitted_title(title: str, inches: float) -> tuple[str, float]:
    """A title and its size: small where it is long, and without its middle where it would be too small to read."""
    room = int(_TITLE_LETTERS * inches * _TITLE_POINTS / _SMALLEST_POINTS)
    half = (room - 1) // 2
    text = title if len(title) <= room else f"{title[:half]}…{title[-half:]}"
    return text, min(_TITLE_POINTS, _TITLE_POINTS * _TITLE_LETTERS * inches / max(1, len(text)))


def panel_grid(panels: int) -> tuple[int, int]:
    """Rows and columns: at most four in a row, and rows of equal length where that can be."""
    rows = math.ceil(panels / 4)
    return rows, math.ceil(panels / rows)


def _legend_columns(shown: Mapping[str, DatasetStyle], columns: int) -> int:
    """Q-Anchored in the first row and A-Anchored in the second, where the sheet is wide enough."""
    return len(shown) if len(shown) <= (2 if columns == 1 else 4) and len(shown) > 1 else min(4, 2 * columns)


def _read_at_notes(compared: Compared) -> list[str]:
    """Where each run was read, where that is not the same for all."""
    read_at = {run.model: f"{run.site}, {run.position}" for run in compared.runs}
    told = "; ".join(f"{model} at {place}" for model, place in read_at.items())
    return [f"Read at different places: {told}."] if len(set(read_at.values())) > 1 else []


def _missing(compared: Compared, drawn: pl.DataFrame) -> list[str]:
    """A note for every line that a reader would look for in vain: a dataset that a run lacks, a group without items."""
    notes = []
    for run in compared.runs:
        lacking = [display_name(name) for name in compared.datasets if name not in run.datasets]
        if lacking:
            notes.append(f"{run.model}: not run on {', '.join(lacking)}")
        here = drawn.filter(pl.col("run") == run.model)
        if here["group"].n_unique() == len(GROUPS):
            groups = missing_groups(here, run.datasets, {run.model: run.model}, "run")
            notes += [f"{run.model}: {note}" for note in groups]
    return notes
