"""The printed charts of several runs: a panel each with the controls, one legend, one y axis.

Models differ in depth. With `relative_depth` the x axis runs from the first layer (0) to the last (1), so that the same
place in two panels is the same share of the depth.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Self, final

import polars as pl

from anchorscope.report.assignment_rules import CHART_TITLES
from anchorscope.report.charts.delta_p import delta_p_span
from anchorscope.report.charts.layer_chart import LayerChart
from anchorscope.report.charts.line_chart import POINTS_NOTE, missing_groups
from anchorscope.report.comparison.compared import Compared, chart_rows, panel_title
from anchorscope.report.findings import Findings
from anchorscope.report.looks import Look, group_line, group_looks
from anchorscope.report.palette import GROUPS, display_name

_NUMBERS = ("layer", "relative_depth", "ci_low", "ci_high", "n", "n_groups")


@dataclass(frozen=True)
class RunPanels(LayerChart):
    """Lines over the layers, a panel per run."""

    titles: Mapping[str, str]
    """Panel titles by run, in order."""
    depths: Mapping[str, int]
    """Number of layers by run."""
    relative_depth: bool

    @classmethod
    def made(
        cls,
        compared: Compared,
        title: str,
        tables: Iterable[pl.DataFrame],
        notes: Sequence[str],
        span: tuple[float, float],
    ) -> Self:
        """The chart of these rows, a table per run."""
        pairs = zip(compared.runs, tables, strict=True)
        data = pl.concat(
            rows.with_columns(run=pl.lit(run.model), relative_depth=pl.col("layer") / max(1, run.n_layers - 1))
            for run, rows in pairs
        )
        keys = [name for name in ("run", "dataset", "intervention", "assignment", "group") if name in data.columns]
        return cls(
            data=data.select(*keys, cls.value, *_NUMBERS),
            notes=tuple(notes),
            title=title,
            n_layers=max((run.n_layers for run in compared.runs), default=1),
            datasets=tuple(compared.datasets),
            span=span,
            layers={},
            points={},
            titles={run.model: panel_title(run) for run in compared.runs},
            depths={run.model: run.n_layers for run in compared.runs},
            relative_depth=compared.relative_depth,
        )

    def panels(self) -> Mapping[str, str]:
        """One per run."""
        return self.titles

    def depth_of(self, panel: str) -> int:
        """The layers of a run."""
        return self.depths[panel]

    def grid(self, panels: int) -> tuple[int, int]:
        """At most three in a row, and rows of equal length where possible."""
        rows = math.ceil(panels / 3)
        return rows, math.ceil(panels / rows)


@final
@dataclass(frozen=True)
class DeltaPPanels(RunPanels):
    """ΔP per layer of both groups under one rule, with the random control."""

    file: str = "delta_p"

    value: ClassVar[str] = "delta_p"
    label: ClassVar[str] = "ΔP"
    empty: ClassVar[str] = "no items in either group"

    @property
    def name(self) -> str:  # type: ignore[override]  # the second chart's file has the name of its rule
        """Of its files in figures/."""
        return self.file

    def looks(self) -> Mapping[str, Look]:
        """Both groups of every dataset, with the random control."""
        return group_looks(self.datasets)

    def keys(self) -> tuple[pl.Expr, pl.Expr]:
        """A panel per run; group and dataset, and whether it is the control."""
        return pl.col("run"), group_line(self.datasets)


def delta_p_charts(compared: Compared) -> list[DeltaPPanels]:
    """The chart, and the same corrected for the common shift (or the paper's, where the first is that)."""
    second = compared.second_assignment
    return [_delta_p(compared, compared.assignment, "delta_p"), _delta_p(compared, second, f"delta_p_{second}")]


def _delta_p(compared: Compared, assignment: str, file: str) -> DeltaPPanels:
    """Choose the rows to draw: knockout and random cut, all items, each run at its headline place."""
    tables = [chart_rows(run, assignment) for run in compared.runs]
    pairs = zip(compared.runs, tables, strict=True)
    notes = (POINTS_NOTE, *_read_at(compared), *(note for pair in pairs for note in _missing(compared, *pair)))
    title = f"ΔP when the question's key words are hidden: {CHART_TITLES[assignment]}"
    chart = DeltaPPanels.made(compared, title, tables, notes, delta_p_span(*(run.curves for run in compared.runs)))
    return replace(chart, file=file)


def _read_at(compared: Compared) -> list[str]:
    """Where each run was read, where that is not the same for all."""
    read_at = {run.model: f"{run.site}, {run.position}" for run in compared.runs}
    places = "; ".join(f"{model} at {place}" for model, place in read_at.items())
    return [f"Read at different places: {places}."] if len(set(read_at.values())) > 1 else []


def _missing(compared: Compared, run: Findings, rows: pl.DataFrame) -> list[str]:
    """A note for every line that a reader would miss: a dataset that a run lacks, a group without items."""
    lacking = [display_name(name) for name in compared.datasets if name not in run.datasets]
    notes = [f"{run.model}: not run on {', '.join(lacking)}"] if lacking else []
    here = rows.filter(pl.col("intervention") == "knockout").with_columns(run=pl.lit(run.model))
    if here["group"].n_unique() == len(GROUPS):
        notes += [f"{run.model}: {note}" for note in missing_groups(here, run.datasets, {run.model: run.model}, "run")]
    return notes
