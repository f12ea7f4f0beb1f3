"""ΔP lines as every ΔP figure draws them: which rows, which style, the marks of l*, and what to say of empty groups."""

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from anchorscope.report.charts.layout import line_with_band
from anchorscope.report.palette import CONTROL_GREY, GROUPS, INK, LINE_STYLES, DatasetStyle, display_name

CURVE_COLUMNS = (
    "dataset", "intervention", "assignment", "group", "truth", "layer", "delta_p", "ci_low", "ci_high", "n",
)  # fmt: skip

_MARK_ROW = 0.034  # height of one row of l* ticks, as a share of the panel

POINTS_NOTE = (
    "ΔP in percentage points: change of the probability that the probe at a layer gives to the item's true label. "
    "Bands: 95 % intervals."
)


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


def draw_groups(axes: Axes, drawn: pl.DataFrame, styles: Mapping[str, DatasetStyle]) -> None:
    """Both groups of every dataset; markers only where several datasets must be told apart in grey."""
    for number, (dataset, colours) in enumerate(styles.items()):
        for group in GROUPS:
            rows = drawn.filter((pl.col("dataset") == dataset) & (pl.col("group") == group))
            if rows.height:
                style = line_style(group, colours, marker=len(styles) > 1)
                # Every dataset starts its markers at another layer, so that they do not cover each other.
                line_with_band(axes, rows, "delta_p", markevery=(number % 4, 4), zorder=3, **style)


def line_style(group: str, colours: DatasetStyle, *, marker: bool) -> dict[str, Any]:
    """Keyword arguments for one group line, used for the line and for its legend entry."""
    style: dict[str, Any] = {"color": colours.colour(group), "linestyle": LINE_STYLES[group]}
    if marker:
        style |= {"marker": colours.marker, "markersize": 4.4, "markeredgewidth": 0.0}
    return style


def draw_random(axes: Axes, drawn: pl.DataFrame) -> None:
    """The random control of every dataset and group, thin and grey: it should be seen to lie near zero."""
    for _, rows in drawn.group_by("dataset", "group", maintain_order=True):
        rows = rows.sort("layer")
        axes.plot(rows["layer"], rows["delta_p"], color=CONTROL_GREY, linestyle=":", linewidth=1.1, zorder=2)


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


def reference_handle() -> Line2D:
    """Legend entry of the reference layers."""
    return Line2D(
        [], [], color=INK, linestyle="none", marker="|", markersize=9, markeredgewidth=2.2,
        label="Reference layer l* of a fold",
    )  # fmt: skip
