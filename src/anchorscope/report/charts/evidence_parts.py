"""The lead figures: the four parts of the evidence, stacked over the layers, and as one bar for the band of layers.

Parts sum to 1. One that comes out below zero is drawn below the zero line, as it is. Layers at which a part's interval
is wider than the whole scale have too little evidence to divide, and are left blank. The band, over which parts are
averaged for the text, is marked; black lines show how much needs the key words, and how much needs random words.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, final

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from anchorscope.report.charts.display import Display, note_curve
from anchorscope.report.charts.layout import Grid, Legend, canvas, empty_panel, layer_axis, sheet, zero_line
from anchorscope.report.findings import Findings
from anchorscope.report.looks import PART_LOOKS
from anchorscope.report.palette import INK, display_name
from anchorscope.report.shares import NEEDS_QUESTION, PARTS, band_layers, band_numbers, has_shares, share_at, share_rows
from anchorscope.report.verdicts import WIDEST_SHARE
from anchorscope.stats.estimate import Estimate

LOWEST, HIGHEST = -0.2, 1.1
"""What the axis shows: in the first layers there is hardly any evidence to divide by, and a share can be anything."""
_NOTE = (
    "Shares of the probe's evidence for the truth. Black strip: the layers of the band, whose AUC is within one "
    "standard error of the best. Intervals are in the tables."
)
_LINES = {"knockout": ("-", "needs the key words"), "random": (":", "needs random words")}
_PANEL = (4.35, 3.1)
_BAR_WIDTH, _BAR_HEIGHT = 6.4, 0.42


def part_handles() -> list[Patch]:
    """Legend entries of the parts."""
    return [
        Patch(facecolor=PART_LOOKS[part].colour, hatch=PART_LOOKS[part].hatch, edgecolor="white", label=words)
        for part, words in PARTS.items()
    ]


@final
@dataclass(frozen=True)
class EvidencePartsChart(Display):
    """The parts over layers, a panel per dataset."""

    title: str
    n_layers: int
    bands: dict[str, tuple[int, ...]]
    """The layers of the band, by dataset."""

    name: ClassVar[str] = "evidence_parts"

    @classmethod
    def was_made(cls, findings: Findings) -> bool:
        """Whether the run has parts."""
        return has_shares(findings)

    @classmethod
    def from_findings(cls, findings: Findings) -> "EvidencePartsChart":
        """The parts under the knockout, and what needs the question under both cuts."""
        rows = share_rows(findings)
        cuts = pl.col("intervention").is_in(list(_LINES)) & (pl.col("part") == NEEDS_QUESTION)
        parts = (pl.col("intervention") == "knockout") & pl.col("part").is_in(list(PARTS))
        data = rows.filter(cuts | parts).select(
            "dataset", "intervention", "part", "layer", "share", "ci_low", "ci_high", "n", "n_groups"
        )
        bands = {name: tuple(band_numbers(findings, name)) for name in findings.datasets}
        return cls(data, (_NOTE,), f"{findings.model}: what the evidence rests on", findings.n_layers, bands)

    def draw(self) -> Figure:
        """At most two panels in a row."""
        columns = min(2, len(self.bands))
        grid = math.ceil(len(self.bands) / columns), columns
        lines = [Line2D([], [], color=INK, linestyle=dash, label=words) for dash, words in _LINES.values()]
        legend = Legend([*part_handles(), *lines], 3 if columns > 1 else 2, self.notes)
        page = sheet(self.title, grid, _PANEL, legend)
        for axes, (dataset, band) in zip(page.panels, self.bands.items(), strict=False):
            self._draw_panel(axes, self.data.filter(pl.col("dataset") == dataset), band)
            axes.set_title(display_name(dataset))
        for axes in page.panels[len(self.bands) :]:
            axes.set_axis_off()
        for row in page.axes:
            row[0].set_ylabel("share of the evidence")
        page.panels[0].set_ylim(LOWEST, HIGHEST)
        return page.figure

    def _draw_panel(self, axes: Axes, rows: pl.DataFrame, band: Sequence[int]) -> None:
        if not rows.height:
            empty_panel(axes, "no parts: too few answers, or too weak a probe")
            return
        shares = np.stack([self._of_layers(rows, "knockout", part) for part in PARTS])
        shares[:, np.isnan(shares).any(axis=0)] = np.nan
        layers = np.arange(self.n_layers)
        up, down = np.zeros(self.n_layers), np.zeros(self.n_layers)
        for part, values in zip(PARTS, shares, strict=True):
            for base, signed in ((up, np.maximum(values, 0.0)), (down, np.minimum(values, 0.0))):
                look = PART_LOOKS[part]
                filled: dict[str, Any] = {
                    "facecolor": look.colour,
                    "hatch": look.hatch,
                    "edgecolor": "white",
                    "linewidth": 0.4,
                }
                axes.fill_between(layers, base, base + signed, **filled)
                base += np.nan_to_num(signed)
            note_curve(axes, PARTS[part], PART_LOOKS[part].colour, layers.tolist(), values.tolist())
        for cut, (dash, words) in _LINES.items():
            values = self._of_layers(rows, cut, NEEDS_QUESTION)
            axes.plot(layers, values, color=INK, linestyle=dash, linewidth=1.3)
            note_curve(axes, words, INK, layers.tolist(), values.tolist())
        for layer in band:
            axes.axvspan(layer - 0.5, layer + 0.5, ymin=0.0, ymax=0.035, color=INK, linewidth=0)
        zero_line(axes)
        layer_axis(axes, self.n_layers)

    def _of_layers(self, rows: pl.DataFrame, cut: str, part: str) -> np.ndarray:
        """The share at every layer; NaN where there is none that says anything."""
        values = np.full(self.n_layers, np.nan)
        mine = rows.filter((pl.col("intervention") == cut) & (pl.col("part") == part))
        for layer, share, low, high in mine.select("layer", "share", "ci_low", "ci_high").iter_rows():
            if low is not None and high - low <= WIDEST_SHARE:
                values[layer] = share
        return values


@final
@dataclass(frozen=True)
class PartBars(Display):
    """One bar of four parts for every dataset of one or several runs, with the interval of the first part."""

    name: ClassVar[str] = "evidence_bars"
    formats: ClassVar[tuple[str, ...]] = ("svg", "png")

    @classmethod
    def from_runs(cls, runs: Sequence[Findings]) -> "PartBars | None":
        """Over each run's own band; None where no run has parts."""
        rows = []
        for run in runs:
            for dataset in run.datasets:
                shares = {part: share_at(run, dataset, part=part) for part in PARTS}
                label = display_name(dataset) if len(runs) == 1 else f"{run.model}, {display_name(dataset)}"
                rows += [_bar_row(label, run, dataset, part, share) for part, share in shares.items() if share]
        if not rows:
            return None
        note = "Mean over the layers of each band. Black line: 95% interval of the first part."
        return cls(pl.DataFrame(rows), (note,))

    def draw(self) -> Figure:
        """Bars from top to bottom."""
        labels = list(dict.fromkeys(self.data["bar"]))
        room = max(0.3, 0.075 * max(map(len, labels)) - 0.5)
        grid = Grid((_BAR_WIDTH,), (max(0.8, _BAR_HEIGHT * len(labels) + 0.25),), labels=room)
        page = canvas("What the probe's evidence rests on", grid, Legend(part_handles(), 2, self.notes))
        (axes,) = page.panels
        for line, label in enumerate(labels):
            up = down = 0.0
            for row in self.data.filter(pl.col("bar") == label).iter_rows(named=True):
                look, share = PART_LOOKS[row["part"]], row["share"]
                left = up if share >= 0 else down
                axes.barh(line, share, left=left, height=0.62, color=look.colour, hatch=look.hatch, edgecolor="white")
                up, down = (up + share, down) if share >= 0 else (up, down + share)
                if row["part"] == next(iter(PARTS)) and row["ci_low"] is not None:
                    axes.plot([row["ci_low"], row["ci_high"]], [line, line], color=INK, linewidth=1.4, zorder=3)
        axes.set_yticks(range(len(labels)), labels)
        axes.set_ylim(len(labels) - 0.5, -0.5)
        axes.tick_params(axis="y", length=0)
        axes.axvline(0.0, color="#555555", linewidth=0.8)
        axes.set_xlabel("share of the evidence")
        axes.grid(False, axis="y")
        return page.figure


def _bar_row(label: str, run: Findings, dataset: str, part: str, share: Estimate) -> dict[str, object]:
    return {
        "bar": label,
        "model": run.model,
        "dataset": dataset,
        "layers": band_layers(run, dataset),
        "part": part,
        "share": share.value,
        "ci_low": share.ci_low,
        "ci_high": share.ci_high,
        "n": share.n,
    }
