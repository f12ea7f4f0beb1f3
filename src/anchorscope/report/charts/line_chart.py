"""Lines over the layers: the one program that draws ΔP and AUC, panel by panel.

A figure says which lines, levels and marks of l* its panels have; `line_chart` draws them all the same way. Below
it is what ΔP figures share: which rows can be drawn, a line per group and dataset, and what to say of empty groups.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from anchorscope.report.charts.layout import Legend, empty_panel, layer_axis, sheet, zero_line
from anchorscope.report.palette import CONTROL_GREY, GROUPS, INK, LINE_STYLES, QUIET_INK, DatasetStyle, display_name

BAND_ALPHA = 0.16
CURVE_COLUMNS = (
    "dataset", "intervention", "assignment", "group", "truth", "layer", "delta_p", "ci_low", "ci_high", "n", "n_groups",
)  # fmt: skip

_MARK_ROW = 0.034  # height of one row of l* ticks, as a share of the panel

POINTS_NOTE = (
    "ΔP in percentage points: change of the probability that the probe at a layer gives to the item's true label. "
    "Bands: 95 % intervals."
)


@dataclass(frozen=True)
class Line:
    """One series over the layers."""

    rows: pl.DataFrame
    """`layer`, the value, and for a band `ci_low` and `ci_high`."""
    style: Mapping[str, Any]
    """As `Line2D` takes it."""
    band: bool = True
    """Whether its interval is drawn."""


@dataclass(frozen=True)
class Panel:
    """What one panel shows."""

    title: str
    lines: Sequence[Line]
    empty: str = ""
    """What to say where there is nothing to draw."""
    levels: Sequence[tuple[float, Mapping[str, Any]]] = ()
    """Heights of lines across the whole panel, each with its style."""
    reference_layers: Mapping[str, Sequence[int]] = field(default_factory=dict)
    """Per dataset the layers to mark."""
    styles: Mapping[str, DatasetStyle] = field(default_factory=dict)
    """Colours of the marks."""
    finish: Callable[[Axes], None] | None = None
    """Draws what only this figure has."""


@dataclass(frozen=True)
class LayerAxes:
    """What all panels of a chart share."""

    value: str
    """The column that is drawn."""
    label: str
    """Of the y axis."""
    null: float
    """The height at which nothing happens."""
    n_layers: int
    """Length of the x axis."""
    mark_rows: int = 0
    """Rows of ticks that the lowest part of the panels has to hold."""
    span: tuple[float, float] | None = None
    """Lowest and highest value, where they do not follow from the lines."""


def delta_p_axes(n_layers: int, mark_rows: int = 0) -> LayerAxes:
    """ΔP over the layers; at zero the cut changes nothing."""
    return LayerAxes("delta_p", "ΔP", 0.0, n_layers, mark_rows)


def auc_axes(n_layers: int, mark_rows: int = 0, value: str = "auc") -> LayerAxes:
    """AUC over the layers; 0.5 is guessing."""
    return LayerAxes(value, "AUC", 0.5, n_layers, mark_rows)


def line_chart(
    title: str, panels: Sequence[Panel], grid: tuple[int, int], inches: tuple[float, float], axes_of: LayerAxes,
    legend: Legend,
) -> Figure:  # fmt: skip
    """A grid of panels with shared axes, filled row by row; places that are left over stay empty."""
    page = sheet(title, grid, inches, legend)
    for axes, panel in zip(page.panels, panels, strict=False):
        draw_panel(axes, panel, axes_of)
    for axes in page.panels[len(panels) :]:
        axes.set_axis_off()
    for row in page.axes:
        row[0].set_ylabel(axes_of.label)
    if axes_of.span:
        page.axes[0][0].set_ylim(*axes_of.span)
    if axes_of.mark_rows:
        reserve_mark_space(page.axes[0][0], axes_of.mark_rows)
    return page.figure


def draw_panel(axes: Axes, panel: Panel, axes_of: LayerAxes) -> None:
    """Everything of one panel."""
    zero_line(axes, axes_of.null)
    mark_reference(axes, panel.reference_layers, panel.styles)
    if panel.empty:
        empty_panel(axes, panel.empty)
    for height, style in panel.levels:
        axes.axhline(height, **style)
    draw_lines(axes, panel.lines, axes_of.value)
    if panel.finish:
        panel.finish(axes)
    axes.set_title(panel.title)
    layer_axis(axes, axes_of.n_layers)


def draw_lines(axes: Axes, lines: Sequence[Line], value: str) -> None:
    """The lines with their bands, in order."""
    for line in lines:
        if line.band:
            line_with_band(axes, line.rows, value, **line.style)
        else:
            axes.plot(line.rows["layer"], line.rows[value], **line.style)


def line_with_band(axes: Axes, table: pl.DataFrame, value: str, **line: Any) -> None:
    """One series against `layer`, with the interval as a band in the same colour; missing intervals leave no band."""
    table = table.sort("layer")
    x = table["layer"].to_numpy()
    low, high = (table[name].cast(pl.Float64).fill_null(np.nan).to_numpy() for name in ("ci_low", "ci_high"))
    axes.plot(x, table[value].to_numpy(), **line)
    if np.isfinite(low).any():
        axes.fill_between(x, low, high, color=line["color"], alpha=BAND_ALPHA, linewidth=0)


def drawable(curves: pl.DataFrame, site: str, position: str) -> pl.DataFrame:
    """The rows of one site and position that have a value and at least one item."""
    here = (pl.col("site") == site) & (pl.col("position") == position)
    there = pl.col("delta_p").is_not_null() & pl.col("delta_p").is_not_nan() & (pl.col("n") > 0)
    return curves.filter(here & there)


def missing_groups(drawn: pl.DataFrame, datasets: Sequence[str], panels: Mapping[str, str], by: str) -> list[str]:
    """One note per group line that is not there; the panel is named only if another panel has the line."""
    notes = []
    for dataset in datasets:
        for group in GROUPS:
            rows = drawn.filter((pl.col("dataset") == dataset) & (pl.col("group") == group))
            present = {str(value) for value in rows[by].unique()}
            absent = [panel for panel in panels if panel not in present]
            if not absent:
                continue
            where = "" if len(absent) == len(panels) else f", {', '.join(panels[panel] for panel in absent)}"
            notes.append(f"{group} ({display_name(dataset)}){where}: no items")
    return notes


def group_lines(drawn: pl.DataFrame, styles: Mapping[str, DatasetStyle]) -> list[Line]:
    """Both groups of every dataset; markers only where several datasets must be told apart in grey."""
    lines = []
    for number, (dataset, colours) in enumerate(styles.items()):
        for group in GROUPS:
            rows = drawn.filter((pl.col("dataset") == dataset) & (pl.col("group") == group))
            if rows.height:
                # Every dataset starts its markers at another layer, so that they do not cover each other.
                where: dict[str, Any] = {"markevery": (number % 4, 4), "zorder": 3}
                lines.append(Line(rows, where | line_style(group, colours, marker=len(styles) > 1)))
    return lines


def line_style(group: str, colours: DatasetStyle, *, marker: bool) -> dict[str, Any]:
    """Keyword arguments for one group line, used for the line and for its legend entry."""
    style: dict[str, Any] = {"color": colours.colour(group), "linestyle": LINE_STYLES[group]}
    if marker:
        style |= {"marker": colours.marker, "markersize": 4.4, "markeredgewidth": 0.0}
    return style


def random_lines(drawn: pl.DataFrame) -> list[Line]:
    """The random control of every dataset and group, thin and grey: it should be seen to lie near zero."""
    style = {"color": CONTROL_GREY, "linestyle": ":", "linewidth": 1.1, "zorder": 2}
    return [
        Line(rows.sort("layer"), style, band=False)
        for _, rows in drawn.group_by("dataset", "group", maintain_order=True)
    ]


def mark_reference(axes: Axes, layers: Mapping[str, Sequence[int]], styles: Mapping[str, DatasetStyle]) -> None:
    """A short tick at the foot of the panel for the l* of every fold, one row of ticks per dataset."""
    several = len(styles) > 1
    for row, (dataset, colours) in enumerate(styles.items()):
        for layer in sorted(set(layers.get(dataset, ()))):
            colour = colours.q_colour if several else INK
            foot = _MARK_ROW * row
            axes.axvline(layer, ymin=foot, ymax=foot + 0.84 * _MARK_ROW, color=colour, linewidth=2.2, zorder=4)
            axes.axvline(layer, color=colour, linewidth=0.6, alpha=0.22, zorder=1)


def reserve_mark_space(axes: Axes, n_datasets: int) -> None:
    """Lower the y axis so that the ticks of l* lie under the curves; call once all lines are drawn."""
    low, high = axes.get_ylim()
    share = _MARK_ROW * n_datasets
    axes.set_ylim(low - (high - low) * share / (1 - share), high)


def group_handles(styles: Mapping[str, DatasetStyle], drawn: pl.DataFrame) -> list[Line2D]:
    """Legend entries: all Q-Anchored first, then all A-Anchored, only those that are drawn."""
    handles = []
    for group in GROUPS:
        for dataset, colours in styles.items():
            if drawn.filter((pl.col("dataset") == dataset) & (pl.col("group") == group)).height:
                style = line_style(group, colours, marker=len(styles) > 1)
                handles.append(Line2D([], [], label=f"{group} ({display_name(dataset)})", **style))
    return handles


def random_handle() -> Line2D:
    """Legend entry of the random control."""
    return Line2D(
        [], [], color=CONTROL_GREY, linestyle=":", linewidth=1.1, label="Random tokens cut instead (both groups)"
    )


def reference_handle(label: str = "Reference layer l* of a fold") -> Line2D:
    """Legend entry of the reference layers."""
    return Line2D([], [], color=INK, linestyle="none", marker="|", markersize=9, markeredgewidth=2.2, label=label)


def items_note(counted: str, size: float) -> Callable[[Axes], None]:
    """Small print at the foot of a panel: how many items are behind each line."""

    def write(axes: Axes) -> None:
        axes.text(0.015, 0.02, f"items: {counted}", transform=axes.transAxes, fontsize=size, color=QUIET_INK)

    return write
