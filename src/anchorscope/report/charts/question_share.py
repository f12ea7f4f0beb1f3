"""The lead figure: the question share Λ per layer, with its controls, and of the items' held-out thirds.

The share is the part of the probe's evidence that needs the question's key words. Above, the share of all items beside
what random words, cutting nothing and permuted labels give: without these a high line says nothing. Below, the thirds
of the items, sorted by the share that their cut state predicts and measured on items that had no say in the sorting:
two lines that lie on each other mean that the items do not differ, which no ΔP chart can show. One column per dataset,
all panels on the same axes.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, final

import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from anchorscope.report.charts.display import Display
from anchorscope.report.charts.layout import Legend
from anchorscope.report.charts.line_chart import LayerAxes, Line, Panel, line_chart
from anchorscope.report.findings import Findings
from anchorscope.report.palette import (
    A_ANCHORED,
    CONTROL_GREY,
    INK,
    LINE_STYLES,
    QUIET_INK,
    DatasetStyle,
    dataset_styles,
    display_name,
)
from anchorscope.report.shares import CONTROLS, LOWER, UPPER, share_layer, share_rows

COLUMNS = ("dataset", "intervention", "group", "layer", "share", "ci_low", "ci_high", "n")
LOWEST, HIGHEST = -0.2, 1.1
"""What the axis shows: in the first layers there is hardly any evidence to divide by, and a share can be anything."""
MOST_COLUMNS = 4

CONTROL_LINES: Mapping[str, Mapping[str, Any]] = {
    "random": {"color": CONTROL_GREY, "linestyle": ":", "linewidth": 1.5, "zorder": 2.6},
    "random-mass": {"color": CONTROL_GREY, "linestyle": (0, (4.0, 1.4, 1.0, 1.4)), "linewidth": 1.1, "zorder": 2.5},
    # The last three lie on the zero line where all is well: markers tell them from it.
    "none": {"color": INK, "linestyle": "-", "linewidth": 0.9, "marker": "x", "markersize": 4.2, "markevery": (0, 4),
             "zorder": 2.4},
    "permuted": {"color": "#9a9a9a", "linestyle": "-", "linewidth": 0.9, "marker": "o", "markersize": 3.4,
                 "markerfacecolor": "white", "markevery": (2, 4), "zorder": 2.2},
    "random-weights": {"color": "#a97b50", "linestyle": (0, (6.0, 1.6)), "linewidth": 1.1, "zorder": 2.3},
}  # fmt: skip
"""How each control is drawn."""
_WITH_BAND = ("random",)
"""Controls whose interval is drawn too: it has to be told from the knockout's."""
_NOTE = (
    "Λ: the share of the probe's evidence that needs the question's key words; 0 none, 1 all of it. Bands: 95 % "
    "intervals over groups of items. Thirds: items sorted by the share that the cut state predicts, out of fold. "
    "Where a line has a gap or leaves the axis there is too little evidence to divide by."
)


@final
@dataclass(frozen=True)
class QuestionShareChart(Display):
    """Λ per layer with its controls, and of the lower and upper third, a column per dataset."""

    model: str
    """Title of the chart."""
    n_layers: int
    """Length of the x axis."""
    styles: Mapping[str, DatasetStyle]
    """Colours and marker of every dataset, in order."""
    layers: Mapping[str, tuple[int, ...]]
    """Per dataset the layer at which the share is tested."""

    name: ClassVar[str] = "question_share"

    @classmethod
    def was_made(cls, findings: Findings) -> bool:
        """Whether the run measured the question share."""
        return bool(share_rows(findings, intervention="knockout", group="all", truth="all").height)

    @classmethod
    def from_findings(cls, findings: Findings) -> "QuestionShareChart":
        """Choose the rows to draw: all items under every intervention, and two of the knockout's thirds."""
        rows = share_rows(findings, truth="all")
        thirds = (pl.col("intervention") == "knockout") & pl.col("group").is_in([LOWER, UPPER])
        whole = (pl.col("group") == "all") & pl.col("intervention").is_in(["knockout", *CONTROL_LINES])
        data = rows.filter(thirds | whole).select(COLUMNS).sort("dataset", "intervention", "group", "layer")
        tested = {name: share_layer(findings, name) for name in findings.datasets}
        layers = {name: (layer,) for name, layer in tested.items() if layer is not None}
        styles = dataset_styles(findings.datasets)
        return cls(data, (_NOTE,), findings.model, findings.n_layers, styles, layers)

    def draw(self) -> Figure:
        """All items above, thirds below; one dataset has them side by side."""
        names = list(self.styles)
        columns = 2 if len(names) == 1 else min(MOST_COLUMNS, math.ceil(len(names) / math.ceil(len(names) / 4)))
        panels: list[Panel] = []
        for first in range(0, len(names), columns):
            here = names[first : first + columns]
            blank = [Panel("", (), finish=_hide)] * (columns - len(here)) if len(names) > 1 else []
            panels += [*(self._whole(name) for name in here), *blank, *(self._thirds(name) for name in here), *blank]
        grid = math.ceil(len(panels) / columns), columns
        size = ({2: 4.35, 3: 3.6}.get(columns, 2.95), 2.9 if grid[0] == 1 else 2.5)
        axes_of = LayerAxes("share", "Question share Λ", 0.0, self.n_layers)
        title = f"{self.model}: how much of the evidence needs the question's key words"
        return line_chart(title, panels, grid, size, axes_of, Legend(self._handles(), min(4, columns + 1), self.notes))

    def _whole(self, dataset: str) -> Panel:
        rows = self._rows(dataset, "all")
        lines: list[Line] = []
        for control, style in CONTROL_LINES.items():
            lines += broken_lines(
                rows.filter(pl.col("intervention") == control), self.n_layers, style, band=control in _WITH_BAND
            )
        look = {"zorder": 3} | _knockout_style(self.styles[dataset])
        lines += broken_lines(rows.filter(pl.col("intervention") == "knockout"), self.n_layers, look)
        return self._panel(dataset, "all items, with controls", lines)

    def _thirds(self, dataset: str) -> Panel:
        lines: list[Line] = []
        for group in (LOWER, UPPER):
            look = {"zorder": 3} | _third_style(group, self.styles[dataset])
            lines += broken_lines(self._rows(dataset, group), self.n_layers, look)
        return self._panel(dataset, "thirds of the items, held out", lines)

    def _panel(self, dataset: str, what: str, lines: Sequence[Line]) -> Panel:
        several = len(self.styles) > 1
        title = f"{display_name(dataset)}: {what}" if several else what
        colours = {dataset: DatasetStyle(INK, INK, "")}
        return Panel(title, lines, "" if lines else "not measured", (), self.layers, colours, _within_range)

    def _rows(self, dataset: str, group: str) -> pl.DataFrame:
        return self.data.filter((pl.col("dataset") == dataset) & (pl.col("group") == group))

    def _handles(self) -> list[Line2D]:
        """One entry per kind of line; with several datasets, whose colours the panels have, in ink."""
        only = next(iter(self.styles.values())) if len(self.styles) == 1 else DatasetStyle(INK, QUIET_INK, "")
        there = set(self.data["intervention"])
        handles = [Line2D([], [], label="question's key words cut", **_knockout_style(only))]
        handles += [Line2D([], [], label=CONTROLS[one], **style) for one, style in CONTROL_LINES.items()
                    if one in there]  # fmt: skip
        for group, words in ((UPPER, "upper third"), (LOWER, "lower third")):
            if self.data.filter(pl.col("group") == group).height:
                handles.append(Line2D([], [], label=words, **_third_style(group, only)))
        tick: dict[str, Any] = {"marker": "|", "markersize": 9, "markeredgewidth": 2.2}
        if self.layers:
            handles.append(Line2D([], [], label="layer that is tested", color=INK, linestyle="none", **tick))
        return handles


def broken_lines(rows: pl.DataFrame, n_layers: int, style: Mapping[str, Any], band: bool = True) -> list[Line]:
    """A line that is broken where a layer has no share; a layer alone between two gaps is a dot."""
    if not rows.height:
        return []
    every = pl.DataFrame({"layer": range(n_layers)}, schema={"layer": pl.Int64})
    whole = every.join(rows, on="layer", how="left").sort("layer")
    known = pl.col("share").is_not_null()
    alone = whole.filter(known & ~known.shift(1, fill_value=False) & ~known.shift(-1, fill_value=False))
    dots = {"color": style["color"], "linestyle": "none", "marker": ".", "markersize": 5.0, "zorder": 3}
    return [Line(whole, style, band), *([Line(alone, dots, band=False)] if alone.height else [])]


def _knockout_style(colours: DatasetStyle) -> dict[str, Any]:
    return {"color": colours.q_colour, "linestyle": "-"}


def _third_style(group: str, colours: DatasetStyle) -> dict[str, Any]:
    if group == UPPER:
        return _knockout_style(colours)
    return {"color": colours.a_colour, "linestyle": LINE_STYLES[A_ANCHORED]}


def _within_range(axes: Axes) -> None:
    axes.set_ylim(LOWEST - 0.06, HIGHEST)  # the ticks of the tested layer lie under the lowest value


def _hide(axes: Axes) -> None:
    axes.set_visible(False)
