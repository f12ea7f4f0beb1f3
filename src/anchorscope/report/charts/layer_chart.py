"""A printed figure of lines over layers, of one run or several: its numbers, and one way to draw them.

A figure chooses its rows and names a panel and a look for each. The rest is common: lines are broken where a layer has
no number, a line that rests on few groups of items is thin, dotted and without a band, the quoted point is ringed,
arrows mark where a line leaves the axis, and all panels have the same y axis.
"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from anchorscope.report.charts.display import Display
from anchorscope.report.charts.layout import Grid, Legend, canvas, empty_panel, layer_axis, zero_line
from anchorscope.report.charts.line_chart import line_with_band, mark_reference, reference_handle, reserve_mark_space
from anchorscope.report.looks import Look
from anchorscope.report.palette import INK, dataset_styles, display_name
from anchorscope.stats.curves import FEWEST_GROUPS

_GAP_Y = 0.72
_LETTERS_PER_INCH = 12.0  # of a panel's title
_DOT: dict[str, Any] = {"linestyle": "none", "marker": ".", "markersize": 5.0, "zorder": 3}
_ARROW: dict[str, Any] = {"linestyle": "none", "markersize": 4, "clip_on": False}
_RING: dict[str, Any] = {
    "linestyle": "none",
    "marker": "o",
    "markersize": 6.4,
    "markerfacecolor": "white",
    "markeredgewidth": 1.7,
    "zorder": 5,
}


@dataclass(frozen=True)
class LayerChart(Display):
    """Lines over layers in one or several panels."""

    title: str
    n_layers: int
    datasets: tuple[str, ...]
    span: tuple[float, float]
    """Lowest and highest value of the y axis."""
    layers: Mapping[str, tuple[int, ...]]
    """Per dataset the layers to mark with ticks."""
    points: Mapping[str, int]
    """Per dataset the layer whose numbers the text quotes."""

    value: ClassVar[str]
    label: ClassVar[str]
    null: ClassVar[float] = 0.0
    inches: ClassVar[tuple[float, float]] = (4.35, 3.3)
    """Width and height of a panel."""
    formats: ClassVar[tuple[str, ...]] = ("svg", "png", "pdf")
    ticks: ClassVar[str] = "Reference layer l* of a fold"
    empty: ClassVar[str] = "no items"
    """What a panel without lines says."""
    relative_depth = False
    """Whether x runs from 0 to 1."""

    @abstractmethod
    def looks(self) -> Mapping[str, Look]:
        """Every line's look by name, in the legend's order."""

    @abstractmethod
    def panels(self) -> Mapping[str, str]:
        """Titles of the panels by key."""

    @abstractmethod
    def keys(self) -> tuple[pl.Expr, pl.Expr]:
        """For every row the key of its panel, and the name of its look."""

    def depth_of(self, panel: str) -> int:
        """The number of layers in a panel."""
        return self.n_layers

    def panel_size(self) -> tuple[float, float]:
        """Width and height of a panel in inches."""
        return self.inches

    def grid(self, panels: int) -> tuple[int, int]:
        """Rows and columns."""
        return 1, panels

    def draw(self) -> Figure:
        """All panels with a shared y axis, one legend below."""
        looks, panels = self.looks(), self.panels() or {"": "not available"}
        panel, line = self.keys()
        drawn = self.data.with_columns(panel=panel, line=line).filter(pl.col("line").is_in(list(looks)))
        handles = look_handles([look for name, look in looks.items() if name in set(drawn["line"])])
        if any(self.layers.values()):
            handles.append(reference_handle(self.ticks))
        if self.points:
            handles.append(Line2D([], [], color=INK, label="quoted in the text", **_RING))
        rows, columns = self.grid(len(panels))
        width, height = self.panel_size()
        legend = Legend(handles, legend_columns(handles, columns * width), self.notes)
        page = canvas(self.title, Grid([width] * columns, [height] * rows, gap_y=_GAP_Y), legend)
        for axes, (key, title) in zip(page.panels, panels.items(), strict=False):
            self._draw_panel(axes, key, drawn.filter(pl.col("panel") == key), looks)
            room = int(_LETTERS_PER_INCH * width)
            axes.set_title(title if len(title) <= room else f"{title[: room // 2]}…{title[-room // 2 :]}")
            axes.set_ylim(*self.span)
            if self.layers:
                reserve_mark_space(axes, len(self.layers))
        for axes in page.panels[len(panels) :]:
            axes.set_axis_off()
        for row in page.axes:
            row[0].set_ylabel(self.label)
            for axes in row[1:]:
                axes.tick_params(labelleft=False)
        return page.figure

    def _draw_panel(self, axes: Axes, key: str, rows: pl.DataFrame, looks: Mapping[str, Look]) -> None:
        zero_line(axes, self.null)
        depth = self.depth_of(key)
        styles = dataset_styles(self.datasets)
        mark_reference(axes, self.layers, styles)
        if not rows.height:
            empty_panel(axes, self.empty)
        for row in rows.filter(pl.col("layer").is_null()).iter_rows(named=True):
            axes.axhline(row[self.value], **{"zorder": 2} | looks[row["line"]].style())
        layered = rows.filter(pl.col("layer").is_not_null())
        for place, (name, look) in enumerate(looks.items()):
            mine = layered.filter(pl.col("line") == name)
            if mine.height:
                self._draw_line(axes, mine, look, place, depth)
        if self.relative_depth:
            axes.set_xlim(-0.02, 1.02)
            axes.set_xlabel("Relative depth")
        else:
            layer_axis(axes, depth)

    def _draw_line(self, axes: Axes, rows: pl.DataFrame, look: Look, place: int, depth: int) -> None:
        """A line with its band, arrows where it leaves the axis, and the ringed point that the text quotes.

        It is broken where a layer has no number; a layer alone between two gaps is a dot.
        """
        groups = pl.coalesce("n_groups", "n") if "n_groups" in rows.columns else pl.col("n")
        few = not look.quiet and (rows.select(groups.max()).item() or 0) < FEWEST_GROUPS
        # Every line starts its markers at another layer, so that they do not cover each other.
        style = {"zorder": (2.5 if look.quiet else 3) - 0.01 * place, "markevery": (place % 4, 4)}
        style |= (look.of_few() if few else look).style()
        every = pl.DataFrame({"layer": range(depth)}, schema={"layer": pl.Int64})
        table = every.join(rows.with_columns(pl.col("layer").cast(pl.Int64)), on="layer", how="left").sort("layer")
        share = pl.col("layer") / max(1, depth - 1) if self.relative_depth else pl.col("layer")
        number = pl.col(self.value)
        known, low, high = number.is_not_null(), *self.span
        parts: list[tuple[pl.Expr, dict[str, Any]]] = [
            (known & ~known.shift(1, fill_value=False) & ~known.shift(-1, fill_value=False), _DOT),
            (number > high, _ARROW | {"marker": "^"}),
            (number < low, _ARROW | {"marker": "v"}),
        ]
        point = self.points.get(look.about.get("dataset", ""))
        if point is not None and not look.quiet:
            parts.append((pl.col("layer") == point, _RING | {"markeredgecolor": look.colour}))
        shown = table.with_columns(layer=share)
        line_with_band(axes, shown, self.value, look.name, band=not (few or look.quiet), **style)
        for wanted, marks in parts:
            chosen = table.filter(wanted).with_columns(number.clip(low, high), layer=share)
            if chosen.height:
                axes.plot(chosen["layer"], chosen[self.value], color=look.colour, **marks)


def look_handles(looks: Sequence[Look]) -> list[Line2D]:
    """Every entry of the legend once. Of several datasets: a colour for each, then a stroke for each group."""
    groups = {look.about["group"]: look for look in looks if "group" in look.about and not look.quiet}
    several = len({look.about.get("dataset") for look in looks if not look.quiet}) > 1
    entries: dict[str, Look] = {}
    if groups and several:
        for look in looks:
            if not look.quiet:
                name = display_name(look.about["dataset"])
                entries.setdefault(name, replace(look, dash=""))
        entries |= {group: replace(look, colour=INK, marker="") for group, look in groups.items()}
    for look in looks:
        if look.quiet or not (groups and several):
            entries.setdefault(look.entry or look.name, look)
    return [Line2D([], [], label=name, **look.style()) for name, look in entries.items()]


def legend_columns(handles: Sequence[Line2D], inches: float) -> int:
    """How many entries stand beside each other under panels of this width."""
    longest = max((len(str(handle.get_label())) for handle in handles), default=1)
    return max(1, min(len(handles), int((inches + 0.5) / (0.55 + 0.068 * longest))))
