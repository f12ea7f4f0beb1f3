"""How much of the chart hangs on which words are cut: the same items with the subject, the property, both, every
content word, or random tokens cut.

Drawn only where the run made the experiment (`--evidence exact-tokens`). Groups are those of the knockout, so the lines
of a panel compare the same items; an item whose question does not say such words is left out of that line.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, final

import polars as pl
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from anchorscope.catalogue import interventions_in
from anchorscope.report.assignment_rules import PANEL_TITLES
from anchorscope.report.charts.display import Display
from anchorscope.report.charts.layout import Legend
from anchorscope.report.charts.line_chart import (
    CURVE_COLUMNS,
    POINTS_NOTE,
    Line,
    Panel,
    delta_p_axes,
    drawable,
    items_note,
    line_chart,
)
from anchorscope.report.findings import Findings, summary_of
from anchorscope.report.palette import CONTROL_GREY, GROUPS, INK, LINE_STYLES, display_name
from anchorscope.report.wording import Table, percent, points

CUTS: dict[str, tuple[str, str, str]] = {
    "knockout": ("subject and property (the chart)", INK, ""),
    "subject": ("subject alone", "#0072b2", "o"),
    "property": ("property alone", "#d55e00", "s"),
    "content": ("every content word", "#009e73", "^"),
    "random": ("as many random tokens", CONTROL_GREY, ""),
}
"""What is cut, by intervention: its words in the legend, its colour, its marker."""
_PANEL_INCHES = (4.35, 2.9)


@final
@dataclass(frozen=True)
class ExactTokensChart(Display):
    """ΔP of both groups under every choice of the words that are cut, plain and corrected."""

    model: str
    """Title of the chart."""
    n_layers: int
    """Length of the x axis."""
    datasets: tuple[str, ...]
    """One row of panels per dataset."""
    items: Mapping[tuple[str, str], int]
    """Items that each cut was run on, by dataset and intervention."""

    name: ClassVar[str] = "exact_tokens"

    @classmethod
    def from_findings(cls, findings: Findings) -> "ExactTokensChart":
        """Choose the curves of every cut, true and false answers together."""
        wanted = (
            pl.col("assignment").is_in(list(PANEL_TITLES))
            & (pl.col("truth") == "all")
            & pl.col("intervention").is_in(list(CUTS))
            & pl.col("dataset").is_in(findings.datasets)
        )
        data = drawable(findings.curves, findings.site, findings.position).filter(wanted).select(CURVE_COLUMNS)
        data = data.sort("dataset", "assignment", "intervention", "group", "layer")
        first = data.filter((pl.col("assignment") == "plain") & (pl.col("layer") == 0))
        counted = first.group_by("dataset", "intervention").agg(pl.col("n").sum())
        items = {(str(row[0]), str(row[1])): int(row[2]) for row in counted.iter_rows()}
        notes = (POINTS_NOTE, "Numbers in a panel: items of both groups that each cut was run on.")
        return cls(data, notes, findings.model, findings.n_layers, findings.datasets, items)

    @classmethod
    def was_made(cls, findings: Findings) -> bool:
        """Whether the run holds the experiment."""
        return bool(findings.curves["intervention"].is_in(list(interventions_in("exact-tokens"))).any())

    def draw(self) -> Figure:
        """A row per dataset, a column per assignment."""
        present = [name for name in CUTS if self.data["intervention"].is_in([name]).any()]
        handles = [Line2D([], [], label=CUTS[name][0], **_style(name, "Q-Anchored")) for name in present]
        handles += [Line2D([], [], color=INK, linestyle=LINE_STYLES[group], label=group) for group in GROUPS]
        panels = [
            self._panel(dataset, assignment, title, present)
            for dataset in self.datasets
            for assignment, title in PANEL_TITLES.items()
        ]
        title = f"{self.model}: which words are cut"
        axes_of = delta_p_axes(self.n_layers, mark_rows=2)
        return line_chart(
            title, panels, (len(self.datasets), 2), _PANEL_INCHES, axes_of, Legend(handles, 4, self.notes)
        )

    def _panel(self, dataset: str, assignment: str, title: str, present: list[str]) -> Panel:
        table = self.data.filter((pl.col("dataset") == dataset) & (pl.col("assignment") == assignment))
        lines = []
        for place, name in enumerate(present):
            for group in GROUPS:
                rows = table.filter((pl.col("intervention") == name) & (pl.col("group") == group))
                style: dict[str, Any] = {"markevery": (place % 4, 4)} | _style(name, group)
                if rows.height and name in ("knockout", "subject", "property"):
                    lines.append(Line(rows, style | {"zorder": 3}))
                elif rows.height:  # bands of all five would hide each other
                    lines.append(Line(rows, style, band=False))
        empty = "" if table.height else "too few items to draw"
        counted = ", ".join(f"{name} {self.items.get((dataset, name), 0)}" for name in present)
        return Panel(f"{display_name(dataset)}, {title}", lines, empty, finish=items_note(counted, 7.0))


def cuts_table(findings: Findings) -> Table:
    """ΔP at l* under every choice of the words that are cut; no rows where the run did not make the experiment."""
    rows = []
    for dataset in findings.datasets if ExactTokensChart.was_made(findings) else ():
        for name, (words, _, _) in CUTS.items():
            found = [
                summary_of(findings, dataset, "delta_p_reference", assignment=rule, intervention=name, group=group)
                for rule in PANEL_TITLES
                for group in GROUPS
            ]
            flips = summary_of(findings, dataset, "flip_rate", assignment="plain", intervention=name)
            rows.append((display_name(dataset), words, *map(points, found), percent(flips)))
    heads = [f"{group}, {rule}" for rule in PANEL_TITLES for group in GROUPS]
    return Table(("dataset", "cut", *heads, "flips"), tuple(rows), 2)


def _style(name: str, group: str) -> dict[str, Any]:
    _, colour, marker = CUTS[name]
    style: dict[str, Any] = {"color": colour, "linestyle": LINE_STYLES[group], "linewidth": 1.6}
    if name == "random":
        style |= {"linewidth": 1.1}
    return style | ({"marker": marker, "markersize": 4.0, "markeredgewidth": 0.0} if marker else {})
