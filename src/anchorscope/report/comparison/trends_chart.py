"""What changes with a model's size: the shape of the Q-Anchored curve in five numbers, against the parameters.

Each point is one run on one dataset, with the interval of its bootstrap draws; the spread is one point per run, over
the datasets that all runs have. Models with random weights are not drawn: a trend through noise is none.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, NullLocator

from anchorscope.report.assignment_rules import CHART_TITLES
from anchorscope.report.charts.display import Display
from anchorscope.report.charts.layout import Grid, Legend, canvas, empty_panel
from anchorscope.report.comparison.compared import Compared
from anchorscope.report.findings import Findings
from anchorscope.report.palette import INK, DatasetStyle, dataset_styles, display_name
from anchorscope.report.statements.run_curves import RunCurves, measurable
from anchorscope.report.statements.size_trends import QUANTITIES, SPREAD, size, values_of
from anchorscope.stats.estimate import Estimate

PANELS = {
    "trough_depth": ("Depth of the trough", "ΔP at the lowest layer"),
    "trough_place": ("Place of the trough", "share of the depth"),
    "decline_share": ("Length of the decline", "share of the depth"),
    "volatility": ("Volatility", "points off the neighbours"),
    SPREAD.id: ("Spread of the datasets", "points at the last layer"),
}
"""Quantity, its title and what its axis says."""
_SCHEMA: dict[str, type[pl.DataType]] = {
    "run": pl.String, "parameters": pl.Int64, "dataset": pl.String, "assignment": pl.String, "quantity": pl.String,
    "value": pl.Float64, "ci_low": pl.Float64, "ci_high": pl.Float64, "n": pl.Int64, "method": pl.String,
}  # fmt: skip
_COLUMNS, _PANEL_INCHES = 3, (3.45, 2.55)
_STEP = 0.026  # between datasets at the same size, as a share of the axis
_NOTE = (
    "Q-Anchored curves. Bars: 95 % intervals from the bootstrap draws; those of the trough hold for all layers at "
    "once. Sizes are drawn on a logarithmic axis."
)


@final
@dataclass(frozen=True)
class TrendsChart(Display):
    """The shape of the curves against the size of the models."""

    title: str
    styles: Mapping[str, DatasetStyle]
    """Colours and marker of every dataset that is drawn."""

    name: ClassVar[str] = "trends"

    @classmethod
    def from_compared(cls, compared: Compared) -> "TrendsChart":
        """Measure every run that has a size and weights that were learned."""
        kept = [run for run in compared.runs if _has_place(run)]
        left_out = [run.model for run in compared.runs if not _has_place(run)]
        together = measurable([RunCurves(run, compared.assignment) for run in kept], compared.shared)
        rows = [row for run in kept for row in _measured(run, compared.assignment, together)]
        few = [display_name(name) for name in compared.shared if name not in together]
        notes = [_NOTE] + ([f"The spread is taken without {', '.join(few)}: too few items in a run."] if few else [])
        notes += [f"Not drawn, random weights or no known size: {', '.join(left_out)}."] if left_out else []
        if compared.assignment == "retained":
            notes.append("Under the retained rule the curves are those that the ordinary probe measures.")
        data = pl.DataFrame(rows, schema=_SCHEMA)
        title = f"What changes with size: {CHART_TITLES[compared.assignment]}"
        return cls(data, tuple(notes), title, dataset_styles(compared.datasets))

    def draw(self) -> Figure:
        """Draw a panel per quantity, the legend where the sixth would be."""
        known = [name for name in self.styles if (self.data["dataset"] == name).any()]
        several = self.data.filter(pl.col("quantity") == SPREAD.id).height > 0
        handles = [_handle(self.styles[name], display_name(name)) for name in known]
        handles += [Line2D([], [], color=INK, marker="*", markersize=8, label="All shared datasets")] if several else []
        rows = math.ceil(len(PANELS) / _COLUMNS)
        width, height = _PANEL_INCHES
        grid = Grid([width] * _COLUMNS, [height] * rows, gap_x=0.82, gap_y=0.98)
        page = canvas(self.title, grid, Legend(handles, max(1, min(5, len(handles))), self.notes))
        for axes, quantity in zip(page.panels, PANELS, strict=False):
            self._draw_panel(axes, quantity)
        for axes in page.panels[len(PANELS) :]:
            axes.set_visible(False)
        return page.figure

    def _draw_panel(self, axes: Axes, quantity: str) -> None:
        title, label = PANELS[quantity]
        axes.set_title(title)
        axes.set_ylabel(label)
        axes.set_xlabel("Parameters")
        here = self.data.filter((pl.col("quantity") == quantity) & pl.col("value").is_not_nan())
        _size_axis(axes, self.data["parameters"].unique().sort().to_list())
        if not here.height:
            why = "needs two datasets that all runs have" if quantity == SPREAD.id else "no draws to measure"
            empty_panel(axes, why)
            return
        datasets = here["dataset"].unique(maintain_order=True).to_list()
        for number, dataset in enumerate(datasets):
            rows = here.filter(pl.col("dataset").eq_missing(dataset)).sort("parameters", maintain_order=True)
            colours = self.styles.get(dataset or "")
            _draw_series(axes, rows, colours, number - (len(datasets) - 1) / 2)
        if quantity in ("trough_place", "decline_share"):
            axes.set_ylim(-0.05, 1.05)
        elif quantity != "trough_depth":
            axes.set_ylim(bottom=min(0.0, axes.get_ylim()[0]))


def _has_place(run: Findings) -> bool:
    """Whether the run can be a point of a trend."""
    return run.parameters > 0 and not run.random_weights


def _measured(run: Findings, assignment: str, shared: Sequence[str]) -> list[dict[str, object]]:
    """All numbers of one run."""
    curves = RunCurves(run, assignment)
    about = {"run": run.model, "parameters": run.parameters, "assignment": assignment}
    wanted = [(one, dataset, [dataset]) for one in QUANTITIES if one.id in PANELS for dataset in run.datasets]
    together = [(SPREAD, None, list(shared))] if len(shared) > 1 else []
    return [
        about | {"dataset": dataset, "quantity": quantity.id} | _numbers(found)
        for quantity, dataset, datasets in [*wanted, *together]
        for found in values_of([curves], quantity, datasets) or ()
    ]


def _numbers(found: Estimate) -> dict[str, object]:
    return {name: getattr(found, name) for name in ("value", "ci_low", "ci_high", "n", "method")}


def _size_axis(axes: Axes, sizes: Sequence[int]) -> None:
    """A logarithmic axis with a tick at every model, those left out that would run into the one before."""
    axes.set_xscale("log")
    low, high = (sizes[0], sizes[-1]) if sizes else (1, 10)
    room = max(math.log(high / low) * 0.12, 0.35)
    axes.set_xlim(low * math.exp(-room), high * math.exp(room))
    width, ticks = math.log(high / low) + 2 * room, list(sizes[:1])
    for parameters in sizes[1:]:
        if math.log(parameters / ticks[-1]) > 0.14 * width:
            ticks.append(parameters)
    axes.xaxis.set_major_locator(FixedLocator(ticks))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xticklabels([size(parameters) for parameters in ticks])


def _draw_series(axes: Axes, rows: pl.DataFrame, colours: DatasetStyle | None, step: float) -> None:
    """One dataset's points with their bars, joined by a thin line; datasets stand side by side, not over each other."""
    low, high = axes.get_xlim()
    x = rows["parameters"].to_numpy() * math.exp(step * _STEP * math.log(high / low))
    y = rows["value"].to_numpy()
    ends = [rows[name].to_numpy() for name in ("ci_low", "ci_high")]
    bars = np.nan_to_num(np.maximum(0.0, [y - ends[0], ends[1] - y]), nan=0.0)
    colour, marker = (colours.q_colour, colours.marker) if colours else (INK, "*")
    axes.errorbar(
        x, y, yerr=bars, color=colour, marker=marker, markersize=5.5 if colours else 8, linewidth=0.9, elinewidth=1.3,
        capsize=2.5, zorder=3,
    )  # fmt: skip


def _handle(colours: DatasetStyle, label: str) -> Line2D:
    return Line2D([], [], color=colours.q_colour, marker=colours.marker, markersize=5.5, linewidth=1.2, label=label)
