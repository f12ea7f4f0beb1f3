"""The figure of a study: the share that needs the key words, of every model on every dataset, with its interval.

A line per model, a mark per dataset. The first run of a model has its interval; further seeds and prompts are small
open marks on the same line, so that their spread can be seen beside it.
"""

from dataclasses import dataclass
from itertools import product
from typing import Any, ClassVar, Self

import polars as pl
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from anchorscope.report.charts.display import Display
from anchorscope.report.charts.forest import Mark, draw_forest
from anchorscope.report.charts.layout import Grid, Legend, canvas
from anchorscope.report.palette import DatasetStyle, dataset_styles, display_name
from anchorscope.report.study.studied import Studied, findings_of, share
from anchorscope.stats.estimate import Estimate

_NOTE = "Over each run's band of layers. Bars: 95 % intervals of a model's first run."
_OTHERS = "Small open marks: its other runs, with other seeds or prompts."
_SCHEMA: dict[str, type[pl.DataType]] = {
    "model": pl.String,
    "run": pl.String,
    "prompt": pl.String,
    "seed": pl.Int64,
    "dataset": pl.String,
    "share": pl.Float64,
    "ci_low": pl.Float64,
    "ci_high": pl.Float64,
    "n": pl.Int64,
    "first": pl.Boolean,
}
_TITLE = "How much of the evidence needs the question"
_WIDTH, _LINE, _LONGEST = 6.2, 0.52, 40


@dataclass(frozen=True)
class StudyShares(Display):
    """What needs the key words, models × datasets."""

    models: tuple[str, ...]
    styles: dict[str, DatasetStyle]
    name: ClassVar[str] = "study_shares"

    @classmethod
    def from_studied(cls, studied: Studied) -> Self | None:
        """Of all runs that are done; None where none measured it."""
        first = studied.first
        rows = [
            {
                "model": run.model,
                "run": run.name,
                "prompt": run.prompt,
                "seed": run.seed,
                "dataset": dataset,
                "share": found.value,
                "ci_low": found.ci_low,
                "ci_high": found.ci_high,
                "n": found.n,
                "first": run is first[run.model],
            }
            for run, dataset in product(studied.done, studied.datasets)
            for found in studied.measured([run], dataset, share)
        ]
        if not rows:
            return None
        noise = [run.model for run in first.values() if findings_of(run).random_weights]
        notes = [f"{_NOTE} {_OTHERS}" if len(studied.done) > len(first) else _NOTE]
        notes += [f"Random weights, so that the line is noise: {', '.join(noise)}."] if noise else []
        styles = dataset_styles(studied.datasets)
        return cls(pl.DataFrame(rows, schema=_SCHEMA), tuple(notes), studied.models, styles)

    def draw(self) -> Figure:
        """One panel."""
        marks = []
        datasets = list(self.styles)
        step = 0.62 / max(1, len(datasets))
        for row in self.data.iter_rows(named=True):
            offset = step * (datasets.index(row["dataset"]) - (len(datasets) - 1) / 2)
            found = Estimate(row["share"], row["ci_low"], row["ci_high"], row["n"], "")
            marks.append(Mark(self.models.index(row["model"]), offset, *_looks(found, self.styles, row)))
        handles = [
            Line2D([], [], label=display_name(name), linestyle="none", **_style(one))
            for name, one in self.styles.items()
        ]
        height = max(1.1, (_LINE if len(datasets) > 1 else 0.36) * len(self.models) + 0.3)
        labels = [name if len(name) <= _LONGEST else f"{name[: _LONGEST - 1]}…" for name in self.models]
        grid = Grid((_WIDTH,), (height,), labels=max(0.3, 0.082 * max(map(len, labels)) - 0.5))
        page = canvas(_TITLE, grid, Legend(handles, min(4, len(handles)), self.notes))
        (axes,) = page.panels
        draw_forest(axes, labels, marks)
        axes.set_xlabel("needs the key words")
        return page.figure


def _style(colours: DatasetStyle) -> dict[str, Any]:
    return {"color": colours.q_colour, "marker": colours.marker, "markersize": 5.5}


def _looks(found: Estimate, styles: dict[str, DatasetStyle], row: dict[str, Any]) -> tuple[Estimate, dict[str, Any]]:
    style = _style(styles[row["dataset"]])
    if row["first"]:
        return found, style
    nan = float("nan")
    return Estimate(found.value, nan, nan, found.n, ""), {**style, "markersize": 4, "markerfacecolor": "white"}
