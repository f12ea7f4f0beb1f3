"""What changes from run to run, in numbers: of the parts of the evidence, and of the Q-Anchored curves.

Each point is one run on one dataset, with its interval; the spread is one point per run, over the datasets that all
runs have. Runs stand in order of size. Models with random weights are not drawn: a trend through noise is none.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from anchorscope.report.assignment_rules import CHART_TITLES
from anchorscope.report.charts.display import Display
from anchorscope.report.charts.layout import Grid, Legend, canvas, empty_panel
from anchorscope.report.comparison.compared import Compared
from anchorscope.report.comparison.size_trends import SPREAD, Quantity, followed, values_of, with_intervals
from anchorscope.report.palette import INK, DatasetStyle, dataset_styles, display_name
from anchorscope.report.size_order import order_by_size, size
from anchorscope.report.statements.run_curves import RunCurves

_SCHEMA: dict[str, type[pl.DataType]] = {
    "run": pl.String,
    "parameters": pl.Int64,
    "dataset": pl.String,
    "assignment": pl.String,
    "quantity": pl.String,
    "value": pl.Float64,
    "ci_low": pl.Float64,
    "ci_high": pl.Float64,
    "n": pl.Int64,
    "method": pl.String,
}
_COLUMNS, _PANEL_INCHES = 3, (3.45, 2.3)
_STEP = 0.09  # between datasets of the same run
_NAME_LETTERS = 56  # of all runs' names under one panel
_NOTE = "Bars: 95 % intervals; those of peaks and troughs hold for all layers at once."


@dataclass(frozen=True)
class TrendsChart(Display):
    """Numbers of the runs, a panel per quantity."""

    title: str
    quantities: tuple[str, ...]
    """Ids of what is drawn, in order."""
    titles: tuple[str, ...]
    """Of the panels."""
    units: tuple[str, ...]
    """Of the y axes."""
    runs: Mapping[str, str]
    """What stands under each run, in order."""
    styles: Mapping[str, DatasetStyle]
    """Colours and marker of every dataset."""

    name: ClassVar[str] = "trends"

    @classmethod
    def from_compared(cls, compared: Compared, assignment: str | None) -> Self:
        """Measure every run with weights that were learned; the parts have no assignment."""
        order = order_by_size(compared.runs)
        runs = [RunCurves(run, assignment or "plain") for run in order.runs]
        together = with_intervals(runs, order.datasets, assignment)
        drawn = [one for one in followed(assignment) if one.title]
        drawn += [SPREAD] if assignment is not None and len(together) > 1 else []
        rows = [row for run in runs for one in drawn for row in _measured(run, one, together)]
        few = [display_name(name) for name in order.datasets if name not in together]
        notes = [_NOTE] + (
            [f"The spread is taken without {', '.join(few)}: too few items in a run."]
            if few and SPREAD in drawn
            else []
        )
        noise = ", ".join(run.model for run in order.left_out)
        notes += [f"Not drawn, random weights: {noise}."] if noise else []
        what = CHART_TITLES[assignment] if assignment else "the parts of the evidence"
        letters = max(6, _NAME_LETTERS // max(1, len(runs)))
        return cls(
            data=pl.DataFrame(rows, schema=_SCHEMA).with_columns(assignment=pl.lit(assignment)),
            notes=tuple(notes),
            title=f"What changes {order.along}: {what}" if len(runs) > 1 else what,
            quantities=tuple(one.id for one in drawn),
            titles=tuple(one.title for one in drawn),
            units=tuple(one.unit for one in drawn),
            runs={run.model: f"{_short(run.model, letters)}\n{size(run.findings.parameters)}" for run in runs},
            styles=dataset_styles(compared.datasets),
        )

    def draw(self) -> Figure:
        """Draw a panel per quantity."""
        known = [name for name in self.styles if (self.data["dataset"] == name).any()]
        handles = [_handle(self.styles[name], display_name(name)) for name in known]
        if self.data["dataset"].null_count():
            handles.append(Line2D([], [], color=INK, marker="*", markersize=8, label="All shared datasets"))
        rows, (width, height) = math.ceil(len(self.quantities) / _COLUMNS), _PANEL_INCHES
        grid = Grid([width] * _COLUMNS, [height] * rows, gap_x=0.82, gap_y=1.05)
        page = canvas(self.title, grid, Legend(handles, max(1, min(5, len(handles))), self.notes))
        for place, axes in enumerate(page.panels):
            axes.set_visible(place < len(self.quantities))
            if place < len(self.quantities):
                self._draw_panel(axes, place)
        return page.figure

    def _draw_panel(self, axes: Axes, place: int) -> None:
        axes.set_title(self.titles[place])
        axes.set_ylabel(self.units[place])
        axes.set_xticks(range(len(self.runs)), list(self.runs.values()), fontsize=7.2)
        axes.set_xlim(-0.5, len(self.runs) - 0.5)
        here = self.data.filter((pl.col("quantity") == self.quantities[place]) & pl.col("value").is_finite())
        if not here.height:
            empty_panel(axes, "not measured")
            return
        datasets = here["dataset"].unique(maintain_order=True).to_list()
        for number, dataset in enumerate(datasets):
            rows = here.filter(pl.col("dataset").eq_missing(dataset))
            self._draw_series(axes, rows, self.styles.get(dataset or ""), _STEP * (number - (len(datasets) - 1) / 2))
        if self.units[place] == "of the depth":
            axes.set_ylim(-0.05, 1.05)
        else:
            low, high = axes.get_ylim()
            axes.set_ylim(min(0.0, low), max(0.0, high))

    def _draw_series(self, axes: Axes, rows: pl.DataFrame, colours: DatasetStyle | None, step: float) -> None:
        """One dataset's points with their bars, joined by a thin line; datasets stand side by side."""
        places = list(self.runs)
        x = np.array([places.index(name) for name in rows["run"]]) + step
        y, low, high = (rows[name].to_numpy() for name in ("value", "ci_low", "ci_high"))
        # Without an upper end the bar leaves the panel.
        bars = np.nan_to_num(np.maximum(0.0, [y - low, high - y]), nan=0.0, posinf=10.0)
        colour, marker = (colours.q_colour, colours.marker) if colours else (INK, "*")
        axes.errorbar(
            x,
            y,
            yerr=bars,
            color=colour,
            marker=marker,
            markersize=5.5 if colours else 8,
            linewidth=0.9,
            elinewidth=1.3,
            capsize=2.5,
            zorder=3,
        )


@dataclass(frozen=True)
class CurveTrendsChart(TrendsChart):
    """The same of the ΔP curves."""

    name: ClassVar[str] = "trends_delta_p"


def trends_charts(compared: Compared, shares: bool) -> list[TrendsChart]:
    """Of the parts where they were measured, and of the curves; none where there is nothing to follow."""
    if len(order_by_size(compared.runs).runs) < 2:
        return []
    share = [TrendsChart.from_compared(compared, None)] if shares else []
    return [*share, CurveTrendsChart.from_compared(compared, compared.assignment)]


def _measured(run: RunCurves, quantity: Quantity, together: Sequence[str]) -> list[dict[str, object]]:
    """A number of one run, per dataset or over all of them."""
    sets = [(None, together)] if quantity is SPREAD else [(name, [name]) for name in run.datasets]
    return [
        {
            "run": run.model,
            "parameters": run.findings.parameters,
            "dataset": dataset,
            "quantity": quantity.id,
            **{name: getattr(found, name) for name in ("value", "ci_low", "ci_high", "n", "method")},
        }
        for dataset, datasets in sets
        for found in values_of([run], quantity, datasets) or ()
    ]


def _short(name: str, letters: int) -> str:
    """Without its middle where it is too long: models of a family differ at the end."""
    half = (letters - 1) // 2
    return name if len(name) <= letters else f"{name[:half]}…{name[-half:]}"


def _handle(colours: DatasetStyle, label: str) -> Line2D:
    return Line2D([], [], color=colours.q_colour, marker=colours.marker, markersize=5.5, linewidth=1.2, label=label)
