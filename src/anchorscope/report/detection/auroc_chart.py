"""AUROC of every detector on every dataset, tested on what it learned from: dots with intervals, in a column each.

Two lines go through all rows: the probe, and probe and confidence together, which is the one to beat.
"""

import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from anchorscope.report.charts.display import Display
from anchorscope.report.charts.forest import Mark, draw_forest
from anchorscope.report.charts.layout import Grid, Legend, canvas, empty_panel, rows_that_fit
from anchorscope.report.detection.detector_styles import line_of
from anchorscope.report.detection.results import AUROC, BOTH, PROBE, DetectionResults, entry_of, shown_place
from anchorscope.report.palette import INK, QUIET_INK
from anchorscope.report.wording import count
from anchorscope.stats.estimate import Estimate

_GUIDES = (PROBE, BOTH)
_LINE_INCHES, _PANEL_INCHES, _LONE_PANEL_INCHES, _GAP = 0.205, 2.15, 4.2, 0.22
_MOST_COLUMNS = 4
_LONGEST_TITLE = 24
_LETTER_INCHES = 0.083


@dataclass(frozen=True)
class AurocChart(Display):
    """A panel per dataset, a line per detector."""

    model: str
    datasets: tuple[str, ...]
    """A panel each."""

    name: ClassVar[str] = "detector_auroc"
    title: ClassVar[str] = "telling true from false answers"
    note: ClassVar[str] = "Under the rule: baselines, which every detector has to beat."

    @classmethod
    def from_results(cls, results: DetectionResults, model: str) -> "AurocChart":
        """The rows of the diagonal that have a value."""
        names = [name for name in results.names if cls.shows(name)]
        here = (pl.col("metric") == AUROC) & (pl.col("prevalence") == results.prevalence)
        here &= (pl.col("train") == pl.col("test")) & pl.col("value").is_finite()
        wanted = names if cls is AurocChart else [*_GUIDES, *names]
        rows = results.detectors.filter(here & pl.col("detector").is_in(wanted))
        order = pl.col("detector").replace_strict({name: place for place, name in enumerate(results.names)})
        rows = rows.sort(order, maintain_order=True).drop("train", "metric")
        shown = tuple(name for name in results.datasets if name in set(rows["test"]))
        passes = "The number beside a name: passes through the model per answer, beyond those that wrote it."
        drawn = f"AUROC, {results.prevalence} answers, out of fold; 0.5 is guessing. Bars: 95 % intervals over groups."
        notes = (f"{drawn} {passes} {cls.note}",)
        return cls(rows, notes, model, shown)

    @classmethod
    def shows(cls, detector: str) -> bool:
        """Whether it has a line here."""
        return entry_of(detector).variant_of is None

    @property
    def was_made(self) -> bool:
        """Whether there is something to draw."""
        return bool(self.data.filter(pl.col("detector").map_elements(self.shows, return_dtype=pl.Boolean)).height)

    @property
    def names(self) -> list[str]:
        """The lines, from the top."""
        return [name for name in self.data["detector"].unique(maintain_order=True) if self.shows(name)]

    def draw(self) -> Figure:
        """Panels in rows of four at most; names at the left of every row."""
        names, columns = self.names, _columns(len(self.datasets))
        n_rows = math.ceil(len(self.datasets) / columns)
        labels = self._labels(names)
        room = _LETTER_INCHES * max(map(len, labels)) - 0.45
        wide = _LONE_PANEL_INCHES if columns == 1 else _PANEL_INCHES
        grid = Grid([wide] * columns, rows_that_fit(n_rows, _LINE_INCHES * len(names) + 0.1, 0.78),
                    labels=max(0.0, room), gap_x=_GAP)  # fmt: skip
        handles = [Line2D([], [], label=f"AUROC of {name}", **_guide(name)) for name in self._guides()]
        page = canvas(f"{self.model}: {self.title}", grid, Legend(handles, max(1, len(handles)), self.notes))
        panels = page.panels
        for place, (axes, dataset) in enumerate(zip(panels, self.datasets, strict=False)):
            self._draw_panel(axes, dataset, names)
            axes.set_xlim(*self._limits())
            axes.set_yticks(range(len(names)), labels if place % columns == 0 else [""] * len(names))
            axes.set_title(textwrap.shorten(shown_place(dataset), _LONGEST_TITLE, placeholder="…")
                           if " " in dataset else _cut(shown_place(dataset)))  # fmt: skip
            most = self.data.filter(pl.col("test") == dataset)["n"].max()
            axes.set_xlabel(f"AUROC, n = {count(most)}", fontsize=8.5)
        for axes in panels[len(self.datasets) :]:
            axes.set_axis_off()
        return page.figure

    def _draw_panel(self, axes: Axes, dataset: str, names: Sequence[str]) -> None:
        rows = {row["detector"]: row for row in self.data.filter(pl.col("test") == dataset).iter_rows(named=True)}
        marks = [Mark(line, 0.0, _estimate(rows[name]), _mark(name)) for line, name in enumerate(names) if name in rows]
        draw_forest(axes, [""] * len(names), marks, 0.5)
        for guide in _GUIDES:
            if guide in rows:
                axes.axvline(rows[guide]["value"], zorder=1.6, **_guide(guide))
        baselines = [line for line, name in enumerate(names) if entry_of(name).baseline]
        if baselines and baselines[0] > 0:
            axes.axhline(baselines[0] - 0.5, color=INK, linewidth=1.0, zorder=2)
        if not marks:
            empty_panel(axes, "no scores")

    def _guides(self) -> list[str]:
        there = set(self.data["detector"])
        return [name for name in _GUIDES if name in there]

    def _labels(self, names: Sequence[str]) -> list[str]:
        passes = dict(self.data.select("detector", "passes").iter_rows())
        # Blanks that SVG does not join into one.
        return [f"{name}\u2002\u2002{'?' if passes[name] is None else passes[name]}" for name in names]

    def _limits(self) -> tuple[float, float]:
        ends = [value for column in ("value", "ci_low", "ci_high") for value in self.data[column].drop_nulls()
                if math.isfinite(value)]  # fmt: skip
        low, high = min([0.5, *ends]), max([0.6, *ends])
        pad = 0.03 * (high - low)
        return low - pad, high + pad


@dataclass(frozen=True)
class VariantsChart(AurocChart):
    """The same of readings, gates and controls."""

    name: ClassVar[str] = "detector_variants"
    title: ClassVar[str] = "readings, gates and controls"
    note: ClassVar[str] = "An oracle gate has seen the label and is no detector."

    @classmethod
    def shows(cls, detector: str) -> bool:
        """Variants only."""
        return entry_of(detector).variant_of is not None


def _columns(n: int) -> int:
    rows = math.ceil(n / _MOST_COLUMNS)
    return max(1, math.ceil(n / max(1, rows)))


def _cut(name: str) -> str:
    return name if len(name) <= _LONGEST_TITLE else f"{name[: _LONGEST_TITLE - 1]}…"


def _estimate(row: dict[str, Any]) -> Estimate:
    low, high = (math.nan if row[name] is None else row[name] for name in ("ci_low", "ci_high"))
    return Estimate(row["value"], low, high, row["n"] or 0, "")


def _guide(name: str) -> dict[str, Any]:
    return line_of(name) | {"linewidth": 1.2}


def _mark(name: str) -> dict[str, Any]:
    entry = entry_of(name)
    colour = QUIET_INK if entry.baseline else INK
    open_mark = entry.baseline or name.endswith("oracle")
    return {"color": colour, "marker": "s" if entry.baseline else "o", "markersize": 4.2,
            "markerfacecolor": "white" if open_mark else colour, "markeredgecolor": colour, "markeredgewidth": 1.0,
            "linewidth": 1.3}  # fmt: skip
