"""The figures of the detectors: AUROC, risk against coverage, reliability; a panel per dataset."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import polars as pl
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from anchorscope.report.detection.results import (
    AUROC,
    AUTO,
    BOTH,
    CONFIDENCE,
    NATURAL,
    PROBE,
    DetectionResults,
    entry_of,
    shown_dataset,
)
from anchorscope.report.palette import CONTROL_GREY, INK, QUIET_INK, DatasetStyle
from anchorscope.report.panel_figure import ChartSpec, ExperimentFigure, Forest, Lines, Marks, Place, Series, Style
from anchorscope.report.result_rows import present, select
from anchorscope.report.wording import count

_LETTER_INCHES, _LONGEST_NAME = 0.083, 24
_LARGEST_BIN = 130.0  # square points of the fullest bin's mark
_GUIDES = (PROBE, BOTH)
_LINES: dict[str, dict[str, Any]] = {
    CONFIDENCE: {"color": "#6f6f6f", "linestyle": (0, (1.0, 1.4)), "linewidth": 1.6},
    PROBE: {"color": "#0072b2", "linestyle": (0, (5.0, 2.0)), "linewidth": 1.6},
    BOTH: {"color": "#d55e00", "linestyle": "-", "linewidth": 2.6},  # auto may be the same line: both can be seen
    AUTO: {"color": "#111111", "linestyle": (0, (2.2, 2.2)), "linewidth": 1.6},
}
"""The detectors that are drawn as lines: distinct in grey and for the colour-blind."""
_MARKERS = {CONFIDENCE: "s", PROBE: "o", BOTH: "^", AUTO: "X"}


def detection_figures(results: DetectionResults, model: str) -> list[ExperimentFigure]:
    """The figures that have something to draw."""
    figures = []
    for chart in CHARTS:
        data = chart.rows(results)
        note = chart.note if isinstance(chart.note, str) else chart.note(results)
        names = tuple(name for name in results.datasets if name in set(data["dataset"]))
        if names:
            figures.append(ExperimentFigure(data, (note,), chart, model, 0, names, {}))
    return figures


def short_name(name: str) -> str:
    """A dataset in names that a reader knows, no longer than there is room for."""
    shown = shown_dataset(name)
    return shown if len(shown) <= _LONGEST_NAME else f"{shown[: _LONGEST_NAME - 1]}…"


@dataclass(frozen=True)
class _DetectorMarks(Marks):
    """Baselines square, open and grey."""

    column: str = "detector"
    styles: Mapping[str, tuple[str, Style]] = field(default_factory=dict)

    def of(self, row: Mapping[str, Any], colours: DatasetStyle) -> tuple[float, Style] | None:
        baseline = entry_of(row["detector"]).baseline
        colour = QUIET_INK if baseline else INK
        face = {"markerfacecolor": "white" if baseline else colour, "markeredgecolor": colour, "markeredgewidth": 1.0}
        return 0.0, {"color": colour, "marker": "s" if baseline else "o", "markersize": 4.2, "linewidth": 1.3, **face}


def _auroc_rows(results: DetectionResults) -> pl.DataFrame:
    """Tested on what was learned from; controls of other detectors are in the table only."""
    rows = select(results.detectors, metric=AUROC, prevalence=results.prevalence)
    names = [name for name in results.names if entry_of(name).variant_of is None]
    rows = select(rows, detector=names).filter((pl.col("train") == pl.col("test")) & pl.col("value").is_finite())
    order = pl.col("detector").replace_strict({name: index for index, name in enumerate(results.names)})
    return rows.sort(order, maintain_order=True).rename({"test": "dataset"}).drop("train", "metric")


def _forest(data: pl.DataFrame) -> list[Forest]:
    """A line per detector, with its passes."""
    passes = dict(data.select("detector", "passes").iter_rows())
    names = present(data, "detector")
    # Blanks that SVG does not join into one.
    lines = {name: f"{name}\u2002\u2002{'?' if passes[name] is None else passes[name]}" for name in names}
    return [
        Forest(
            "detector",
            lines,
            _DetectorMarks(),
            width=4.2 if data["dataset"].n_unique() == 1 else 2.15,
            null=0.5,
            set_apart=[name for name in lines if entry_of(name).baseline],
            words_once=True,
            finish=_draw_guides,
        )
    ]


def _draw_guides(axes: Axes, rows: pl.DataFrame, place: Place) -> None:
    for name, auroc in select(rows, detector=_GUIDES).select("detector", "value").iter_rows():
        axes.axvline(auroc, zorder=1.6, **_LINES[name] | {"linewidth": 1.2})
    axes.set_xlabel(f"AUROC, n = {count(rows['n'].max())}", fontsize=8.5)


def _guide_handles(data: pl.DataFrame, colours: DatasetStyle) -> list[Artist]:
    measured = set(data["detector"])
    return [
        Line2D([], [], label=f"AUROC of {name}", **_LINES[name] | {"linewidth": 1.2})
        for name in _GUIDES
        if name in measured
    ]


def _curve_rows(curve: str, results: DetectionResults) -> pl.DataFrame:
    """Points of curves that were tested on what was learned from, at natural prevalence if that was measured."""
    rows = select(results.curves, curve=curve, detector=list(_LINES))
    rows = rows.filter((pl.col("train") == pl.col("test")) & pl.col("x").is_finite() & pl.col("y").is_finite())
    measured = present(rows, "prevalence", (NATURAL,))
    rows = select(rows, prevalence=measured[0]) if measured else rows
    return rows.rename({"test": "dataset"}).drop("curve")


def _curve_chart(
    curve: str,
    title: str,
    labels: tuple[str, str],
    caption: str,
    note: str,
    finish: Callable[[Axes, pl.DataFrame, Place], object],
) -> ChartSpec:
    series = [Series({"detector": name}, line, name, "none") for name, line in _LINES.items()]
    x_label, y_label = labels

    def panels(data: pl.DataFrame) -> list[Lines]:
        side = {1: 3.9, 2: 3.3, 3: 3.0}.get(data["dataset"].n_unique(), 2.6)
        axis: dict[str, Any] = {"x": "x", "y": "y", "x_label": x_label, "over_layers": False}
        return [Lines(series, y_label, "", side, null=None, finish=finish, **axis)]

    return ChartSpec(
        f"detector_{curve.replace('-', '_')}",
        title,
        f"{y_label.capitalize()} against {x_label} of the main detectors, a panel per dataset",
        caption,
        note,
        partial(_curve_rows, curve),
        panels,
        height=lambda data: panels(data)[0].width,
        share="y",
        side_by_side=4,
        dataset_words=short_name,
        gap=0.42,
    )


def _draw_square(axes: Axes, rows: pl.DataFrame, place: Place) -> None:
    axes.set(xlim=(-0.01, 1.01), xticks=np.linspace(0.0, 1.0, 6))
    axes.set_ylim(bottom=0.0)
    axes.grid(True, axis="both")


def _draw_diagonal(axes: Axes, rows: pl.DataFrame, place: Place) -> None:
    """A calibrated detector, or guessing."""
    axes.plot([0, 1], [0, 1], color=CONTROL_GREY, linewidth=0.9, zorder=1.5)
    _draw_square(axes, rows, place)
    axes.set_ylim(-0.01, 1.01)


def _draw_bins(axes: Axes, rows: pl.DataFrame, place: Place) -> None:
    """Marks that are as large as their bins."""
    _draw_diagonal(axes, rows, place)
    for name in present(rows, "detector"):
        mine = select(rows, detector=name)
        weights = mine["weight"].fill_null(0.0).to_numpy()
        sizes = np.maximum(6.0, _LARGEST_BIN * weights / (weights.max() or 1.0))
        look = {"marker": _MARKERS[name], "color": _LINES[name]["color"], "edgecolors": "white", "linewidths": 0.6}
        axes.scatter(mine["x"], mine["y"], s=sizes, alpha=0.85, zorder=3.5, clip_on=False, **look)


CHARTS = (
    ChartSpec(
        "detector_auroc",
        "telling true from false answers",
        "AUROC of every detector on every dataset with its interval; probe and probe+confidence as lines through all "
        "rows; baselines under a dashed line",
        "AUROC with 95% intervals: the chance that a true answer scores above a false one. Each detector is tested on "
        "the dataset that it learned from, on answers it has not seen.",
        lambda results: (
            f"AUROC, {results.prevalence} answers, out of fold; 0.5 is guessing. Bars: 95% intervals over groups. The "
            "number beside a name: extra passes through the model per answer. Under the dashed line: baselines."
        ),
        _auroc_rows,
        _forest,
        share="x",
        side_by_side=4,
        height=lambda data: 0.205 * data["detector"].n_unique() + 0.1,
        dataset_words=short_name,
        gap=0.22,
        legend_columns=2,
        more_handles=_guide_handles,
        labels=lambda data: max(0.0, _LETTER_INCHES * max(map(len, _forest(data)[0].lines.values())) - 0.45),
    ),
    _curve_chart(
        "risk-coverage",
        "risk and coverage",
        ("coverage (answers accepted)", "risk (false among them)"),
        "How many accepted answers are false, the more are accepted.",
        "Answers are accepted from the most probable down. At full coverage every detector has the same risk.",
        _draw_square,
    ),
    _curve_chart(
        "reliability",
        "reliability",
        ("predicted probability", "share of true answers"),
        "Predicted probability against the observed share of true answers.",
        "Bins of the predicted probability; the larger a mark, the more answers. Grey: calibrated.",
        _draw_bins,
    ),
    _curve_chart(
        "roc",
        "ROC curves",
        ("false answers accepted", "true answers accepted"),
        "True answers accepted against false answers accepted.",
        "Shares of false and of true answers that a threshold accepts. Grey: guessing.",
        _draw_diagonal,
    ),
)
"""In the order of the page."""
