"""The charts of several runs: a panel each with the controls drawn, one legend under all, one y axis for all.

ΔP is drawn under two rules. Models differ in depth. With `relative_depth` the x axis runs
from the first layer (0) to the last (1), so that the same place in two panels is the same share of the way through the
model.
"""

import math
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Self, final

import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from anchorscope.report.assignment_rules import CHART_TITLES
from anchorscope.report.charts.delta_p import delta_p_span
from anchorscope.report.charts.display import Display
from anchorscope.report.charts.layer_chart import legend_columns, look_handles, look_lines
from anchorscope.report.charts.layout import Grid, Legend, canvas, empty_panel, layer_axis, zero_line
from anchorscope.report.charts.line_chart import POINTS_NOTE, draw_lines, missing_groups
from anchorscope.report.comparison.compared import Compared, chart_rows, panel_title
from anchorscope.report.findings import Findings
from anchorscope.report.looks import Look, group_line, group_looks
from anchorscope.report.palette import GROUPS, display_name

_NUMBERS = ("layer", "relative_depth", "ci_low", "ci_high", "n", "n_groups")
_PANEL_WIDTHS = {1: 5.6, 2: 4.35, 3: 3.6, 4: 3.05}  # inches, by panels in a row
_PANEL_HEIGHT, _GAPS = 3.3, (0.42, 0.86)
_TITLE_LETTERS, _TITLE_POINTS, _SMALLEST_POINTS = 11.0, 10.0, 6.5  # of a panel's title: letters in an inch, sizes


@dataclass(frozen=True)
class RunPanels(Display):
    """Lines over the layers, a panel per run."""

    title: str
    panels: Mapping[str, str]
    """Panel titles by run, in order."""
    layers: Mapping[str, int]
    """Number of layers by run."""
    datasets: tuple[str, ...]
    span: tuple[float, float]
    """Lowest and highest value of the y axis."""
    relative_depth: bool
    """Whether x runs from 0 to 1."""

    value: ClassVar[str]
    """The column that is drawn."""
    label: ClassVar[str]
    """Of the y axis."""
    empty: ClassVar[str]
    """What a panel without lines says."""

    @classmethod
    def made(
        cls,
        compared: Compared,
        title: str,
        tables: Iterable[pl.DataFrame],
        notes: Sequence[str],
        span: tuple[float, float],
    ) -> Self:
        """The chart of these rows, a table per run."""
        pairs = zip(compared.runs, tables, strict=True)
        data = pl.concat(
            rows.with_columns(run=pl.lit(run.model), relative_depth=pl.col("layer") / max(1, run.n_layers - 1))
            for run, rows in pairs
        )
        keys = [name for name in ("run", "dataset", "intervention", "assignment", "group") if name in data.columns]
        return cls(
            data=data.select(*keys, cls.value, *_NUMBERS),
            notes=tuple(notes),
            title=title,
            panels={run.model: panel_title(run) for run in compared.runs},
            layers={run.model: run.n_layers for run in compared.runs},
            datasets=tuple(compared.datasets),
            span=span,
            relative_depth=compared.relative_depth,
        )

    @abstractmethod
    def looks(self) -> Mapping[str, Look]:
        """Every line's look by name, in the legend's order."""

    @abstractmethod
    def line(self) -> pl.Expr:
        """For every row the name of its look."""

    def draw(self) -> Figure:
        """Draw the panels, up to four in a row; those left over in the last row stay empty."""
        rows, columns = panel_grid(len(self.panels))
        looks, drawn = self.looks(), self.data.with_columns(line=self.line())
        width = _PANEL_WIDTHS[columns]
        handles = look_handles([look for name, look in looks.items() if name in set(drawn["line"])])
        legend = Legend(handles, legend_columns(handles, columns * width), self.notes)
        grid = Grid([width] * columns, [_PANEL_HEIGHT] * rows, gap_x=_GAPS[0], gap_y=_GAPS[1])
        page = canvas(self.title, grid, legend)
        for axes, (run, title) in zip(page.panels, self.panels.items(), strict=False):
            self._draw_panel(axes, drawn.filter(pl.col("run") == run), self.layers[run], looks)
            text, points = fitted_title(title, width)
            axes.set_title(text, fontsize=points)
        for number, axes in enumerate(page.panels):
            axes.set_ylim(*self.span)
            axes.set_visible(number < len(self.panels))
            axes.tick_params(labelleft=number % columns == 0)
            axes.set_ylabel(self.label if number % columns == 0 else "")
        return page.figure

    def _draw_panel(self, axes: Axes, here: pl.DataFrame, n_layers: int, looks: Mapping[str, Look]) -> None:
        zero_line(axes)
        if not here.height:
            empty_panel(axes, self.empty)
        lines = [
            line
            for place, (name, look) in enumerate(reversed(list(looks.items())))
            for line in look_lines(here.filter(pl.col("line") == name), look, place, self.value, self.span, n_layers)
        ]
        if self.relative_depth:
            depth = pl.col("layer") / max(1, n_layers - 1)
            lines = [replace(line, rows=line.rows.with_columns(layer=depth)) for line in lines]
        draw_lines(axes, lines, self.value)
        if self.relative_depth:
            axes.set_xlim(-0.02, 1.02)
            axes.set_xlabel("Relative depth")
        else:
            layer_axis(axes, n_layers)


@dataclass(frozen=True)
class DeltaPPanels(RunPanels):
    """ΔP per layer of both groups under one rule, with the random control."""

    name: ClassVar[str] = "delta_p"
    value: ClassVar[str] = "delta_p"
    label: ClassVar[str] = "ΔP"
    empty: ClassVar[str] = "no items in either group"

    @classmethod
    def from_compared(cls, compared: Compared, assignment: str) -> Self:
        """Choose the rows to draw: knockout and random cut, all items, each run at its headline place."""
        tables = [chart_rows(run, assignment) for run in compared.runs]
        pairs = zip(compared.runs, tables, strict=True)
        notes = (POINTS_NOTE, *_read_at(compared), *(note for one in pairs for note in _missing(compared, *one)))
        title = f"ΔP when the question's key words are cut: {CHART_TITLES[assignment]}"
        return cls.made(compared, title, tables, notes, delta_p_span(*(run.curves for run in compared.runs)))

    def looks(self) -> Mapping[str, Look]:
        """Both groups of every dataset, with the random control."""
        return group_looks(self.datasets)

    def line(self) -> pl.Expr:
        """Group and dataset, and whether it is the control."""
        return group_line(self.datasets)


@final
@dataclass(frozen=True)
class CorrectedPanels(DeltaPPanels):
    """The chart with the common shift taken out."""

    name: ClassVar[str] = "delta_p_corrected"


@final
@dataclass(frozen=True)
class PlainPanels(DeltaPPanels):
    """The paper's chart, where the first one shows another rule."""

    name: ClassVar[str] = "delta_p_plain"


def delta_p_charts(compared: Compared) -> list[DeltaPPanels]:
    """The chart, and beside it the same with the common shift taken out (or the paper's, where the first is that)."""
    second = {"corrected": CorrectedPanels, "plain": PlainPanels}[compared.second_assignment]
    return [
        DeltaPPanels.from_compared(compared, compared.assignment),
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


def _read_at(compared: Compared) -> list[str]:
    """Where each run was read, where that is not the same for all."""
    read_at = {run.model: f"{run.site}, {run.position}" for run in compared.runs}
    told = "; ".join(f"{model} at {place}" for model, place in read_at.items())
    return [f"Read at different places: {told}."] if len(set(read_at.values())) > 1 else []


def _missing(compared: Compared, run: Findings, rows: pl.DataFrame) -> list[str]:
    """A note for every line that a reader would look for in vain: a dataset that a run lacks, a group without items."""
    lacking = [display_name(name) for name in compared.datasets if name not in run.datasets]
    notes = [f"{run.model}: not run on {', '.join(lacking)}"] if lacking else []
    here = rows.filter(pl.col("intervention") == "knockout").with_columns(run=pl.lit(run.model))
    if here["group"].n_unique() == len(GROUPS):
        notes += [f"{run.model}: {note}" for note in missing_groups(here, run.datasets, {run.model: run.model}, "run")]
    return notes
