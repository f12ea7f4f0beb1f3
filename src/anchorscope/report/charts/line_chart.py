"""Lines over the layers with their bands, ticks at the layers that sort the items, and which rows can be drawn."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from anchorscope.report.palette import GROUPS, INK, DatasetStyle, display_name

BAND_ALPHA = 0.16
CURVE_COLUMNS = (
    "dataset",
    "intervention",
    "assignment",
    "group",
    "truth",
    "layer",
    "delta_p",
    "ci_low",
    "ci_high",
    "n",
    "n_groups",
)

_MARK_ROW = 0.034  # height of one row of l* ticks, as a share of the panel

POINTS_NOTE = (
    "ΔP in percentage points: change of the probability that the probe at a layer gives to the item's true label. "
    "Bands: 95% intervals."
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


def reference_handle(label: str = "Reference layer l* of a fold") -> Line2D:
    """Legend entry of the reference layers."""
    return Line2D([], [], color=INK, linestyle="none", marker="|", markersize=9, markeredgewidth=2.2, label=label)
