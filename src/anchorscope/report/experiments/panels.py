"""The kinds of panels that figures of experiments are made of: forests, and lines over layers or doses or heads.

A kind is configured by data: which rows, which column runs down or along, how a series is drawn. `Own` is for the few
panels that no other figure has, such as a heat map.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import polars as pl
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from anchorscope.report.charts.forest import Mark, draw_forest, group_marks_handles, group_offset, group_style
from anchorscope.report.charts.layout import empty_panel, layer_axis, zero_line
from anchorscope.report.charts.line_chart import BAND_ALPHA, line_with_band, mark_reference
from anchorscope.report.experiments.experiment_rows import Where, estimate_of, select
from anchorscope.report.palette import DatasetStyle
from anchorscope.stats.sampled_curve import FEWEST_GROUPS

Style = Mapping[str, Any]


@dataclass(frozen=True)
class Place:
    """Where a panel stands, and whose it is."""

    dataset: str
    part: str
    """Its rule, or by what else a dataset has several rows of panels; empty where it has one."""
    colours: DatasetStyle
    n_layers: int
    reference_layers: tuple[int, ...]
    column: int
    last: bool
    """Whether it is in the last row."""


class Panel(Protocol):
    """What a figure asks of every kind."""

    @property
    def width(self) -> float:
        """In inches."""

    @property
    def title(self) -> str:
        """Stands after dataset and part; may be empty."""

    def draw(self, axes: Axes, rows: pl.DataFrame, place: Place) -> None:
        """Draw one dataset's rows."""

    def handles(self, data: pl.DataFrame, colours: DatasetStyle) -> Sequence[Artist]:
        """Its legend entries."""


@dataclass(frozen=True)
class Marks:
    """How the values on a line of a forest are told apart."""

    column: str
    """Whose values they are told apart by."""
    styles: Mapping[str, tuple[str, Style]]
    """Value → its words in the legend and its style."""
    offset: float = 0.22
    """Between two marks of a line."""

    def of(self, row: Mapping[str, Any], colours: DatasetStyle) -> tuple[float, Style] | None:
        """Offset and style of a row; None for one that is not drawn."""
        names = list(self.styles)
        if row[self.column] not in names:
            return None
        place = names.index(row[self.column]) - (len(names) - 1) / 2
        return self.offset * place, self.styles[row[self.column]][1]

    def handles(self, colours: DatasetStyle) -> list[Line2D]:
        """Legend entries."""
        return [Line2D([], [], label=words, **{**style, "linestyle": "none"}) for words, style in self.styles.values()]


@dataclass(frozen=True)
class GroupMarks(Marks):
    """Both groups, Q-Anchored filled and above, in the dataset's colours."""

    column: str = "group"
    styles: Mapping[str, tuple[str, Style]] = field(default_factory=dict)

    def of(self, row: Mapping[str, Any], colours: DatasetStyle) -> tuple[float, Style] | None:
        """Offset and style of a row's group."""
        return group_offset(row["group"]), group_style(row["group"], colours)

    def handles(self, colours: DatasetStyle) -> list[Line2D]:
        """Both groups."""
        return group_marks_handles(colours)


@dataclass(frozen=True)
class Forest:
    """Named lines from top to bottom, on each one or several values with their intervals."""

    down: str
    """The column whose values are the lines."""
    lines: Mapping[str, str]
    """Value → its words at the left, from the top."""
    marks: Marks
    label: str = ""
    """Of the axis."""
    title: str = ""
    width: float = 3.1
    where: Where = field(default_factory=dict)
    """Which rows of a dataset are drawn."""
    null: float | None = 0.0
    """Where nothing happens."""
    set_apart: Collection[str] = ()
    """Lines that stand below a dashed one, such as controls."""
    words_once: bool = False
    """Whether only the panel at the left has the words of the lines."""
    bins: int = 5
    finish: Callable[[Axes, pl.DataFrame, Place], object] | None = None
    """Draws what only this figure has."""

    def draw(self, axes: Axes, rows: pl.DataFrame, place: Place) -> None:
        """The lines with their marks."""
        names, marks = list(self.lines), []
        for row in select(rows, **self.where).to_dicts():
            looks = self.marks.of(row, place.colours)
            if row[self.down] in names and looks is not None:
                marks.append(Mark(names.index(row[self.down]), looks[0], estimate_of(row), dict(looks[1])))
        shown = place.column == 0 or not self.words_once
        draw_forest(axes, [words if shown else "" for words in self.lines.values()], marks, self.null)
        first = next((line for line, name in enumerate(names) if name in self.set_apart), 0)
        if first:
            axes.axhline(first - 0.5, color="#9a9a9a", linewidth=0.8, linestyle=(0, (4.0, 2.5)))
        axes.margins(x=0.08)
        axes.locator_params(axis="x", nbins=self.bins)
        axes.set_xlabel(self.label)
        if self.finish:
            self.finish(axes, rows, place)
        if not marks:
            axes.set_xticks([])
            empty_panel(axes, "not available")

    def handles(self, data: pl.DataFrame, colours: DatasetStyle) -> Sequence[Artist]:
        """One per kind of mark."""
        return self.marks.handles(colours)


@dataclass(frozen=True)
class Series:
    """One line, or its points, or a level across the panel."""

    where: Where
    """Its rows."""
    style: Style | Callable[[DatasetStyle], Style]
    """As `Line2D` takes it; a function where it takes the dataset's colours."""
    label: str = ""
    """In the legend; empty for none."""
    kind: str = "band"
    """How the interval is drawn: "band", "bars", or "none"; "level" is a line across, "area" fills down to zero."""

    def style_in(self, colours: DatasetStyle) -> dict[str, Any]:
        """Its style for one dataset."""
        return dict(self.style(colours) if callable(self.style) else self.style)


@dataclass(frozen=True)
class Lines:
    """Series over the layers, or over whatever a column counts."""

    series: Sequence[Series]
    label: str
    """Of the y axis, at the first panel of a row."""
    title: str = ""
    width: float = 4.35
    where: Where = field(default_factory=dict)
    x: str = "layer"
    y: str = "value"
    x_label: str = "Layer"
    over_layers: bool = True
    """Whether the x axis has the layers of the model."""
    ticks: Sequence[str] = ()
    """Names of the places on the x axis, where they have any."""
    null: float | None = 0.0
    empty: str = "too few items"
    marks_reference: bool = False
    finish: Callable[[Axes, pl.DataFrame, Place], object] | None = None
    """Draws what only this figure has."""

    def draw(self, axes: Axes, rows: pl.DataFrame, place: Place) -> None:
        """All series that have rows."""
        rows = select(rows, **self.where)
        if self.null is not None:
            zero_line(axes, self.null)
        if self.marks_reference:
            mark_reference(axes, {place.dataset: place.reference_layers}, {place.dataset: place.colours})
        for one in self.series:
            mine = select(rows, **one.where)
            if mine.height:
                self._draw_series(axes, mine, one.kind, one.style_in(place.colours))
        if not rows.height:
            empty_panel(axes, self.empty)
        self._scale(axes, place)
        if self.finish:
            self.finish(axes, rows, place)

    def _draw_series(self, axes: Axes, rows: pl.DataFrame, kind: str, style: dict[str, Any]) -> None:
        rows = rows.sort(self.x)
        x, y = rows[self.x].to_numpy(), rows[self.y].to_numpy()
        style = {"zorder": 3} | style
        if kind == "band" and (rows["n"].max() or 0) < FEWEST_GROUPS:  # type: ignore[operator]
            kind, style = "none", style | {"linewidth": 0.9}  # a band of so few items would say more than is known
        if kind == "level":
            for height in y:
                axes.axhline(height, **style)
        elif kind == "band":
            line_with_band(axes, rows.with_columns(layer=pl.col(self.x)), self.y, **style)
        else:
            axes.plot(x, y, **style)
        if kind == "area":
            axes.fill_between(x, 0, y, color=style["color"], alpha=BAND_ALPHA, linewidth=0)
        if kind == "bars":
            for at, low, high in rows.select(self.x, "ci_low", "ci_high").drop_nulls().iter_rows():
                axes.plot([at, at], [low, high], color=style["color"], linewidth=1.3, zorder=2.5)

    def _scale(self, axes: Axes, place: Place) -> None:
        if self.ticks:
            axes.set_xticks(range(len(self.ticks)), self.ticks)
        elif self.over_layers:
            layer_axis(axes, place.n_layers)
        else:
            axes.xaxis.set_major_locator(MaxNLocator(nbins=9, integer=True))
        axes.set_xlabel(self.x_label)
        if place.column == 0:
            axes.set_ylabel(self.label)

    def handles(self, data: pl.DataFrame, colours: DatasetStyle) -> Sequence[Artist]:
        """One per series with a label that has rows."""
        return [
            Line2D([], [], label=one.label, **one.style_in(colours))
            for one in self.series
            if one.label and select(data, **self.where, **one.where).height
        ]


@dataclass(frozen=True)
class Own:
    """A panel that is drawn by a function of its own."""

    draw: Callable[[Axes, pl.DataFrame, Place], None]
    width: float
    title: str = ""

    def handles(self, data: pl.DataFrame, colours: DatasetStyle) -> Sequence[Artist]:
        """None."""
        return ()
