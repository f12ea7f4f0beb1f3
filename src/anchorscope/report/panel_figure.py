"""Every figure is made of panels: forests (named lines with values and intervals), or lines over layers or heads.

A panel is configured by data. A figure has a row of panels per dataset (or per value of another column); titles, axes,
legend and small print are the same for all. Places are computed in inches, so that nothing is clipped.

An SVG carries its panels and lines as numbers (`ShownFigure.values`); pages read them from there to show what is under
the pointer. Nothing here goes through pyplot, so no global state is touched, and no file carries a date or a random id:
the same numbers give the same bytes.
"""

import math
import textwrap
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO

import matplotlib
import polars as pl
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from anchorscope.catalogue import EXPERIMENTS
from anchorscope.errors import UserError
from anchorscope.json_text import to_json
from anchorscope.plugins import load, plugins_of, problem
from anchorscope.progress import Progress
from anchorscope.report.findings import (
    Findings,
    Where,
    datasets_in,
    row_estimate,
    select,
)
from anchorscope.report.palette import (
    FEW_CLUSTERS,
    GROUPS,
    INK,
    Q_ANCHORED,
    QUIET_INK,
    DatasetStyle,
    dataset_styles,
    display_name,
)
from anchorscope.report.reading import finite
from anchorscope.stats.curves import FEWEST_GROUPS
from anchorscope.stats.estimate import Estimate

STYLE = dict(
    matplotlib.rc_params_from_file(
        Path(__file__).with_name("figure.mplstyle"), use_default_template=False
    )
)
"""How every figure looks, for page, print and notebook."""
# A date or a version in a file would make two equal runs differ.
_METADATA: dict[str, dict[str, Any]] = {
    "svg": {"Date": None, "Creator": None},
    "png": {"Software": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}
FORMATS = (*_METADATA, "csv")
"""What a figure can be written as."""
PNG_DPI = 200
_NOTEBOOK_DPI = 110


class ShownFigure(Figure):
    """A matplotlib figure that a notebook shows as an image, and that knows the numbers of its lines."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.curves: list[tuple[Axes, dict[str, Any]]] = []

    def _repr_png_(self) -> bytes:
        """The picture, which Jupyter asks for."""
        picture = BytesIO()
        with matplotlib.rc_context(STYLE):
            self.savefig(picture, format="png", dpi=_NOTEBOOK_DPI)
        return picture.getvalue()

    def values(self) -> list[dict[str, Any]]:
        """Every panel that has lines: its box as shares of the picture from the top left, its x axis, its lines."""
        panels = []
        for axes in dict.fromkeys(axes for axes, _ in self.curves):
            box = axes.get_position()
            panels.append(
                {
                    "title": axes.get_title(),
                    "box": [
                        round(share, 4)
                        for share in (box.x0, 1 - box.y1, box.x1, 1 - box.y0)
                    ],
                    "x": [round(end, 4) for end in axes.get_xlim()],
                    "of": axes.get_xlabel(),
                    "curves": [curve for mine, curve in self.curves if mine is axes],
                }
            )
        return panels


def note_curve(
    axes: Axes,
    name: str,
    colour: str,
    x: Iterable[float],
    y: Sequence[float | None],
    *ends: Sequence[float | None],
) -> None:
    """Keep a line's numbers with its figure; `ends` are the lower and upper ones of its interval."""
    if name and isinstance(axes.figure, ShownFigure):
        lists = [[_rounded(value) for value in values] for values in (y, *ends)]
        curve = {
            "name": name,
            "colour": to_hex(colour),
            "x": [_rounded(value) for value in x],
        }
        axes.figure.curves.append(
            (axes, curve | dict(zip(("y", "low", "high"), lists, strict=False)))
        )


def _rounded(value: float | None) -> float | None:
    """To six digits, for JSON."""
    if (number := finite(value)) is None:
        return None
    return int(number) if float(number).is_integer() else float(f"{number:.6g}")


def write_figure(figure: Figure, target: Path | BinaryIO, kind: str) -> None:
    """Write a figure as a picture."""
    metadata = _METADATA[kind]
    if kind == "svg" and isinstance(figure, ShownFigure) and figure.curves:
        metadata = metadata | {"Description": to_json(figure.values(), compact=True)}
    with matplotlib.rc_context(STYLE), warnings.catch_warnings():
        # A model's name may use letters that the font lacks: a box in a title is no reason to fail a run.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        figure.savefig(target, format=kind, dpi=PNG_DPI, metadata=metadata)


# Where the parts of a figure stand, in inches

_LEFT, _RIGHT = 0.72, 0.18
_TITLE, _X_LABEL, _LEGEND_ROW, _NOTE_ROW, _EDGE = 0.62, 0.58, 0.215, 0.165, 0.12
_BETWEEN_ROWS = 0.78  # for the x labels above and the titles below
_LETTERS_PER_INCH = 15.0  # of small print
_LONGEST_TITLE = 110
_TALLEST = 16.0  # that the panels of a figure share
_LOWEST_PANEL = 0.85


def canvas(
    title: str,
    widths: Sequence[float],
    n_rows: int,
    height: float,
    *,
    labels: float = 0.0,
    gap: float = 0.42,
    handles: Sequence[Artist] = (),
    legend_columns: int = 1,
    notes: Sequence[str] = (),
) -> tuple[Figure, list[list[Axes]]]:
    """A figure and its panels by row and column, the title above and legend and notes below all of them.

    `labels` is room left of the first column. Rows are lower than `height` where they would not fit a page.
    """
    tall = max(_LOWEST_PANEL, min(height, _TALLEST / max(1, n_rows) - _BETWEEN_ROWS))
    width = _LEFT + labels + sum(widths) + (len(widths) - 1) * gap + _RIGHT
    longest = max((len(str(handle.get_label())) for handle in handles), default=1)
    columns = max(
        1, min(legend_columns, len(handles), int(width / (0.5 + 0.062 * longest)))
    )
    legend_rows = math.ceil(len(handles) / columns)
    lines = [
        line
        for note in notes
        for line in textwrap.wrap(note, int((width - _LEFT) * _LETTERS_PER_INCH))
    ]
    under = legend_rows * _LEGEND_ROW + 0.06 + len(lines) * _NOTE_ROW + _EDGE
    whole = _TITLE + n_rows * tall + (n_rows - 1) * _BETWEEN_ROWS + _X_LABEL + under
    figure = ShownFigure(figsize=(width, whole))
    rows: list[list[Axes]] = []
    for row in range(n_rows):
        bottom = whole - _TITLE - tall - row * (tall + _BETWEEN_ROWS)
        rows.append([])
        for column, wide in enumerate(widths):
            left = _LEFT + labels + sum(widths[:column]) + column * gap
            rows[row].append(
                figure.add_axes(
                    (left / width, bottom / whole, wide / width, tall / whole)
                )
            )
    short = (
        textwrap.shorten(title, _LONGEST_TITLE, placeholder=" …")
        if len(title) > _LONGEST_TITLE
        else title
    )
    # a bold letter is about 0.68 of its size wide
    size = min(12.0, 0.94 * width * 72 / (0.68 * max(1, len(short))))
    figure.suptitle(
        short, y=1 - 0.10 / whole, va="top", fontsize=size, fontweight="bold", color=INK
    )
    if handles:
        figure.legend(
            handles=_ordered_by_rows(handles, columns),
            loc="upper center",
            bbox_to_anchor=(0.5, (under + 0.05) / whole),
            ncol=columns,
            borderaxespad=0.0,
            columnspacing=2.0,
            labelcolor=INK,
        )
    top = under - legend_rows * _LEGEND_ROW - 0.06
    for number, line in enumerate(lines):
        figure.text(
            _LEFT / width,
            (top - number * _NOTE_ROW) / whole,
            line,
            fontsize=7.6,
            color=QUIET_INK,
            va="top",
        )
    return figure, rows


def _ordered_by_rows(handles: Sequence[Artist], columns: int) -> list[Artist]:
    """Matplotlib fills a legend column by column; reorder so that it reads row by row."""
    rows = math.ceil(len(handles) / columns)
    full = len(handles) - (rows - 1) * columns  # columns that reach the last row
    depths = [rows if column < full else rows - 1 for column in range(columns)]
    return [
        handles[row * columns + column]
        for column, depth in enumerate(depths)
        for row in range(depth)
    ]


# What panels have in common


def layer_axis(axes: Axes, n_layers: int) -> None:
    """Whole layers on the x axis, with a little room at both ends."""
    pad = max(0.3, 0.02 * (n_layers - 1))
    axes.set_xlim(-pad, n_layers - 1 + pad)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=8, integer=True))
    axes.set_xlabel("Layer")


def empty_panel(axes: Axes, text: str) -> None:
    """Say in the panel that there is nothing to draw."""
    axes.text(
        0.5,
        0.5,
        text,
        transform=axes.transAxes,
        ha="center",
        va="center",
        color=QUIET_INK,
        fontsize=9,
    )


_MARK_ROW = 0.034  # height of one row of l* ticks, as a share of the panel


def mark_reference(
    axes: Axes, layers: Mapping[str, Sequence[int]], styles: Mapping[str, DatasetStyle]
) -> None:
    """A short tick at the foot of the panel for the l* of every fold, one row of ticks per dataset."""
    several = len(styles) > 1
    for row, (dataset, colours) in enumerate(styles.items()):
        for layer in sorted(set(layers.get(dataset, ()))):
            colour = colours.colour if several else INK
            foot = _MARK_ROW * row
            axes.axvline(
                layer,
                ymin=foot,
                ymax=foot + 0.84 * _MARK_ROW,
                color=colour,
                linewidth=2.2,
                zorder=4,
            )
            axes.axvline(layer, color=colour, linewidth=0.6, alpha=0.22, zorder=1)


def reserve_mark_space(axes: Axes, n_datasets: int) -> None:
    """Lower the y axis so that the ticks of l* lie under the curves; call once all lines are drawn."""
    low, high = axes.get_ylim()
    share = _MARK_ROW * n_datasets
    axes.set_ylim(low - (high - low) * share / (1 - share), high)


def reference_handle(label: str = "Reference layer l* of each fold") -> Line2D:
    """Legend entry of the reference layers."""
    return Line2D(
        [],
        [],
        color=INK,
        linestyle="none",
        marker="|",
        markersize=9,
        markeredgewidth=2.2,
        label=label,
    )


# Panels

Style = Mapping[str, Any]
Look = Style | Callable[[DatasetStyle], Style]
"""As `Line2D` takes it; a function where it takes the dataset's colours."""


def _style_in(look: Look, colours: DatasetStyle) -> dict[str, Any]:
    return dict(look(colours) if callable(look) else look)


@dataclass(frozen=True)
class Place:
    """Where a panel stands, and whose it is."""

    dataset: str
    colours: DatasetStyle
    n_layers: int
    reference_layers: tuple[int, ...]
    column: int


def _group_style(group: str, colours: DatasetStyle) -> dict[str, Any]:
    """Q-Anchored filled, A-Anchored open, so that the groups differ in grey as well."""
    face, marker = (colours.colour, "o") if group == Q_ANCHORED else ("white", "s")
    edge = {
        "markerfacecolor": face,
        "markeredgecolor": colours.colour,
        "markeredgewidth": 1.1,
    }
    return {
        "color": colours.colour,
        "marker": marker,
        "markersize": 4.6,
        "linewidth": 1.5,
    } | edge


GROUP_MARKS: dict[str, Look] = {group: partial(_group_style, group) for group in GROUPS}
"""Both groups, Q-Anchored above, in the dataset's colours."""


@dataclass(frozen=True)
class Forest:
    """Named lines from top to bottom, on each one or several values with their intervals.

    Only the panel at the left has the names.
    """

    down: str
    """The column whose values are the lines."""
    lines: Mapping[str, str]
    """Value → its words at the left, from the top."""
    label: str = ""
    title: str = ""
    width: float = 3.1
    where: Where = field(default_factory=dict)
    """Which rows of a dataset are drawn."""
    by: str = "group"
    """The column that distinguishes the marks on a line."""
    marks: Mapping[str, Look] = field(default_factory=lambda: GROUP_MARKS)
    offset: float = 0.34
    """Between two marks of a line."""
    null: float | None = 0.0
    set_apart: Collection[str] = ()
    """Lines that stand below a dashed one, such as controls."""
    finish: Callable[[Axes, pl.DataFrame, Place], object] | None = None

    def draw(self, axes: Axes, rows: pl.DataFrame, place: Place) -> None:
        """The lines with their marks, and a faint line that leads from each label to its marks."""
        names, marks, has_marks = list(self.lines), list(self.marks), False
        if self.null is not None:
            axes.axvline(self.null, color="#555555", linewidth=0.8, zorder=1.5)
        axes.grid(False, axis="y")
        axes.grid(True, axis="x")
        for line in range(len(names)):
            axes.axhline(line, color="#ececec", linewidth=0.7, zorder=0.5)
        for row in select(rows, **self.where).to_dicts():
            if row[self.down] in names and row[self.by] in marks:
                aside = self.offset * (marks.index(row[self.by]) - (len(marks) - 1) / 2)
                style = _style_in(self.marks[row[self.by]], place.colours)
                _draw_mark(
                    axes, names.index(row[self.down]) + aside, row_estimate(row), style
                )
                has_marks = True
        axes.set_ylim(max(1, len(names)) - 0.4, -0.6)
        axes.set_yticks(
            range(len(names)),
            [words if place.column == 0 else "" for words in self.lines.values()],
        )
        axes.tick_params(axis="y", length=0)
        first = next(
            (line for line, name in enumerate(names) if name in self.set_apart), 0
        )
        if first:
            axes.axhline(
                first - 0.5, color="#9a9a9a", linewidth=0.8, linestyle=(0, (4.0, 2.5))
            )
        axes.margins(x=0.08)
        axes.locator_params(axis="x", nbins=5)
        axes.set_xlabel(self.label)
        if self.finish:
            self.finish(axes, rows, place)
        if not has_marks:
            axes.set_xticks([])
            empty_panel(axes, "not available")

    def handles(self, data: pl.DataFrame, colours: DatasetStyle) -> Sequence[Artist]:
        """One per kind of mark."""
        return [
            Line2D(
                [],
                [],
                label=value,
                **(_style_in(look, colours) | {"linestyle": "none"}),
            )
            for value, look in self.marks.items()
        ]


def _draw_mark(axes: Axes, y: float, estimate: Estimate, style: Style) -> None:
    """A value with its interval, where both ends are finite."""
    if math.isfinite(estimate.ci_low) and math.isfinite(estimate.ci_high):
        width = style.get("linewidth", 1.4)
        axes.plot(
            [estimate.ci_low, estimate.ci_high],
            [y, y],
            color=style["color"],
            zorder=2.5,
            linewidth=width,
        )
    axes.plot([estimate.value], [y], zorder=3, **{**style, "linestyle": "none"})


@dataclass(frozen=True)
class Series:
    """One line, or its points, or a level across the panel."""

    where: Where
    style: Look
    label: str = ""
    """In the legend, and beside its numbers on the page; empty for neither."""
    kind: str = "band"
    """How the interval is drawn: "band", "bars", or "none"; "level" is a line across, "area" fills down to zero."""
    in_legend: bool = True


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
    null: float | None = 0.0
    empty: str = "too few items"
    finish: Callable[[Axes, pl.DataFrame, Place], object] | None = None

    def draw(self, axes: Axes, rows: pl.DataFrame, place: Place) -> None:
        """All series that have rows."""
        rows = select(rows, **self.where)
        if self.null is not None:
            axes.axhline(self.null, color="#555555", linewidth=0.8, zorder=1.5)
        if place.reference_layers:
            mark_reference(
                axes,
                {place.dataset: place.reference_layers},
                {place.dataset: place.colours},
            )
        for series in self.series:
            mine = select(rows, **series.where)
            if mine.height:
                self._draw_series(
                    axes, mine, series, _style_in(series.style, place.colours)
                )
        if not rows.height:
            empty_panel(axes, self.empty)
        if self.over_layers:
            layer_axis(axes, place.n_layers)
        else:
            axes.xaxis.set_major_locator(MaxNLocator(nbins=9, integer=True))
        axes.set_xlabel(self.x_label)
        if place.column == 0:
            axes.set_ylabel(self.label)
        if self.finish:
            self.finish(axes, rows, place)

    def _draw_series(
        self, axes: Axes, rows: pl.DataFrame, series: Series, style: dict[str, Any]
    ) -> None:
        kind, style = series.kind, {"zorder": 3} | style
        groups = (
            pl.coalesce("n_groups", "n") if "n_groups" in rows.columns else pl.col("n")
        )
        if kind == "band" and (rows.select(groups.max()).item() or 0) < FEWEST_GROUPS:
            kind = "none"  # a band of so few items would say more than is known
            style |= FEW_CLUSTERS
        if (
            self.x == "layer" and kind != "level"
        ):  # a line is broken where a layer has no number
            layers = rows["layer"].cast(pl.Int64).to_list()
            every = pl.DataFrame(
                {"layer": range(min(layers), max(layers) + 1)},
                schema={"layer": pl.Int64},
            )
            rows = every.join(
                rows.with_columns(pl.col("layer").cast(pl.Int64)),
                on="layer",
                how="left",
            )
        rows = rows.sort(self.x)
        x, y = rows[self.x].to_numpy(), rows[self.y].to_numpy()
        if kind == "level":
            for height in y:
                axes.axhline(height, **style)
            return
        axes.plot(x, y, **style)
        columns = ("ci_low", "ci_high") if kind == "band" else ()
        ends = [
            rows[end].cast(pl.Float64).fill_null(math.nan).to_numpy() for end in columns
        ]
        note_curve(
            axes,
            series.label,
            style["color"],
            x.tolist(),
            rows[self.y].to_list(),
            *map(list, ends),
        )
        if kind in ("area", "band"):
            axes.fill_between(
                x, *(ends or (0.0, y)), color=style["color"], alpha=0.16, linewidth=0
            )
        if kind == "bars":
            for at, low, high in (
                rows.select(self.x, "ci_low", "ci_high").drop_nulls().iter_rows()
            ):
                axes.plot(
                    [at, at],
                    [low, high],
                    color=style["color"],
                    linewidth=1.3,
                    zorder=2.5,
                )

    def handles(self, data: pl.DataFrame, colours: DatasetStyle) -> Sequence[Artist]:
        """One per series with a label that has rows."""
        return [
            Line2D([], [], label=series.label, **_style_in(series.style, colours))
            for series in self.series
            if series.in_legend
            and series.label
            and select(data, **self.where, **series.where).height
        ]


Panel = Forest | Lines


@dataclass(frozen=True)
class ChartSpec:
    """What an experiment draws, whatever the run."""

    name: str
    title: str
    """Stands after the model's name."""
    alt: str
    """What it shows, for those who cannot see it."""
    caption: str
    note: str
    """The small print below the panels."""
    rows: Callable[[Any], pl.DataFrame]
    """What is drawn of a run's `Findings` (or of what else a page is about); none where the experiment was not made."""
    panels: Callable[[pl.DataFrame], Sequence[Panel]]
    """The panels of one row, from all rows that are drawn."""
    height: float | Callable[[pl.DataFrame], float] = 2.4
    """Of a panel, in inches; lower where rows would not fit a page."""
    share: str = ""
    """"x" or "y": all panels have one scale to the right, or upwards."""
    side_by_side: int = 3
    """Datasets in a row, where each has one panel."""
    by: str = "dataset"
    """The column whose values have a row of panels each; empty where all rows are drawn in the same panels."""
    dataset_words: Callable[[str], str] = display_name
    marks_reference: bool = False
    """Whether l* is marked at the foot of the panels."""
    labels: float | Callable[[pl.DataFrame], float] = 0.0
    """Room left of the first panel for long names, in inches."""
    gap: float = 0.5
    legend_columns: int = 3
    more_handles: Callable[[pl.DataFrame, DatasetStyle], Sequence[Artist]] | None = None
    """Legend entries besides those of the panels."""
    made: Callable[[Findings], bool] | None = None
    """Whether there is something to draw, where the rows alone do not say it or cost much to make."""
    formats: tuple[str, ...] = ("svg",)

    def was_made(self, findings: Findings) -> bool:
        """Whether there is something to draw."""
        return self.made(findings) if self.made else bool(self.rows(findings).height)

    def from_findings(self, findings: Findings) -> "ExperimentFigure":
        """The figure of a run, not yet drawn."""
        data = self.rows(findings)
        names = datasets_in(findings, data)
        absent = [display_name(name) for name in findings.datasets if name not in names]
        notes = (
            (self.note, f"Not measured here: {', '.join(absent)}.")
            if absent
            else (self.note,)
        )
        return ExperimentFigure(
            data,
            notes,
            self,
            findings.model,
            findings.n_layers,
            names,
            findings.reference_layers,
        )


@dataclass(frozen=True)
class ExperimentFigure:
    """The numbers of one figure, and the one way to draw them."""

    data: pl.DataFrame
    """Exactly what is drawn, one row per point."""
    notes: tuple[str, ...]
    """Lines under the chart, such as the groups that are empty."""
    chart: ChartSpec
    model: str
    n_layers: int
    datasets: tuple[str, ...]
    """Those that have rows, or the values of another column that have panels."""
    reference_layers: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Per dataset, l* of every fold."""

    @property
    def name(self) -> str:
        """Of its files in figures/."""
        return self.chart.name

    def plot(self) -> Figure:
        """The figure in the shared style."""
        with matplotlib.rc_context(STYLE):
            return self._draw()

    def save(self, folder: Path) -> None:
        """Write figures/NAME with every format of its own, and NAME.csv, into the folder."""
        target = folder / "figures"
        # a folder that went away while figures were drawn is not made again
        target.mkdir(exist_ok=True)
        figure = self.plot()
        for kind in self.chart.formats:
            write_figure(figure, target / f"{self.name}.{kind}", kind)
        self.data.write_csv(target / f"{self.name}.csv")

    def write(self, target: Path | BinaryIO, kind: str = "") -> None:
        """Write one file, a picture or the numbers as CSV; as what, the ending of a path says."""
        if isinstance(target, Path):
            kind = target.suffix.removeprefix(".").lower()
            if kind not in FORMATS:
                endings = ", .".join(FORMATS)
                raise UserError(
                    f"A figure can't be written as {target.name!r}; end the name with .{endings}."
                )
            if not target.parent.is_dir():
                raise UserError(
                    f"There is no folder {str(target.parent)!r} for the figure; make it first."
                )
        if kind == "csv":
            self.data.write_csv(target)
        else:
            write_figure(self.plot(), target, kind)

    def _draw(self) -> Figure:
        """All panels, in the places that `_rows_of_panels` gives them."""
        chart, panels = self.chart, list(self.chart.panels(self.data))
        rows = self._rows_of_panels(len(panels))
        height, labels = (
            inches(self.data) if callable(inches) else inches
            for inches in (chart.height, chart.labels)
        )
        widths = [panel.width for panel in panels]
        figure, axes_rows = canvas(
            ": ".join(filter(None, (self.model, chart.title))),
            widths if len(panels) > 1 else widths * max(len(row) for row in rows),
            len(rows),
            height,
            labels=labels,
            gap=chart.gap,
            handles=self._handles(panels),
            legend_columns=chart.legend_columns,
            notes=self.notes,
        )
        every: list[Axes] = []
        for axes_row, row in zip(axes_rows, rows, strict=True):
            for axes, place in zip(axes_row, row, strict=False):
                panel = panels[place.column if len(panels) > 1 else 0]
                panel.draw(
                    axes,
                    select(self.data, **{chart.by: place.dataset})
                    if chart.by
                    else self.data,
                    place,
                )
                title = (chart.dataset_words(place.dataset), panel.title)
                axes.set_title(": ".join(filter(None, title)), fontsize=9)
                every.append(axes)
            for axes in axes_row[len(row) :]:
                axes.set_axis_off()
        if chart.share:  # one scale for panels that are there to be compared
            ends = [getattr(axes, f"get_{chart.share}lim")() for axes in every]
            for axes in every:
                getattr(axes, f"set_{chart.share}lim")(
                    min(low for low, _ in ends), max(high for _, high in ends)
                )
        if chart.marks_reference:
            for axes in every:
                reserve_mark_space(axes, 1)
        return figure

    def _rows_of_panels(self, n_panels: int) -> list[list[Place]]:
        """Which dataset and panel stands where; datasets with one panel each stand side by side."""
        colours = dataset_styles(self.datasets)
        layers = self.reference_layers if self.chart.marks_reference else {}
        about = [
            (name, colours[name], self.n_layers, tuple(layers.get(name, ())))
            for name in self.datasets
        ]
        if n_panels > 1:
            return [
                [Place(*whose, column) for column in range(n_panels)] for whose in about
            ]
        across = math.ceil(len(about) / math.ceil(len(about) / self.chart.side_by_side))
        rows = [about[first : first + across] for first in range(0, len(about), across)]
        return [
            [Place(*whose, column) for column, whose in enumerate(row)] for row in rows
        ]

    def _handles(self, panels: Sequence[Panel]) -> list[Artist]:
        """The legend's entries of all panels, each label once."""
        styles = list(dataset_styles(self.datasets).values())
        style = (
            styles[0] if len(styles) == 1 else DatasetStyle(INK, "o")
        )  # of several, panel titles name the dataset
        handles: dict[str, Artist] = {}
        for panel in panels:
            for handle in panel.handles(self.data, style):
                handles.setdefault(str(handle.get_label()), handle)
        more = (
            self.chart.more_handles(self.data, style) if self.chart.more_handles else ()
        )
        return [
            *handles.values(),
            *more,
            *([reference_handle()] if self.chart.marks_reference else ()),
        ]


def save_all(
    figures: Sequence[ExperimentFigure], out: Path, progress: Progress
) -> None:
    """Save every figure into the folder."""
    progress.start("figures", len(figures))
    for figure in figures:
        figure.save(out)
        progress.advance(1)
    progress.finish()


def catalogued_sections() -> list[Any]:
    """The sections that the catalogue names, in the order of the page; one that is shared comes once; then plug-ins'.

    A plug-in that can't be used has none: a run that asked for it has refused it already.
    """
    entries = sorted(EXPERIMENTS.values(), key=lambda entry: entry.order)
    homes = dict.fromkeys(
        entry.section for entry in entries if entry.section is not None
    )
    own = [
        getattr(import_module(home.partition(":")[0]), home.partition(":")[2])
        for home in homes
    ]
    plugins = [
        load(plugin)
        for plugin in plugins_of("experiments").values()
        if problem(plugin) is None
    ]
    return [
        *own,
        *(
            experiment.section
            for experiment in plugins
            if experiment.section is not None
        ),
    ]
