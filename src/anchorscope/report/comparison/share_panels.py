"""The question share of several models: one panel each, Λ of every dataset beside what random words take."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, final

import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from anchorscope.report.charts.display import Display
from anchorscope.report.charts.layer_chart import broken_lines
from anchorscope.report.charts.layout import Grid, Legend, canvas, empty_panel, layer_axis, zero_line
from anchorscope.report.charts.line_chart import Line, draw_lines
from anchorscope.report.charts.question_share import HIGHEST, LOWEST
from anchorscope.report.comparison.compared import Compared, panel_title
from anchorscope.report.comparison.model_panels import GAPS, PANEL_HEIGHT, PANEL_WIDTHS, fitted_title, panel_grid
from anchorscope.report.palette import CONTROL_GREY, DatasetStyle, dataset_styles, display_name
from anchorscope.report.shares import has_shares, share_rows

_COLUMNS = (
    "run", "dataset", "intervention", "layer", "relative_depth", "share", "ci_low", "ci_high", "n", "n_groups",
)  # fmt: skip
_RANDOM: dict[str, Any] = {"color": CONTROL_GREY, "linestyle": ":", "linewidth": 1.2, "zorder": 2}
_NOTE = (
    "Λ: the share of the probe's evidence that needs the question's key words. Bands: 95 % intervals over groups of "
    "items. Where a line leaves the axis or has a gap there is too little evidence to divide by."
)


@final
@dataclass(frozen=True)
class SharePanels(Display):
    """Λ per layer, a panel per run."""

    panels: Mapping[str, str]
    """Panel titles by run, in order."""
    layers: Mapping[str, int]
    """Number of layers by run."""
    styles: Mapping[str, DatasetStyle]
    """Colours and marker of every dataset, in order."""
    relative_depth: bool
    """Whether x runs from 0 to 1."""

    name: ClassVar[str] = "question_share"

    @classmethod
    def was_made(cls, compared: Compared) -> bool:
        """Whether any run measured the question share."""
        return any(has_shares(run) for run in compared.runs)

    @classmethod
    def from_compared(cls, compared: Compared) -> "SharePanels":
        """Choose the rows to draw: all items, knockout and random cut, each run at its headline place."""
        tables = [
            share_rows(run, group="all", truth="all")
            .filter(pl.col("intervention").is_in(["knockout", "random"]))
            .with_columns(run=pl.lit(run.model), relative_depth=pl.col("layer") / max(1, run.n_layers - 1))
            .select(_COLUMNS)
            for run in compared.runs
        ]
        lacking = [f"{run.model}: not measured" for run in compared.runs if not has_shares(run)]
        return cls(
            data=pl.concat(tables),
            notes=(_NOTE, *lacking),
            panels={run.model: panel_title(run) for run in compared.runs},
            layers={run.model: run.n_layers for run in compared.runs},
            styles=dataset_styles(compared.datasets),
            relative_depth=compared.relative_depth,
        )

    def draw(self) -> Figure:
        """Draw the panels, up to four in a row, all on the same axis."""
        rows, columns = panel_grid(len(self.panels))
        legend = Legend(self._handles(), min(4, max(2, columns + 1)), self.notes)
        grid = Grid([PANEL_WIDTHS[columns]] * columns, [PANEL_HEIGHT] * rows, gap_x=GAPS[0], gap_y=GAPS[1])
        page = canvas("How much of the evidence needs the question's key words", grid, legend)
        for axes, (run, title) in zip(page.panels, self.panels.items(), strict=False):
            self._draw_panel(axes, run)
            text, points = fitted_title(title, PANEL_WIDTHS[columns])
            axes.set_title(text, fontsize=points)
        for number, axes in enumerate(page.panels):
            axes.set_ylim(LOWEST, HIGHEST)
            axes.set_visible(number < len(self.panels))
            axes.tick_params(labelleft=number % columns == 0)
            axes.set_ylabel("Question share Λ" if number % columns == 0 else "")
        return page.figure

    def _draw_panel(self, axes: Axes, run: str) -> None:
        here, n_layers = self.data.filter(pl.col("run") == run), self.layers[run]
        zero_line(axes)
        if not here.height:
            empty_panel(axes, "not measured")
        lines: list[Line] = []
        for dataset, colours in self.styles.items():
            mine = here.filter(pl.col("dataset") == dataset)
            lines += broken_lines(mine.filter(pl.col("intervention") == "random"), n_layers, _RANDOM, band=False)
            look = {"zorder": 3} | self._style(colours)
            lines += broken_lines(mine.filter(pl.col("intervention") == "knockout"), n_layers, look)
        if self.relative_depth:
            depth = pl.col("layer") / max(1, n_layers - 1)
            lines = [replace(line, rows=line.rows.with_columns(layer=depth)) for line in lines]
        draw_lines(axes, lines, "share")
        if self.relative_depth:
            axes.set_xlim(-0.02, 1.02)
            axes.set_xlabel("Relative depth")
        else:
            layer_axis(axes, n_layers)

    def _style(self, colours: DatasetStyle) -> dict[str, Any]:
        marked = {"marker": colours.marker, "markersize": 4.4, "markeredgewidth": 0.0, "markevery": 4}
        return {"color": colours.q_colour, "linestyle": "-"} | (marked if len(self.styles) > 1 else {})

    def _handles(self) -> list[Line2D]:
        drawn = set(self.data["dataset"])
        handles = [Line2D([], [], label=display_name(name), **self._style(colours))
                   for name, colours in self.styles.items() if name in drawn]  # fmt: skip
        return [*handles, Line2D([], [], label="random words cut instead", **_RANDOM)]
