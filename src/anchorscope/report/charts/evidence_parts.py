"""The lead figures: the four parts of the evidence, stacked over the layers, and as one bar for the band of layers.

Parts sum to 1. One that comes out below zero is drawn below the zero line, as it is. Layers at which a part's interval
is wider than the whole scale have too little evidence to divide, and are left blank. The band, over which parts are
averaged for the text, is marked; black lines show how much needs the key words, and how much needs random words.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from anchorscope.artefacts.schema import BAND
from anchorscope.report.charts.display import empty_panel, layer_axis, note_curve, zero_line
from anchorscope.report.findings import Findings, select
from anchorscope.report.palette import INK, PART_COLOURS, PART_HATCHES, DatasetStyle, display_name
from anchorscope.report.panel_figure import ChartSpec, ExperimentFigure, Place
from anchorscope.report.shares import NEEDS_QUESTION, PARTS, TOGETHER, band_layers, band_numbers, has_shares, share_at
from anchorscope.report.verdicts import WIDEST_SHARE

LOWEST, HIGHEST = -0.2, 1.1
"""What the axis shows: in the first layers there is hardly any evidence to divide by, and a share can be anything."""
_LINES = {"knockout": ("-", "needs the key words"), "random": (":", "needs random words")}


def _look(part: str) -> dict[str, Any]:
    return {"facecolor": PART_COLOURS[part], "hatch": PART_HATCHES[part], "edgecolor": "white"}


def _part_handles() -> list[Artist]:
    return [Patch(label=words, **_look(part)) for part, words in PARTS.items()]


def _layer_rows(findings: Findings) -> pl.DataFrame:
    """The parts under the knockout, and what needs the question under both cuts; `in_band` marks the band."""
    cuts = pl.col("intervention").is_in(list(_LINES)) & (pl.col("part") == NEEDS_QUESTION)
    parts = (pl.col("intervention") == "knockout") & pl.col("part").is_in(list(PARTS))
    columns = ("dataset", "intervention", "part", "layer", "share", "ci_low", "ci_high", "n", "n_groups")
    rows = findings.at_headline(findings.evidence_parts).filter(pl.col("layer") != BAND, cuts | parts)
    rows = select(rows, dataset=findings.datasets).filter(pl.col("share").is_finite()).select(columns)
    rows = rows.with_columns(pl.col("layer").cast(pl.Int64)).sort("layer", maintain_order=True)
    bands = {name: set(band_numbers(findings, name)) for name in findings.datasets}
    in_band = [layer in bands[name] for name, layer in rows.select("dataset", "layer").iter_rows()]
    return rows.with_columns(pl.Series("in_band", in_band, dtype=pl.Boolean))


@dataclass(frozen=True)
class StackedParts:
    """The parts over layers."""

    width: float = 4.35
    title: str = ""

    def draw(self, axes: Axes, rows: pl.DataFrame, place: Place) -> None:
        """The parts above each other, the band at the foot, and the two lines."""
        shares = np.stack([shares_of_layers(rows, "knockout", part, place.n_layers) for part in PARTS])
        shares[:, np.isnan(shares).any(axis=0)] = np.nan
        layers = np.arange(place.n_layers)
        up, down = np.zeros(place.n_layers), np.zeros(place.n_layers)
        for part, values in zip(PARTS, shares, strict=True):
            for base, signed in ((up, np.maximum(values, 0.0)), (down, np.minimum(values, 0.0))):
                axes.fill_between(layers, base, base + signed, linewidth=0.4, **_look(part))
                base += np.nan_to_num(signed)
            note_curve(axes, PARTS[part], PART_COLOURS[part], layers.tolist(), values.tolist())
        for cut, (dash, words) in _LINES.items():
            values = shares_of_layers(rows, cut, NEEDS_QUESTION, place.n_layers)
            axes.plot(layers, values, color=INK, linestyle=dash, linewidth=1.3)
            note_curve(axes, words, INK, layers.tolist(), values.tolist())
        for layer in rows.filter("in_band")["layer"].unique():
            axes.axvspan(layer - 0.5, layer + 0.5, ymin=0.0, ymax=0.035, color=INK, linewidth=0)
        if np.isnan(shares).all():
            empty_panel(axes, "too little evidence to divide")
        zero_line(axes)
        layer_axis(axes, place.n_layers)
        axes.set_ylim(LOWEST, HIGHEST)
        if place.column == 0:
            axes.set_ylabel("share of the evidence")

    def handles(self, data: pl.DataFrame, colours: DatasetStyle) -> Sequence[Artist]:
        """Parts, then lines."""
        lines = [Line2D([], [], color=INK, linestyle=dash, label=words) for dash, words in _LINES.values()]
        return [*_part_handles(), *lines]


def shares_of_layers(rows: pl.DataFrame, cut: str, part: str, n_layers: int) -> np.ndarray:
    """The share at every layer; NaN where there is none that says anything."""
    values = np.full(n_layers, np.nan)
    mine = rows.filter((pl.col("intervention") == cut) & (pl.col("part") == part))
    for layer, share, low, high in mine.select("layer", "share", "ci_low", "ci_high").iter_rows():
        if low is not None and high - low <= WIDEST_SHARE:
            values[layer] = share
    return values


EVIDENCE_PARTS = ChartSpec(
    "evidence_parts",
    "what the evidence rests on",
    "Four parts of the probe's evidence, stacked over the layers, a panel per dataset",
    "Black lines: what needs the key words, and what needs random words.",
    "Shares of the probe's evidence for the truth. Black strip: the layers of the band, whose AUC is within one "
    "standard error of the best. Intervals are in the tables.",
    _layer_rows,
    lambda _: [StackedParts()],
    height=3.1,
    side_by_side=2,
    legend_columns=2,
    made=has_shares,
)


@dataclass(frozen=True)
class PartBars:
    """One bar of four parts for every dataset of one or several runs, with the interval of the first part."""

    width: float = 6.4
    title: str = ""

    def draw(self, axes: Axes, rows: pl.DataFrame, place: Place) -> None:
        """Bars from top to bottom."""
        labels = list(dict.fromkeys(rows["bar"]))
        ends = dict.fromkeys(labels, (0.0, 0.0))  # how far a bar reaches up and down so far
        for bar, part, share, low, high in rows.select("bar", "part", "share", "ci_low", "ci_high").iter_rows():
            line, (up, down) = labels.index(bar), ends[bar]
            axes.barh(line, share, left=up if share >= 0 else down, height=0.62, **_look(part))
            ends[bar] = (up + share, down) if share >= 0 else (up, down + share)
            if part == TOGETHER and low is not None:
                axes.plot([low, high], [line, line], color=INK, linewidth=1.4, zorder=3)
        axes.set_yticks(range(len(labels)), labels)
        axes.set_ylim(len(labels) - 0.5, -0.5)
        axes.tick_params(axis="y", length=0)
        axes.axvline(0.0, color="#555555", linewidth=0.8)
        axes.set_xlabel("share of the evidence")
        axes.grid(False, axis="y")

    def handles(self, data: pl.DataFrame, colours: DatasetStyle) -> Sequence[Artist]:
        """The parts."""
        return _part_handles()


def part_bars(runs: Sequence[Findings]) -> ExperimentFigure | None:
    """The bars of these runs, each over its own band; None where no run has parts."""
    rows = [
        {
            "bar": display_name(dataset) if len(runs) == 1 else f"{run.model}, {display_name(dataset)}",
            "model": run.model,
            "dataset": dataset,
            "layers": band_layers(run, dataset),
            "part": part,
            "share": share.value,
            "ci_low": share.ci_low,
            "ci_high": share.ci_high,
            "n": share.n,
        }
        for run in runs
        for dataset in run.datasets
        for part in PARTS
        if (share := share_at(run, dataset, part=part))
    ]
    if not rows:
        return None
    data = pl.DataFrame(rows)
    spec = ChartSpec(
        "evidence_bars",
        "",
        "Four parts of the probe's evidence, one bar per dataset",
        "Means over the band of layers.",
        "",
        lambda _: data,
        lambda _: [PartBars()],
        height=max(0.8, 0.42 * data["bar"].n_unique() + 0.25),
        by="",
        dataset_words=str,
        labels=max(0.3, 0.075 * max(map(len, data["bar"])) - 0.5),
        legend_columns=2,
        formats=("svg", "png"),
    )
    note = "Mean over the layers of each band. Black line: 95% interval of the first part."
    return ExperimentFigure(data, (note,), spec, "What the probe's evidence rests on", 1, ("",))
