"""Curves of ΔP: which rows can be drawn, and ticks at the layers that sort the items."""

from collections.abc import Mapping, Sequence

import polars as pl
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from anchorscope.report.palette import INK, DatasetStyle

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


def drawable(curves: pl.DataFrame, site: str, position: str) -> pl.DataFrame:
    """The rows of one site and position that have a value and at least one item."""
    here = (pl.col("site") == site) & (pl.col("position") == position)
    there = pl.col("delta_p").is_not_null() & pl.col("delta_p").is_not_nan() & (pl.col("n") > 0)
    return curves.filter(here & there)


def mark_reference(axes: Axes, layers: Mapping[str, Sequence[int]], styles: Mapping[str, DatasetStyle]) -> None:
    """A short tick at the foot of the panel for the l* of every fold, one row of ticks per dataset."""
    several = len(styles) > 1
    for row, (dataset, colours) in enumerate(styles.items()):
        for layer in sorted(set(layers.get(dataset, ()))):
            colour = colours.colour if several else INK
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
