"""A printed figure of lines over layers: its numbers, which panel and line each belongs to, and one way to draw them.

A figure says which rows it shows and names a panel and a look for each; everything else is common: lines are broken
where a layer has no number, a line that rests on few groups of items is thin, dotted and without a band, the point that
the text quotes is ringed, small arrows stand where a line leaves the axis, and all panels have the same y axis, which
does not depend on the rule.
"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import polars as pl
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from anchorscope.report.charts.display import Display
from anchorscope.report.charts.layout import Legend
from anchorscope.report.charts.line_chart import LayerAxes, Line, Panel, items_note, line_chart, reference_handle
from anchorscope.report.looks import Look
from anchorscope.report.palette import INK, DatasetStyle, dataset_styles
from anchorscope.stats.sampled_curve import FEWEST_GROUPS

_RING: dict[str, Any] = {"linestyle": "none", "marker": "o", "markersize": 6.4, "markerfacecolor": "white",
                         "markeredgewidth": 1.7, "zorder": 5}  # fmt: skip


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
    ticks: ClassVar[str] = "Reference layer l* of a fold"

    @abstractmethod
    def looks(self) -> Mapping[str, Look]:
        """Every line's look by name, in the legend's order."""

    @abstractmethod
    def panels(self) -> Mapping[str, str]:
        """Titles of the panels by key."""

    @abstractmethod
    def keys(self) -> tuple[pl.Expr, pl.Expr]:
        """For every row the key of its panel, and the name of its look."""

    def notes_of(self, panel: str, rows: pl.DataFrame) -> str:
        """Small print at the foot of a panel."""
        return ""

    def moved(self, panel: str) -> Mapping[str, tuple[int, ...]]:
        """The layers that a panel marks."""
        return self.layers

    def grid(self, panels: int) -> tuple[int, int]:
        """Rows and columns."""
        return 1, panels

    def draw(self) -> Figure:
        """All panels with a shared y axis, one legend below."""
        looks, panels = self.looks(), self.panels() or {"": "not available"}
        panel, line = self.keys()
        drawn = self.data.with_columns(panel=panel, line=line).filter(pl.col("line").is_in(list(looks)))
        made = [self._panel(key, title, drawn.filter(pl.col("panel") == key), looks) for key, title in panels.items()]
        handles = _handles([look for name, look in looks.items() if name in set(drawn["line"])])
        if any(self.layers.values()):
            handles.append(reference_handle(self.ticks))
        if self.points:
            handles.append(Line2D([], [], color=INK, label="quoted in the text", **_RING))
        grid = self.grid(len(made))
        axes_of = LayerAxes(self.value, self.label, self.null, self.n_layers, len(self.layers), self.span)
        width = grid[1] * self.inches[0]
        longest = max((len(str(handle.get_label())) for handle in handles), default=1)
        columns = max(1, min(len(handles), int((width + 0.5) / (0.55 + 0.068 * longest))))
        return line_chart(self.title, made, grid, self.inches, axes_of, Legend(handles, columns, self.notes))

    def _panel(self, key: str, title: str, rows: pl.DataFrame, looks: Mapping[str, Look]) -> Panel:
        level = rows.filter(pl.col("layer").is_null())
        levels = [(row[self.value], {"zorder": 2} | looks[row["line"]].style()) for row in level.iter_rows(named=True)]
        lines = [
            line
            for place, (name, look) in enumerate(reversed(looks.items()))  # controls below, results above
            for line in self._lines(rows.filter((pl.col("line") == name) & pl.col("layer").is_not_null()), look, place)
        ]
        styles = dataset_styles(self.datasets)
        if len(styles) == 1:
            styles = {name: DatasetStyle(INK, INK, "") for name in styles}
        told = self.notes_of(key, rows)
        empty = "" if rows.height else "no items"
        return Panel(title, lines, empty, levels, self.moved(key), styles, items_note(told, 7.4) if told else None)

    def _lines(self, rows: pl.DataFrame, look: Look, place: int) -> list[Line]:
        """A line with its band, arrows where it leaves the axis, and its ringed point."""
        if not rows.height:
            return []
        groups = pl.coalesce("n_groups", "n") if "n_groups" in rows.columns else pl.col("n")
        few = not look.quiet and (rows.select(groups.max()).item() or 0) < FEWEST_GROUPS
        # Every line starts its markers at another layer, so that they do not cover each other.
        style = {"zorder": 2.5 if look.quiet else 3, "markevery": (place % 4, 4)}
        style |= (look.of_few() if few else look).style()
        lines = broken_lines(rows, self.n_layers, style, self.value, band=not (few or look.quiet))
        for edge, mark, beyond in ((self.span[1], "^", pl.col(self.value) > self.span[1]),
                                   (self.span[0], "v", pl.col(self.value) < self.span[0])):  # fmt: skip
            outside = rows.filter(beyond).with_columns(pl.lit(edge).alias(self.value))
            arrow = {"color": look.colour, "linestyle": "none", "marker": mark, "markersize": 4, "clip_on": False}
            lines += [Line(outside, arrow, band=False)] if outside.height else []
        point = self.points.get(look.about.get("dataset", ""))
        if point is not None and not look.quiet:
            ringed = {**_RING, "color": look.colour, "markeredgecolor": look.colour}
            lines.append(Line(rows.filter(pl.col("layer") == point), ringed, band=False))
        return lines


def broken_lines(
    rows: pl.DataFrame, n_layers: int, style: Mapping[str, Any], value: str = "share", band: bool = True
) -> list[Line]:
    """A line that is broken where a layer has no number; a layer alone between two gaps is a dot."""
    if not rows.height:
        return []
    every = pl.DataFrame({"layer": range(n_layers)}, schema={"layer": pl.Int64})
    whole = every.join(rows.with_columns(pl.col("layer").cast(pl.Int64)), on="layer", how="left").sort("layer")
    known = pl.col(value).is_not_null()
    alone = whole.filter(known & ~known.shift(1, fill_value=False) & ~known.shift(-1, fill_value=False))
    dots = {"color": style["color"], "linestyle": "none", "marker": ".", "markersize": 5.0, "zorder": 3}
    return [Line(whole, style, band), *([Line(alone, dots, band=False)] if alone.height else [])]


def _handles(looks: Sequence[Look]) -> list[Line2D]:
    """Every entry of the legend once; one that stands for lines of several colours is in ink."""
    entries: dict[str, list[Look]] = {}
    for look in looks:
        entries.setdefault(look.entry or look.name, []).append(look)
    shown = {name: replace(some[0], colour=INK) if len({one.colour for one in some}) > 1 else some[0]
             for name, some in entries.items()}  # fmt: skip
    return [Line2D([], [], label=name, **look.style()) for name, look in shown.items()]
