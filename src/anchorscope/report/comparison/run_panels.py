"""The printed charts of several runs: a panel each with the controls drawn, one legend under all, one y axis for all.

The question share comes first, then ΔP under two rules. Models differ in depth: every panel has its own x axis. With
`relative_depth` it runs from the first layer (0) to the last (1), so that the same place in two panels is the same
share of the way through the model.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Self, final

import polars as pl
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from anchorscope.report.assignment_rules import CHART_TITLES
from anchorscope.report.charts.delta_p import GroupChart, delta_p_span
from anchorscope.report.charts.layer_chart import LayerChart
from anchorscope.report.charts.layout import layer_axis
from anchorscope.report.charts.line_chart import POINTS_NOTE, Panel, missing_groups
from anchorscope.report.charts.question_share import HIGHEST, LOWEST
from anchorscope.report.comparison.compared import Compared, chart_rows, panel_title
from anchorscope.report.findings import Findings
from anchorscope.report.looks import Look, share_id, share_looks
from anchorscope.report.palette import GROUPS, display_name
from anchorscope.report.shares import CONTROLS, has_shares, share_layer, share_rows

_PANEL_WIDTHS = {1: 5.6, 2: 4.35, 3: 3.6, 4: 3.05}  # inches, by panels in a row
_PANEL_HEIGHT = 3.3
_TITLE_LETTERS, _TITLE_POINTS, _SMALLEST_POINTS = 11.0, 10.0, 6.5  # of a panel's title: letters in an inch, sizes
_SHARE_NOTE = (
    "Λ: the share of the probe's evidence that needs the question's key words. Bands: 95 % intervals over groups of "
    "items. Where a line leaves the axis (arrows) or has a gap there is too little evidence to divide by."
)


@dataclass(frozen=True)
class RunPanels(LayerChart):
    """Lines over the layers, a panel per run."""

    titles: Mapping[str, str]
    """Of the panels by run, in order."""
    depths: Mapping[str, int]
    """Number of layers by run."""
    tested: Mapping[str, Mapping[str, tuple[int, ...]]]
    """By run and dataset the layers to mark."""
    relative_depth: bool
    """Whether x runs from 0 to 1."""

    own_layers: ClassVar[bool] = True

    @classmethod
    def made(
        cls, compared: Compared, title: str, tables: Iterable[pl.DataFrame], notes: Sequence[str],
        span: tuple[float, float], tested: Mapping[str, Mapping[str, tuple[int, ...]]] | None = None,
    ) -> Self:  # fmt: skip
        """The chart of these rows, a table per run."""
        data = pl.concat(
            rows.with_columns(run=pl.lit(run.model), relative_depth=pl.col("layer") / max(1, run.n_layers - 1))
            for run, rows in zip(compared.runs, tables, strict=True)
        )
        keys = [name for name in ("run", "dataset", "intervention", "assignment", "group") if name in data.columns]
        numbers = ("layer", "relative_depth", cls.value, "ci_low", "ci_high", "n", "n_groups")
        marked = {name: layers for found in (tested or {}).values() for name, layers in found.items()}
        depths = {run.model: run.n_layers for run in compared.runs}
        return cls(
            data=data.select(*keys, *numbers), notes=tuple(notes), title=title, n_layers=max(depths.values()),
            datasets=compared.datasets, span=span, layers=marked, points={},
            titles={run.model: panel_title(run) for run in compared.runs}, depths=depths, tested=tested or {},
            relative_depth=compared.relative_depth,
        )  # fmt: skip

    def panels(self) -> Mapping[str, str]:
        """A panel per run."""
        return self.titles

    def moved(self, panel: str) -> Mapping[str, tuple[int, ...]]:
        """The layers that this run was tested at."""
        return self.tested.get(panel, {})

    def grid(self, panels: int) -> tuple[int, int]:
        """Up to four in a row; those left over in the last row stay empty."""
        return panel_grid(panels)

    def size(self, columns: int) -> tuple[float, float]:
        """Narrower the more stand in a row."""
        return _PANEL_WIDTHS[columns], _PANEL_HEIGHT

    def draw(self) -> Figure:
        """Every panel gets the x axis of its run."""
        figure = super().draw()
        width = self.size(self.grid(len(self.titles))[1])[0]
        for axes, (run, title) in zip(figure.axes, self.titles.items(), strict=False):
            text, points = fitted_title(title, width)
            axes.set_title(text, fontsize=points)
            layer_axis(axes, self.depths[run])
            if self.relative_depth:
                axes.set_xlim(-0.02, 1.02)
                axes.xaxis.set_major_locator(MaxNLocator(nbins=6))
                axes.set_xlabel("Relative depth")
        return figure

    def _panel(self, key: str, title: str, rows: pl.DataFrame, looks: Mapping[str, Look]) -> Panel:
        made = super()._panel(key, title, rows, looks)
        if not self.relative_depth:
            return made
        last = max(1, self.depths[key] - 1)
        lines = [replace(line, rows=line.rows.with_columns(layer=pl.col("layer") / last)) for line in made.lines]
        marks = {name: [layer / last for layer in layers] for name, layers in made.reference_layers.items()}
        return replace(made, lines=lines, reference_layers=marks)


@final
@dataclass(frozen=True)
class SharePanels(RunPanels):
    """Λ per layer of every dataset, with the controls."""

    name: ClassVar[str] = "question_share"
    value: ClassVar[str] = "share"
    label: ClassVar[str] = "Question share Λ"
    ticks: ClassVar[str] = "layer that is tested"
    empty: ClassVar[str] = "not measured"

    @classmethod
    def was_made(cls, compared: Compared) -> bool:
        """Whether any run measured the question share."""
        return any(has_shares(run) for run in compared.runs)

    @classmethod
    def from_compared(cls, compared: Compared) -> Self:
        """Choose the rows to draw: all items, knockout and controls, each run at its headline place."""
        drawn = pl.col("intervention").is_in(["knockout", *CONTROLS])
        tables = [share_rows(run, group="all", truth="all").filter(drawn) for run in compared.runs]
        lacking = [f"{run.model}: not measured" for run in compared.runs if not has_shares(run)]
        tested = {run.model: {name: (layer,) for name in run.datasets if (layer := share_layer(run, name)) is not None}
                  for run in compared.runs if has_shares(run)}  # fmt: skip
        title = "How much of the evidence needs the question's key words"
        return cls.made(compared, title, tables, (_SHARE_NOTE, *lacking), (LOWEST, HIGHEST), tested)

    def looks(self) -> Mapping[str, Look]:
        """The knockout of every dataset, and the controls."""
        return share_looks(self.datasets)

    def keys(self) -> tuple[pl.Expr, pl.Expr]:
        """A panel per run."""
        rows = self.data.select("dataset", "intervention", "group").iter_rows(named=True)
        line = pl.Series("line", [share_id(self.datasets, row) for row in rows], dtype=pl.String)
        return pl.col("run"), pl.lit(line)


@dataclass(frozen=True)
class DeltaPPanels(RunPanels, GroupChart):
    """ΔP per layer of both groups under one rule, with the random control."""

    name: ClassVar[str] = "delta_p"
    empty: ClassVar[str] = "no items in either group"

    @classmethod
    def from_compared(cls, compared: Compared, assignment: str) -> Self:
        """Choose the rows to draw: knockout and random cut, all items, each run at its headline place."""
        tables = [chart_rows(run, assignment) for run in compared.runs]
        pairs = zip(compared.runs, tables, strict=True)
        notes = (POINTS_NOTE, *_read_at(compared), *(note for one in pairs for note in _missing(compared, *one)))
        title = f"ΔP when the question's key words are cut: {CHART_TITLES[assignment]}"
        return cls.made(compared, title, tables, notes, delta_p_span(*(run.curves for run in compared.runs)))

    def keys(self) -> tuple[pl.Expr, pl.Expr]:
        """A panel per run."""
        return pl.col("run"), self.line()


@final
@dataclass(frozen=True)
class CorrectedPanels(DeltaPPanels):
    """The chart with the common shift taken out."""

    name: ClassVar[str] = "delta_p_corrected"


@final
@dataclass(frozen=True)
class PlainPanels(DeltaPPanels):
    """The paper's chart, where the first one shows another rule."""

    name: ClassVar[str] = "delta_p_plain"


def delta_p_charts(compared: Compared) -> list[DeltaPPanels]:
    """The chart, and beside it the same with the common shift taken out (or the paper's, where the first is that)."""
    second = {"corrected": CorrectedPanels, "plain": PlainPanels}[compared.second_assignment]
    return [
        DeltaPPanels.from_compared(compared, compared.assignment),
        second.from_compared(compared, compared.second_assignment),
    ]


def fitted_title(title: str, inches: float) -> tuple[str, float]:
    """A title and its size: small where it is long, and without its middle where it would be too small to read."""
    room = int(_TITLE_LETTERS * inches * _TITLE_POINTS / _SMALLEST_POINTS)
    half = (room - 1) // 2
    text = title if len(title) <= room else f"{title[:half]}…{title[-half:]}"
    return text, min(_TITLE_POINTS, _TITLE_POINTS * _TITLE_LETTERS * inches / max(1, len(text)))


def panel_grid(panels: int) -> tuple[int, int]:
    """Rows and columns: at most four in a row, and rows of equal length where that can be."""
    rows = math.ceil(panels / 4)
    return rows, math.ceil(panels / rows)


def _read_at(compared: Compared) -> list[str]:
    """Where each run was read, where that is not the same for all."""
    read_at = {run.model: f"{run.site}, {run.position}" for run in compared.runs}
    told = "; ".join(f"{model} at {place}" for model, place in read_at.items())
    return [f"Read at different places: {told}."] if len(set(read_at.values())) > 1 else []


def _missing(compared: Compared, run: Findings, rows: pl.DataFrame) -> list[str]:
    """A note for every line that a reader would look for in vain: a dataset that a run lacks, a group without items."""
    lacking = [display_name(name) for name in compared.datasets if name not in run.datasets]
    notes = [f"{run.model}: not run on {', '.join(lacking)}"] if lacking else []
    here = rows.filter(pl.col("intervention") == "knockout").with_columns(run=pl.lit(run.model))
    if here["group"].n_unique() == len(GROUPS):
        notes += [f"{run.model}: {note}" for note in missing_groups(here, run.datasets, {run.model: run.model}, "run")]
    return notes
