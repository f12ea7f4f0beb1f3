"""The knowledge boundary: do the pathways differ in what the model knows, admits not to know, and is sure of?

In a balanced set half of the answers are true by design. So every number is also weighted by how many answers an item
stands for; the report shows the weighted one and, faintly, the one as drawn.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, final

import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from anchorscope.report.assignment_rules import rule_name
from anchorscope.report.charts.forest import Mark, draw_forest, group_marks_handles, group_style, legend_style
from anchorscope.report.charts.layout import Grid, Legend, canvas, empty_panel, rows_that_fit
from anchorscope.report.experiments.experiment_rows import (
    datasets_in,
    estimate_of,
    find,
    present,
    rules_in,
    select,
    statistics,
)
from anchorscope.report.experiments.section import ExperimentChart, SectionSpec
from anchorscope.report.findings import Findings
from anchorscope.report.palette import CONTROL_GREY, GROUPS, DatasetStyle, dataset_styles, display_name
from anchorscope.report.wording import (
    GROUP_HEAD,
    Show,
    Table,
    count,
    difference_cells,
    estimate,
    group_cells,
    percent,
    shown,
)

WEIGHTED, AS_DRAWN = "weighted", "as drawn"
QUANTITIES: dict[str, tuple[str, Show]] = {
    "accuracy": ("true answers", percent),
    "dont_know_rate": ("says “I don't know”", percent),
    "popularity": ("log10 popularity", estimate),
    "confidence_mean": ("mean log-probability", estimate),
    "confidence_min": ("lowest log-probability", estimate),
}
"""Quantity → its words and how it is written."""
_COLUMNS = ("dataset", "variant", "assignment", "group", "quantity", "value", "ci_low", "ci_high", "n", "method")


@final
@dataclass(frozen=True)
class BoundaryChart(ExperimentChart):
    """What is known of the answers of both groups, under every rule."""

    name: ClassVar[str] = "boundary"

    alt: ClassVar[str] = "Accuracy, don't-know rate, popularity and confidence of both groups"
    caption: ClassVar[str] = "Each panel has a scale of its own."

    @classmethod
    def rows(cls, findings: Findings) -> pl.DataFrame:
        """Both groups' values, all answers together."""
        rows = select(statistics(findings, "boundary", *QUANTITIES), truth="all")
        return rows.filter(pl.col("group").is_in(list(GROUPS))).select(_COLUMNS)

    @classmethod
    def explained(cls, findings: Findings) -> tuple[str, ...]:
        """What the two kinds of marks are."""
        return (
            "Large marks: weighted by inverse sampling probability. Small grey marks: as drawn, where half of the "
            "answers are true by design. Lines: 95 % intervals.",
        )

    def draw(self) -> Figure:
        """A row per dataset, a column per quantity, a line per rule and group."""
        quantities, rules = present(self.data, "quantity", tuple(QUANTITIES)), rules_in(self.data)
        colours = dataset_styles(self.datasets)
        handles = group_marks_handles(legend_style(list(colours.values())))
        handles.append(Line2D([], [], label=AS_DRAWN, **_AS_DRAWN))
        heights = rows_that_fit(len(self.datasets), 0.35 + 0.5 * len(rules), 0.78)
        grid = Grid([1.95] * len(quantities), heights, labels=0.35, gap_x=0.3)
        page = canvas(f"{self.model}: what the model knows, by pathway", grid, Legend(handles, 3, self.notes))
        for panels, dataset in zip(page.axes, self.datasets, strict=True):
            for place, (axes, quantity) in enumerate(zip(panels, quantities, strict=True)):
                rows = select(self.data, dataset=dataset, quantity=quantity)
                self._draw_panel(axes, rows, rules if place == 0 else [""] * len(rules), rules, colours[dataset])
                axes.set_title(QUANTITIES[quantity][0], fontsize=9)
                axes.set_xlabel("share" if QUANTITIES[quantity][1] is percent else "")
            panels[0].set_ylabel(display_name(dataset))
        return page.figure

    @staticmethod
    def _draw_panel(axes: Axes, rows: pl.DataFrame, labels: list[str], rules: list[str], colours: DatasetStyle) -> None:
        marks = []
        for row in rows.to_dicts():
            style = _AS_DRAWN if row["variant"] == AS_DRAWN else group_style(row["group"], colours)
            offset = (-0.22 if row["group"] == GROUPS[0] else 0.22) + (0.13 if row["variant"] == AS_DRAWN else 0.0)
            marks.append(Mark(rules.index(row["assignment"]), offset, estimate_of(row), style))
        draw_forest(axes, labels, marks, null=None)
        axes.margins(x=0.12)
        axes.locator_params(axis="x", nbins=4)
        if not marks:
            axes.set_xticks([])
            empty_panel(axes, "not available")


_AS_DRAWN: dict[str, Any] = {"color": CONTROL_GREY, "marker": "o", "markersize": 2.6, "markerfacecolor": CONTROL_GREY,
                             "markeredgecolor": CONTROL_GREY, "linewidth": 0.8, "linestyle": "none"}  # fmt: skip


def _groups_table(findings: Findings, table: pl.DataFrame) -> Table:
    rows = []
    for dataset in datasets_in(findings, table):
        for quantity in present(select(table, dataset=dataset), "quantity", tuple(QUANTITIES)):
            if quantity not in QUANTITIES:
                continue
            words, show = QUANTITIES[quantity]
            for rule in rules_in(table):
                mine = select(table, dataset=dataset, assignment=rule, truth="all")
                for variant in present(select(mine, quantity=quantity), "variant", (WEIGHTED, AS_DRAWN)):
                    cells = group_cells(select(mine, variant=variant), quantity, show)
                    rows.append((display_name(dataset), words, rule_name(rule), variant, *cells))
    return Table(("dataset", "quantity", "rule", "items count", *GROUP_HEAD), tuple(rows), 4)


def _within_table(findings: Findings, table: pl.DataFrame) -> Table:
    rows = []
    for dataset in datasets_in(findings, table):
        for quantity, (words, show) in QUANTITIES.items():
            for rule in rules_in(table):
                mine = select(table, dataset=dataset, assignment=rule, variant=WEIGHTED)
                split = [select(mine, truth=truth) for truth in ("true", "false")]
                known = any(select(part, quantity=f"{quantity}_difference").height for part in split)
                if known and quantity != "accuracy":  # of true answers, all are true
                    cells = [cell for part in split for cell in difference_cells(part, quantity, show)]
                    rows.append((display_name(dataset), words, rule_name(rule), *cells))
    head = ("dataset", "quantity", "rule", "Q − A, true answers", "p", "d", "Q − A, false answers", "p", "d")
    return Table(head, tuple(rows), 3)


def _coverage_table(findings: Findings, table: pl.DataFrame) -> Table:
    table, rows = select(table, quantity="coverage"), []
    for dataset in datasets_in(findings, table):
        found = find(select(table, dataset=dataset))
        rows.append((display_name(dataset), shown(found, percent), count(found.n if found else None)))
    return Table(("dataset", "coverage", "items"), tuple(rows))


SECTION = SectionSpec(
    slug="boundary",
    title="Knowledge boundary",
    rows=lambda findings: statistics(findings, "boundary"),
    text=(
        "Do the pathways differ in what the model knows? For both groups: how many answers are true, how often the "
        "model says that it does not know when the prompt allows it, how well known the subject is, and how sure the "
        "model was of its words.",
        "Items were drawn so that half of the answers are true. The weighted numbers undo that: each item counts for "
        "the answers that it was drawn from. Relations in which no answer was right, or none wrong, have no drawn "
        "item; the coverage says what share of all answers is spoken for.",
        "A rule that sorts by label makes groups that differ in everything that goes with truth. So the second table "
        "compares true with true and false with false.",
    ),
    charts=(BoundaryChart,),
    tables=(
        ("All answers", _groups_table),
        ("Q − A within true and within false answers", _within_table),
        ("Share of all answered questions that the weighted items stand for", _coverage_table),
    ),
)
