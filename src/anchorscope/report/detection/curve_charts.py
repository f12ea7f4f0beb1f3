"""ROC curves, risk against coverage, and reliability of the detectors that matter most, a panel per dataset."""

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from anchorscope.report.charts.display import Display
from anchorscope.report.charts.layout import Legend, sheet
from anchorscope.report.detection.detector_styles import CALIBRATED_DETECTORS, KEY_DETECTORS, colour_of, line_of
from anchorscope.report.detection.results import BALANCED, NATURAL, DetectionResults, shown_place
from anchorscope.report.palette import CONTROL_GREY

_LONGEST_TITLE, _MOST_COLUMNS = 34, 4
_LARGEST_BIN = 130.0  # square points of the fullest bin's mark


@dataclass(frozen=True)
class CurveChart(Display):
    """One kind of curve; subclasses say which and draw its panels."""

    model: str
    datasets: tuple[str, ...]
    prevalence: str

    curve: ClassVar[str]
    title: ClassVar[str]
    labels: ClassVar[tuple[str, str]]
    """Of the x axis and the y axis."""
    prefers: ClassVar[str]
    """The prevalence that it is drawn for, where there is such a curve."""
    detectors: ClassVar[tuple[str, ...]] = KEY_DETECTORS
    explained: ClassVar[str]

    @classmethod
    def from_results(cls, results: DetectionResults, model: str) -> Self:
        """The points of curves that were tested on what was learned from."""
        here = (pl.col("curve") == cls.curve) & (pl.col("train") == pl.col("test"))
        here &= pl.col("detector").is_in(cls.detectors) & pl.col("x").is_finite() & pl.col("y").is_finite()
        rows = results.curves.filter(here)
        there = rows["prevalence"].unique(maintain_order=True).to_list()
        prevalence = cls.prefers if cls.prefers in there or not there else str(there[0])
        data = rows.filter(pl.col("prevalence") == prevalence).drop("curve")
        shown = tuple(name for name in results.datasets if name in set(data["test"]))
        notes = (f"{cls.explained} {prevalence.capitalize()} prevalence, out of fold.",)
        return cls(data, notes, model, shown, prevalence)

    @property
    def was_made(self) -> bool:
        """Whether there is something to draw."""
        return bool(self.data.height)

    def draw(self) -> Figure:
        """Square panels in rows of four at most."""
        n_rows = math.ceil(len(self.datasets) / _MOST_COLUMNS)
        grid = n_rows, math.ceil(len(self.datasets) / n_rows)
        side = {1: 3.9, 2: 3.3, 3: 3.0, 4: 2.6}[grid[1]]
        there = set(self.data["detector"])
        drawn = [name for name in self.detectors if name in there]
        handles = [Line2D([], [], label=name, **self.style(name)) for name in drawn]
        legend = Legend(handles, min(3, grid[1] + 1), self.notes)
        page = sheet(f"{self.model}: {self.title}", grid, (side, side), legend)
        for axes, dataset in zip(page.panels, self.datasets, strict=False):
            self.background(axes)
            for name in drawn:
                rows = self.data.filter((pl.col("test") == dataset) & (pl.col("detector") == name))
                if rows.height:
                    self.draw_line(axes, name, rows)
            name = shown_place(dataset)
            axes.set_title(name if len(name) <= _LONGEST_TITLE else f"{name[: _LONGEST_TITLE - 1]}…")
            axes.set_xlabel(self.labels[0], fontsize=9)
            axes.tick_params(labelbottom=True)
            axes.grid(True, axis="both")
        for axes in page.panels[len(self.datasets) :]:
            axes.set_axis_off()
        for row in page.axes:
            row[0].set_ylabel(self.labels[1], fontsize=9)
        return page.figure

    def style(self, detector: str) -> dict[str, Any]:
        """How a detector's line looks, here and in the legend."""
        return line_of(detector)

    def draw_line(self, axes: Axes, detector: str, rows: pl.DataFrame) -> None:
        """One detector."""
        rows = rows.sort("x", maintain_order=True)
        axes.plot(rows["x"], rows["y"], zorder=3, **self.style(detector))

    def background(self, axes: Axes) -> None:
        """What lies behind the lines."""
        axes.plot([0, 1], [0, 1], color=CONTROL_GREY, linewidth=0.9, zorder=1.5)
        axes.set_xlim(-0.01, 1.01)
        axes.set_ylim(-0.01, 1.01)


@dataclass(frozen=True)
class RocChart(CurveChart):
    """True answers kept against false answers kept."""

    name: ClassVar[str] = "detector_roc"
    curve: ClassVar[str] = "roc"
    title: ClassVar[str] = "ROC curves"
    labels: ClassVar[tuple[str, str]] = ("false answers accepted", "true answers accepted")
    prefers: ClassVar[str] = BALANCED
    explained: ClassVar[str] = "Shares of false and of true answers that a threshold lets through. Grey: guessing."


@dataclass(frozen=True)
class RiskCoverageChart(CurveChart):
    """How many accepted answers are false, the more are accepted."""

    name: ClassVar[str] = "detector_risk_coverage"
    curve: ClassVar[str] = "risk-coverage"
    title: ClassVar[str] = "risk and coverage"
    labels: ClassVar[tuple[str, str]] = ("coverage (answers accepted)", "risk (false among them)")
    prefers: ClassVar[str] = NATURAL
    explained: ClassVar[str] = (
        "Answers are accepted from the most probable down. At full coverage every detector has the same risk."
    )

    def background(self, axes: Axes) -> None:
        """The risk without a detector is that at full coverage: where the lines end."""
        axes.set_xlim(-0.01, 1.01)
        axes.set_ylim(bottom=0.0)


@dataclass(frozen=True)
class ReliabilityChart(CurveChart):
    """What a probability says against what is so."""

    name: ClassVar[str] = "detector_reliability"
    curve: ClassVar[str] = "reliability"
    title: ClassVar[str] = "reliability"
    labels: ClassVar[tuple[str, str]] = ("stated probability", "share of true answers")
    prefers: ClassVar[str] = NATURAL
    detectors: ClassVar[tuple[str, ...]] = CALIBRATED_DETECTORS
    explained: ClassVar[str] = "Bins of the stated probability; the larger a mark, the more answers. Grey: calibrated."

    def style(self, detector: str) -> dict[str, Any]:
        """With a marker: bins are few."""
        return line_of(detector, marker=True) | {"linewidth": 1.2}

    def draw_line(self, axes: Axes, detector: str, rows: pl.DataFrame) -> None:
        """A thin line through marks that are as large as their bins."""
        rows = rows.sort("x", maintain_order=True)
        style = self.style(detector)
        line: dict[str, Any] = {"color": colour_of(detector), "linestyle": style["linestyle"], "linewidth": 1.2}
        axes.plot(rows["x"], rows["y"], zorder=3, **line)
        weights = rows["weight"].fill_null(0.0)
        most = float(weights.max() or 0.0) or 1.0  # type: ignore[arg-type]
        sizes = [max(6.0, _LARGEST_BIN * weight / most) for weight in weights]
        axes.scatter(rows["x"], rows["y"], s=sizes, marker=style["marker"], color=colour_of(detector), alpha=0.85,
                     edgecolors="white", linewidths=0.6, zorder=3.5, clip_on=False)  # fmt: skip
