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
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from anchorscope.report.assignment_rules import PANEL_TITLES
from anchorscope.report.charts.display import Display
from anchorscope.report.charts.layout import Legend, empty_panel, layer_axis, line_with_band, sheet, zero_line
from anchorscope.report.charts.line_chart import CURVE_COLUMNS, POINTS_NOTE, drawable, line_style, reserve_mark_space
from anchorscope.report.findings import Findings
from anchorscope.report.palette import GROUPS, INK, QUIET_INK, DatasetStyle, dataset_styles, display_name

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
        """A row per dataset, a column per assignment, a small legend with the numbers of items in each panel."""
        # One dataset shows its own colours in the legend; with several, the panel's title names the dataset.
        only = next(iter(self.styles.values())) if len(self.styles) == 1 else DatasetStyle(INK, INK, "o")
        handles = [
            Line2D([], [], label=f"{group}, {words}", **_style(group, truth, only))
            for group in GROUPS
            for truth, words in TRUTHS.items()
        ]
        title = f"{self.model}: the groups split by truth"
        page = sheet(title, (len(self.styles), 2), _PANEL_INCHES, Legend(handles, 4, self.notes))
        for row, (dataset, colours) in zip(page.axes, self.styles.items(), strict=True):
            for axes, (assignment, title) in zip(row, PANEL_TITLES.items(), strict=True):
                self._draw_panel(axes, dataset, assignment, colours)
                axes.set_title(f"{display_name(dataset)}, {title}")
                layer_axis(axes, self.n_layers)
            row[0].set_ylabel("ΔP")
        reserve_mark_space(page.axes[0][0], 2)
        return page.figure

    def _draw_panel(self, axes: Axes, dataset: str, assignment: str, colours: DatasetStyle) -> None:
        table = self.data.filter((pl.col("dataset") == dataset) & (pl.col("assignment") == assignment))
        zero_line(axes)
        if not table.height:
            empty_panel(axes, "too few items to draw")
        counted = []
        for group in GROUPS:
            for truth in TRUTHS:
                rows = table.filter((pl.col("group") == group) & (pl.col("truth") == truth))
                if rows.height:
                    start = 1 if truth == "true" else 3
                    line_with_band(
                        axes, rows, "delta_p", markevery=(start, 4), zorder=3, **_style(group, truth, colours)
                    )
                counted.append(f"{group[0]} {truth} {self.items.get((dataset, assignment, group, truth), 0)}")
        text = "items: " + ", ".join(counted)
        axes.text(0.015, 0.02, text, transform=axes.transAxes, fontsize=7.4, color=QUIET_INK)


def _style(group: str, truth: str, colours: DatasetStyle) -> dict[str, Any]:
    colour = colours.colour(group)
    face = colour if truth == "true" else "white"
    width = 2.0 if truth == "true" else 1.2
    marked = {"marker": "o", "markersize": 4.2, "markerfacecolor": face, "markeredgecolor": colour}
    return line_style(group, colours, marker=False) | marked | {"linewidth": width, "markeredgewidth": 0.9}
