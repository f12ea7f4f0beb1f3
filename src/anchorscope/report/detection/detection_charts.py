"""The figures of the detectors: AUROC, other data, ROC, risk against coverage, reliability; a panel per dataset."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import polars as pl
from matplotlib import colormaps
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle

from anchorscope.report.detection.results import (
    AUROC,
    AUTO,
    BALANCED,
    BOTH,
    CONFIDENCE,
    NATURAL,
    PROBE,
    Cell,
    DetectionResults,
    entry_of,
    shown_place,
)
from anchorscope.report.palette import CONTROL_GREY, INK, QUIET_INK, DatasetStyle
from anchorscope.report.panel_figure import ChartSpec, ExperimentFigure, Forest, Lines, Marks, Own, Place, Series, Style
from anchorscope.report.result_rows import present, select
from anchorscope.report.wording import count, number

_LETTER_INCHES, _LONGEST_NAME = 0.083, 24
_LARGEST_BIN = 130.0  # square points of the fullest bin's mark
OTHERS = "all others"
_GUIDES = (PROBE, BOTH)
_LINES: dict[str, tuple[str, Any, str]] = {
    CONFIDENCE: ("#6f6f6f", (0, (1.0, 1.4)), "s"),
    PROBE: ("#0072b2", (0, (5.0, 2.0)), "o"),
    BOTH: ("#d55e00", "-", "^"),
    "mop": ("#009e73", (0, (4.0, 1.4, 1.0, 1.4)), "D"),
    "counterfactual": ("#a3457f", (0, (2.6, 1.2)), "v"),
    AUTO: ("#111111", (0, (2.2, 2.2)), "X"),
}
"""Colour, dashes and marker of the detectors that are drawn as lines: told apart in grey and by the colour-blind."""
_SHOWN = (PROBE, CONFIDENCE, BOTH, AUTO)
"""Detectors of which the matrix of other data is drawn, and the reliability: more could not be told apart."""


def detection_figures(results: DetectionResults, model: str) -> list[ExperimentFigure]:
    """The figures that have something to draw."""
    found = []
    for chart in CHARTS:
        data = chart.rows(results)
        note = chart.note if isinstance(chart.note, str) else chart.note(results)
        names = tuple(name for name in (*results.datasets, *_SHOWN) if name in set(data["dataset"]))
        if names:
            found.append(ExperimentFigure(data, (note,), chart, model, 0, names, {}))
    return found


def line_of(detector: str) -> dict[str, Any]:
    """A detector's line, as `Line2D` takes it."""
    width = 2.6 if detector == BOTH else 1.6  # auto may be the same line: both can be seen
    return {"color": _LINES[detector][0], "linestyle": _LINES[detector][1], "linewidth": width}


def cut_name(name: str) -> str:
    """A dataset in names that a reader knows, not longer than there is room for."""
    shown = shown_place(name)
    return shown if len(shown) <= _LONGEST_NAME else f"{shown[: _LONGEST_NAME - 1]}…"


@dataclass(frozen=True)
class _DetectorMarks(Marks):
    """Baselines square and grey; what is no detector open."""

    column: str = "detector"
    styles: Mapping[str, tuple[str, Style]] = field(default_factory=dict)

    def of(self, row: Mapping[str, Any], colours: DatasetStyle) -> tuple[float, Style] | None:
        baseline = entry_of(row["detector"]).baseline
        colour = QUIET_INK if baseline else INK
        return 0.0, {
            "color": colour,
            "marker": "s" if baseline else "o",
            "markersize": 4.2,
            "markerfacecolor": "white" if baseline else colour,
            "markeredgecolor": colour,
            "markeredgewidth": 1.0,
            "linewidth": 1.3,
        }


def _auroc_rows(variants: bool, results: DetectionResults) -> pl.DataFrame:
    """Tested on what was learned from; the guides of a figure of variants are drawn and have no line."""
    rows = select(results.detectors, metric=AUROC, prevalence=results.prevalence)
    rows = rows.filter((pl.col("train") == pl.col("test")) & pl.col("value").is_finite())
    names = [name for name in results.names if (entry_of(name).variant_of is not None) == variants]
    if not select(rows, detector=names).height:
        return rows.clear().rename({"test": "dataset"})
    rows = select(rows, detector=[*(_GUIDES if variants else ()), *names])
    order = pl.col("detector").replace_strict({name: place for place, name in enumerate(results.names)})
    rows = rows.sort(order, maintain_order=True).with_columns(line=pl.col("detector").is_in(names))
    return rows.rename({"test": "dataset"}).drop("train", "metric")


def _forest(data: pl.DataFrame) -> list[Forest]:
    """A line per detector, with its passes."""
    mine = select(data, line=True)
    passes = dict(mine.select("detector", "passes").iter_rows())
    # Blanks that SVG does not join into one.
    lines = {
        name: f"{name}\u2002\u2002{'?' if passes[name] is None else passes[name]}" for name in present(mine, "detector")
    }
    baselines = [name for name in lines if entry_of(name).baseline]
    return [
        Forest(
            "detector",
            lines,
            _DetectorMarks(),
            width=4.2 if data["dataset"].n_unique() == 1 else 2.15,
            null=0.5,
            set_apart=baselines,
            words_once=True,
            finish=_draw_guides,
        )
    ]


def _draw_guides(axes: Axes, rows: pl.DataFrame, place: Place) -> None:
    for name, height in select(rows, detector=_GUIDES).select("detector", "value").iter_rows():
        axes.axvline(height, zorder=1.6, **line_of(name) | {"linewidth": 1.2})
    axes.set_xlabel(f"AUROC, n = {count(rows['n'].max())}", fontsize=8.5)


def _guide_handles(data: pl.DataFrame, colours: DatasetStyle) -> list[Artist]:
    there = set(data["detector"])
    return [
        Line2D([], [], label=f"AUROC of {name}", **line_of(name) | {"linewidth": 1.2})
        for name in _GUIDES
        if name in there
    ]


def _auroc_chart(name: str, title: str, alt: str, caption: str, note: str) -> ChartSpec:
    variants = name == "detector_variants"
    said = (
        "AUROC, {} answers, out of fold; 0.5 is guessing. Bars: 95 % intervals over groups. The number beside a "
        "name: passes through the model per answer, beyond those that wrote it. "
    )
    return ChartSpec(
        name,
        title,
        alt,
        caption,
        lambda results: said.format(results.prevalence) + note,
        partial(_auroc_rows, variants),
        _forest,
        share="x",
        side_by_side=4,
        height=lambda data: 0.205 * select(data, line=True)["detector"].n_unique() + 0.1,
        dataset_words=cut_name,
        gap=0.22,
        legend_columns=2,
        more_handles=_guide_handles,
        labels=lambda data: max(0.0, _LETTER_INCHES * max(map(len, _forest(data)[0].lines.values())) - 0.45),
    )


def _transfer_rows(results: DetectionResults) -> pl.DataFrame:
    """The matrix of every detector that is shown, where anything was tested on other data; a panel each."""
    cells = {(cell.train, cell.test) for cell in (*results.in_domain, *results.elsewhere, *results.held_out)}
    rows = select(results.detectors, metric=AUROC, prevalence=results.prevalence, detector=_SHOWN)
    inside = [pair in cells for pair in rows.select("train", "test").iter_rows()]
    rows = rows.filter(pl.Series(inside, dtype=pl.Boolean) & pl.col("value").is_finite())
    rows = rows.with_columns(dataset=pl.col("detector")).drop("metric")
    return rows if (rows["train"] != rows["test"]).any() else rows.clear()


def matrix(rows: pl.DataFrame, detector: str) -> tuple[list[str], list[str], np.ndarray]:
    """What was learned from, what was tested on, and the AUROC of each pair; NaN where nothing was measured."""
    held_out = [Cell(*pair).held_out for pair in rows.select("train", "test").iter_rows()]
    tests = present(rows, "test")
    trains = [
        *present(rows.filter(~pl.Series(held_out, dtype=pl.Boolean)), "train", tests),
        *([OTHERS] if any(held_out) else []),
    ]
    found = np.full((len(trains), len(tests)), np.nan)
    for train, test, value in select(rows, detector=detector).select("train", "test", "value").iter_rows():
        found[trains.index(OTHERS if Cell(train, test).held_out else train), tests.index(test)] = value
    return trains, tests, found


def _longest(data: pl.DataFrame) -> float:
    """Inches of the longest name at a matrix."""
    return _LETTER_INCHES * max(len(cut_name(name)) for name in (OTHERS, *data["test"]))


def _matrices(data: pl.DataFrame) -> list[Own]:
    return [Own(partial(_draw_matrix, data), max(2.0, 0.5 * data["test"].n_unique()))]


def _draw_matrix(data: pl.DataFrame, axes: Axes, rows: pl.DataFrame, place: Place) -> None:
    """Numbers on coloured cells, one hue from light to dark; tested on what was learned from: framed."""
    trains, tests, values = matrix(data, place.dataset)
    scale = Normalize(0.5, 1.0)
    axes.imshow(np.ma.masked_invalid(values), cmap=colormaps["Blues"], norm=scale, aspect="auto")
    axes.set_facecolor("#f1f1f1")
    axes.grid(False)
    axes.tick_params(length=0)
    for spine in axes.spines.values():
        spine.set_visible(False)
    for row, column in np.argwhere(np.isfinite(values)):
        found = float(values[row, column])
        axes.text(
            column,
            row,
            number(found, 2),
            ha="center",
            va="center",
            fontsize=8,
            color="white" if scale(found) > 0.62 else INK,
        )
        if trains[row] == tests[column]:
            axes.add_patch(Rectangle((column - 0.47, row - 0.46), 0.94, 0.92, fill=False, edgecolor=INK, linewidth=1.8))
    axes.set_xticks(
        range(len(tests)), map(cut_name, tests), rotation=35, ha="right", rotation_mode="anchor", fontsize=8
    )
    axes.set_yticks(range(len(trains)), [cut_name(name) if place.column == 0 else "" for name in trains], fontsize=8)
    axes.set_xlabel("tested on", fontsize=8.5)
    axes.set_ylabel("learned from" if place.column == 0 else "", fontsize=8.5)


def _curve_rows(curve: str, prefers: str, detectors: tuple[str, ...], results: DetectionResults) -> pl.DataFrame:
    """Points of curves that were tested on what was learned from, at one prevalence: the preferred one if there."""
    rows = select(results.curves, curve=curve, detector=detectors)
    rows = rows.filter((pl.col("train") == pl.col("test")) & pl.col("x").is_finite() & pl.col("y").is_finite())
    there = present(rows, "prevalence", (prefers,))
    rows = select(rows, prevalence=there[0]) if there else rows
    return rows.rename({"test": "dataset"}).drop("curve")


def _curve_chart(
    curve: str,
    title: str,
    labels: tuple[str, str],
    alt: str,
    caption: str,
    note: str,
    prefers: str,
    finish: Callable[[Axes, pl.DataFrame, Place], object],
    detectors: tuple[str, ...] = tuple(_LINES),
) -> ChartSpec:
    series = [
        Series({"detector": name}, line_of(name) | ({"linewidth": 1.2} if curve == "reliability" else {}), name, "none")
        for name in detectors
    ]

    def panels(data: pl.DataFrame) -> list[Lines]:
        side = {1: 3.9, 2: 3.3, 3: 3.0}.get(data["dataset"].n_unique(), 2.6)
        return [
            Lines(
                series,
                labels[1],
                "",
                side,
                x="x",
                y="y",
                x_label=labels[0],
                over_layers=False,
                null=None,
                finish=finish,
            )
        ]

    rows = partial(_curve_rows, curve, prefers, detectors)

    def explained(results: DetectionResults) -> str:
        drawn = present(rows(results), "prevalence")
        return f"{note} {drawn[0].capitalize()} prevalence, out of fold." if drawn else note

    return ChartSpec(
        f"detector_{curve.replace('-', '_')}",
        title,
        alt,
        caption,
        explained,
        rows,
        panels,
        height=lambda data: panels(data)[0].width,
        share="y",
        side_by_side=4,
        dataset_words=cut_name,
        gap=0.42,
    )


def _diagonal(axes: Axes, rows: pl.DataFrame, place: Place) -> None:
    """A square with its diagonal: guessing, or calibrated."""
    axes.plot([0, 1], [0, 1], color=CONTROL_GREY, linewidth=0.9, zorder=1.5)
    _from_zero_to_one(axes, rows, place)
    axes.set_ylim(-0.01, 1.01)


def _from_zero_to_one(axes: Axes, rows: pl.DataFrame, place: Place) -> None:
    axes.set(xlim=(-0.01, 1.01), xticks=np.linspace(0.0, 1.0, 6))
    axes.set_ylim(bottom=0.0)
    axes.grid(True, axis="both")


def _bins(axes: Axes, rows: pl.DataFrame, place: Place) -> None:
    """Marks that are as large as their bins."""
    _diagonal(axes, rows, place)
    for name in present(rows, "detector"):
        mine = select(rows, detector=name)
        weights = mine["weight"].fill_null(0.0).to_list()
        most = max(weights) or 1.0
        axes.scatter(
            mine["x"],
            mine["y"],
            s=[max(6.0, _LARGEST_BIN * weight / most) for weight in weights],
            marker=_LINES[name][2],
            color=_LINES[name][0],
            alpha=0.85,
            edgecolors="white",
            linewidths=0.6,
            zorder=3.5,
            clip_on=False,
        )


CHARTS = (
    _auroc_chart(
        "detector_auroc",
        "telling true from false answers",
        "AUROC of every detector on every dataset with its interval; probe and probe+confidence as lines through all "
        "rows; baselines under a dashed line",
        "AUROC with 95 % intervals, each detector tested on the dataset that it learned from, out of fold.",
        "Under the dashed line: baselines, which every detector has to beat.",
    ),
    _auroc_chart(
        "detector_variants",
        "controls",
        "AUROC of the controls, on every dataset",
        "Detectors with a random or constant gate, or with a random cut in place of the knockout.",
        "",
    ),
    ChartSpec(
        "detector_transfer",
        "on other data",
        "AUROC of probe, confidence, probe+confidence and auto for every dataset learned from and every one tested",
        "Rows: what the detector learned from. Columns: what it was tested on.",
        lambda results: (
            f"AUROC, {results.prevalence} answers. “{OTHERS}”: learned from every dataset but the tested "
            "one. Grey: not measured. Answers tested: "
            + ", ".join(f"{shown_place(cell.test)} {count(results.n_tested(cell))}" for cell in results.in_domain)
            + "."
        ),
        _transfer_rows,
        _matrices,
        side_by_side=2,
        dataset_words=str,
        gap=0.45,
        height=lambda data: 0.36 * len(matrix(data, PROBE)[0]),
        labels=lambda data: max(0.3, _longest(data) - 0.2),
        foot=lambda data: 0.6 * _longest(data) + 0.15,
        more_handles=lambda data, _: [
            Patch(facecolor="none", edgecolor=INK, linewidth=1.8, label="tested on what it learned from")
        ],
    ),
    _curve_chart(
        "risk-coverage",
        "risk and coverage",
        ("coverage (answers accepted)", "risk (false among them)"),
        "Risk against coverage of the main detectors, a panel per dataset",
        "How many accepted answers are false, the more are accepted.",
        "Answers are accepted from the most probable down. At full coverage every detector has the same risk.",
        NATURAL,
        _from_zero_to_one,
    ),
    _curve_chart(
        "reliability",
        "reliability",
        ("stated probability", "share of true answers"),
        "Share of true answers against the stated probability, a panel per dataset",
        "What a probability says, and what is so.",
        "Bins of the stated probability; the larger a mark, the more answers. Grey: calibrated.",
        NATURAL,
        _bins,
        _SHOWN,
    ),
    _curve_chart(
        "roc",
        "ROC curves",
        ("false answers accepted", "true answers accepted"),
        "ROC curves of the main detectors, a panel per dataset",
        "True answers kept against false answers kept.",
        "Shares of false and of true answers that a threshold lets through. Grey: guessing.",
        BALANCED,
        _diagonal,
    ),
)
"""In the order of the page."""
