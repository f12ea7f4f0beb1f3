"""Both groups split by the truth of the answer: does the trough belong to the pathway, or to the label?

If the plain rule only sorted items by label, its Q-Anchored group would hold hardly any false answers and its
A-Anchored group hardly any true ones. Drawn apart, a group's true and false answers can be compared; the corrected
panel shows the same without the shift. One row of panels per dataset. Filled markers are true answers, open ones
false.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, final

import polars as pl
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

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
    line_style,
)
from anchorscope.report.findings import Findings
from anchorscope.report.palette import GROUPS, INK, DatasetStyle, dataset_styles, display_name

MIN_ITEMS = 10
"""A mean of fewer items has a band so wide that it hides the other lines; its number of items is shown instead."""

TRUTHS = {"true": "true answers", "false": "false answers"}
_PANEL_INCHES = (4.35, 2.9)


@final
@dataclass(frozen=True)
class TruthSplitChart(Display):
    """ΔP of each group, its true and its false answers apart, plain and corrected."""

    model: str
    """Title of the chart."""
    n_layers: int
    """Length of the x axis."""
    styles: Mapping[str, DatasetStyle]
    """One row of panels per dataset."""
    items: Mapping[tuple[str, str, str, str], int]
    """Items behind each line, by dataset, assignment, group and truth, drawn or not."""

    name: ClassVar[str] = "truth_split"

    @classmethod
    def from_findings(cls, findings: Findings) -> "TruthSplitChart":
        """Choose the knockout curves of true and of false answers."""
        wanted = (
            pl.col("assignment").is_in(list(PANEL_TITLES))
            & pl.col("truth").is_in(list(TRUTHS))
            & (pl.col("intervention") == "knockout")
            & pl.col("dataset").is_in(findings.datasets)
        )
        data = drawable(findings.curves, findings.site, findings.position).filter(wanted).select(CURVE_COLUMNS)
        data = data.sort("dataset", "assignment", "group", "truth", "layer")
        keys = ("dataset", "assignment", "group", "truth")
        items = {tuple(row[:4]): int(row[4]) for row in data.group_by(keys).agg(pl.col("n").max()).iter_rows()}
        data = data.filter(pl.col("n").max().over(keys) >= MIN_ITEMS)
        notes = (POINTS_NOTE, f"Numbers in a panel: items behind each line. Fewer than {MIN_ITEMS} are not drawn.")
        return cls(data, notes, findings.model, findings.n_layers, dataset_styles(findings.datasets), items)

    def draw(self) -> Figure:
        """A row per dataset, a column per assignment, the numbers of items in each panel."""
        # One dataset shows its own colours in the legend; with several, the panel's title names the dataset.
        only = next(iter(self.styles.values())) if len(self.styles) == 1 else DatasetStyle(INK, INK, "o")
        handles = [
            Line2D([], [], label=f"{group}, {words}", **_style(group, truth, only))
            for group in GROUPS
            for truth, words in TRUTHS.items()
        ]
        panels = [
            self._panel(dataset, assignment, title, colours)
            for dataset, colours in self.styles.items()
            for assignment, title in PANEL_TITLES.items()
        ]
        title = f"{self.model}: the groups split by truth"
        axes_of = delta_p_axes(self.n_layers, mark_rows=2)
        return line_chart(title, panels, (len(self.styles), 2), _PANEL_INCHES, axes_of, Legend(handles, 4, self.notes))

    def _panel(self, dataset: str, assignment: str, title: str, colours: DatasetStyle) -> Panel:
        table = self.data.filter((pl.col("dataset") == dataset) & (pl.col("assignment") == assignment))
        lines, counted = [], []
        for group in GROUPS:
            for truth in TRUTHS:
                rows = table.filter((pl.col("group") == group) & (pl.col("truth") == truth))
                if rows.height:
                    where: dict[str, Any] = {"markevery": (1 if truth == "true" else 3, 4), "zorder": 3}
                    lines.append(Line(rows, where | _style(group, truth, colours)))
                counted.append(f"{group[0]} {truth} {self.items.get((dataset, assignment, group, truth), 0)}")
        empty = "" if table.height else "too few items to draw"
        note = items_note(", ".join(counted), 7.4)
        return Panel(f"{display_name(dataset)}, {title}", lines, empty, finish=note)


def _style(group: str, truth: str, colours: DatasetStyle) -> dict[str, Any]:
    colour = colours.colour(group)
    face = colour if truth == "true" else "white"
    width = 2.0 if truth == "true" else 1.2
    marked = {"marker": "o", "markersize": 4.2, "markerfacecolor": face, "markeredgecolor": colour}
    return line_style(group, colours, marker=False) | marked | {"linewidth": width, "markeredgewidth": 0.9}
