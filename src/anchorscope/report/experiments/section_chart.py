"""The figure of an experiment, as data: which rows it draws, and the panels of one dataset from left to right.

A figure has a row of panels per dataset, or per dataset and rule; every panel is of one of the kinds in `panels.py`.
Layout, titles, shared axes, legend and small print are made here, alike for all.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import polars as pl
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from anchorscope.catalogue import EXPERIMENTS
from anchorscope.report.assignment_rules import RULES, rule_title
from anchorscope.report.charts.display import Display
from anchorscope.report.charts.forest import legend_style
from anchorscope.report.charts.layout import Grid, Legend, canvas, rows_that_fit
from anchorscope.report.charts.line_chart import reserve_mark_space
from anchorscope.report.experiments.experiment_rows import absent_notes, datasets_in, present, select
from anchorscope.report.experiments.panels import Panel, Place
from anchorscope.report.findings import Findings
from anchorscope.report.palette import DatasetStyle, dataset_styles, display_name

_GAP_Y = 0.78


@dataclass(frozen=True)
class ChartSpec:
    """What an experiment draws, whatever the run."""

    name: str
    """Of its files in figures/."""
    title: str
    """Stands after the model's name."""
    alt: str
    """What it shows, for those who cannot see it."""
    caption: str
    note: str | Callable[[Any], str]
    """The small print below the panels."""
    rows: Callable[[Any], pl.DataFrame]
    """What is drawn of a run's `Findings` (or of what else a page is about); none where the experiment was not made."""
    panels: Callable[[pl.DataFrame], Sequence[Panel]]
    """The panels of one row, from all rows that are drawn."""
    by: str = ""
    """A column: a dataset has a row of panels for each of its values, and not one alone."""
    by_words: Callable[[str], str] = rule_title
    """Such a value in titles."""
    height: float | Callable[[pl.DataFrame], float] = 2.4
    """Of a panel, in inches; lower where rows would not fit a page."""
    share: str = ""
    """"x" or "y": all panels have one scale to the right, or upwards. "row x": those of a row have."""
    side_by_side: int = 3
    """Datasets in a row, where each has one panel."""
    dataset_words: Callable[[str], str] = display_name
    """A dataset in titles."""
    marks_reference: bool = False
    """Whether l* is marked at the foot of the panels, which then needs room."""
    labels: float | Callable[[pl.DataFrame], float] = 0.0
    """Room left of the first panel for long names, in inches; `gap`, `right` and `foot` alike."""
    gap: Sequence[float] | float = 0.5
    right: float = 0.0
    foot: float | Callable[[pl.DataFrame], float] = 0.0
    legend_columns: int = 3
    more_handles: Callable[[pl.DataFrame, DatasetStyle], Sequence[Artist]] | None = None
    """Legend entries besides those of the panels."""
    made: Callable[[Findings], bool] | None = None
    """Whether there is something to draw, where the rows alone do not say it or cost much to make."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Figures are drawn by several processes: the other one looks its description up by name."""
        return chart_named, (self.name,)

    def was_made(self, findings: Findings) -> bool:
        """Whether there is something to draw."""
        return self.made(findings) if self.made else bool(self.rows(findings).height)

    def from_findings(self, findings: Findings) -> "ExperimentFigure":
        """The figure of a run, not yet drawn."""
        data = self.rows(findings)
        note = self.note if isinstance(self.note, str) else self.note(findings)
        layers = {name: tuple(found) for name, found in findings.reference_layers.items()}
        return ExperimentFigure(
            data,
            (note, *absent_notes(findings, data)),
            self,
            findings.model,
            findings.n_layers,
            datasets_in(findings, data),
            layers,
        )


@dataclass(frozen=True)
class ExperimentFigure(Display):
    """The rows of one run with the figure that draws them."""

    chart: ChartSpec
    model: str
    n_layers: int
    datasets: tuple[str, ...]
    """Those that have rows."""
    reference_layers: Mapping[str, tuple[int, ...]]
    """Per dataset, l* of every fold."""

    @property
    def name(self) -> str:  # type: ignore[override]  # one class draws them all, so the name is the figure's own
        """Of its files in figures/."""
        return self.chart.name

    def draw(self) -> Figure:
        """All panels, in the places that `_places` gives them."""
        chart, panels = self.chart, list(self.chart.panels(self.data))
        rows = self._rows_of_panels(len(panels))
        height, labels, foot = (
            inches(self.data) if callable(inches) else inches for inches in (chart.height, chart.labels, chart.foot)
        )
        wide = max(len(row) for row in rows)
        widths = [panel.width for panel in panels] if len(panels) > 1 else [panels[0].width] * wide
        gap_y = _GAP_Y + (foot if len(rows) > 1 and not chart.by else 0.0)
        grid = Grid(widths, rows_that_fit(len(rows), height, gap_y), labels, chart.gap, gap_y, chart.right, foot)
        page = canvas(f"{self.model}: {chart.title}", grid, self._legend(panels))
        for axes_row, row in zip(page.axes, rows, strict=True):
            drawn = [self._draw_one(axes, panels, place) for axes, place in zip(axes_row, row, strict=False)]
            for axes in axes_row[len(row) :]:
                axes.set_axis_off()
            if chart.share == "row x":
                _share(drawn, "x")
        if chart.share in ("x", "y"):
            every = [axes for axes_row, row in zip(page.axes, rows, strict=True) for axes in axes_row[: len(row)]]
            _share(every, chart.share)
        if chart.marks_reference:
            for axes in page.panels:
                reserve_mark_space(axes, 1)
        return page.figure

    def _rows_of_panels(self, n_panels: int) -> list[list[Place]]:
        """Which dataset, part and panel stands where; datasets with one panel each stand side by side."""
        colours, by = dataset_styles(self.datasets), self.chart.by
        about = [
            (dataset, part, colours[dataset], self.n_layers, tuple(self.reference_layers.get(dataset, ())))
            for dataset in self.datasets
            for part in (present(select(self.data, dataset=dataset), by, tuple(RULES)) if by else [""])
        ]
        if n_panels == 1 and not by:
            across = math.ceil(len(about) / math.ceil(len(about) / self.chart.side_by_side))
            rows = [about[first : first + across] for first in range(0, len(about), across)]
            return [[Place(*one, column, row is rows[-1]) for column, one in enumerate(row)] for row in rows]
        return [[Place(*one, column, one is about[-1]) for column in range(n_panels)] for one in about]

    def _draw_one(self, axes: Axes, panels: Sequence[Panel], place: Place) -> Axes:
        mine = {"dataset": place.dataset} | ({self.chart.by: place.part} if place.part else {})
        panel, rows = panels[place.column if len(panels) > 1 else 0], select(self.data, **mine)
        panel.draw(axes, rows, place)
        said = [self.chart.dataset_words(place.dataset), *([self.chart.by_words(place.part)] if place.part else [])]
        axes.set_title(": ".join(filter(None, (", ".join(said), panel.title))), fontsize=9)
        return axes

    def _legend(self, panels: Sequence[Panel]) -> Legend:
        """The entries of all panels, each label once."""
        style = legend_style(list(dataset_styles(self.datasets).values()))
        handles: dict[str, Artist] = {}
        for panel in panels:
            for one in panel.handles(self.data, style):
                handles.setdefault(str(one.get_label()), one)
        more = self.chart.more_handles(self.data, style) if self.chart.more_handles else ()
        return Legend([*handles.values(), *more], self.chart.legend_columns, self.notes)


def catalogued_sections() -> list[Any]:
    """The sections that the catalogue names, in the order of the page; one that is shared comes once."""
    entries = sorted(EXPERIMENTS.values(), key=lambda entry: entry.place)
    homes = dict.fromkeys(entry.section for entry in entries if entry.section is not None)
    return [getattr(import_module(home.partition(":")[0]), home.partition(":")[2]) for home in homes]


def chart_named(name: str) -> ChartSpec:
    """The figure of this name, of an experiment or of the detectors."""
    others = import_module("anchorscope.report.detection.detection_charts").CHARTS
    every = (*others, *(chart for section in catalogued_sections() for chart in section.charts))
    return next(chart for chart in every if chart.name == name)


def _share(panels: Sequence[Axes], axis: str) -> None:
    """One scale for panels that are there to be compared."""
    ends = [getattr(axes, f"get_{axis}lim")() for axes in panels]
    for axes in panels:
        getattr(axes, f"set_{axis}lim")(min(low for low, _ in ends), max(high for _, high in ends))
