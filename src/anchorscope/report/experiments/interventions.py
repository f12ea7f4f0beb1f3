"""Every intervention beside every other: what each does to both pathways at the reference layer.

The knockout is one way to take the question away. Where its controls do as much as it does, or where another way to
take the same words away does something else, the chart says less than it seems to.
"""

from dataclasses import dataclass
from typing import ClassVar, final

import polars as pl
from matplotlib.figure import Figure

from anchorscope.catalogue import CONTROLS, INTERVENTIONS, intervention_label
from anchorscope.report.assignment_rules import EXPERIMENT_TITLES, rule_name, rule_title
from anchorscope.report.charts.forest import (
    Mark,
    draw_forest,
    group_marks_handles,
    group_offset,
    group_style,
    legend_style,
)
from anchorscope.report.charts.layout import Grid, Legend, canvas, rows_that_fit
from anchorscope.report.experiments.experiment_rows import (
    datasets_in,
    estimate_of,
    find,
    interventions,
    present,
    rules_in,
    select,
)
from anchorscope.report.experiments.section import ExperimentChart, SectionSpec
from anchorscope.report.findings import Findings
from anchorscope.report.palette import GROUPS, dataset_styles, display_name
from anchorscope.report.wording import NOTHING, Table, count, percent, points, shown

_COLUMNS = ("dataset", "assignment", "intervention", "group", "value", "ci_low", "ci_high", "n", "method")
OTHERS = tuple(one.name for one in INTERVENTIONS.values() if one.experiment not in ("knockout", "exact-tokens"))
"""Those that a run without further experiments does not have."""


@final
@dataclass(frozen=True)
class InterventionsChart(ExperimentChart):
    """ΔP at the reference layer of both groups under every intervention."""

    name: ClassVar[str] = "interventions"

    alt: ClassVar[str] = "ΔP at the reference layer of Q-Anchored and A-Anchored items under every intervention"
    caption: ClassVar[str] = "Filled: Q-Anchored. Open: A-Anchored."

    @classmethod
    def rows(cls, findings: Findings) -> pl.DataFrame:
        """ΔP at l* of both groups under the rules that sort by the knockout, on datasets with another intervention."""
        rows = interventions(findings).filter(pl.col("quantity") == "delta_p_reference")
        rows = rows.filter(pl.col("group").is_in(list(GROUPS)) & pl.col("assignment").is_in(list(EXPERIMENT_TITLES)))
        made = rows.filter(pl.col("intervention").is_in(list(OTHERS)))["dataset"].unique().to_list()
        return rows.filter(pl.col("dataset").is_in(made)).select(_COLUMNS)

    @classmethod
    def explained(cls, findings: Findings) -> tuple[str, ...]:
        """What is measured, and what is built in."""
        return (
            "ΔP at the reference layer l*, in percentage points. Lines: 95 % intervals. The groups are the knockout's, "
            "so what it does to them is partly built in, and in part what other cuts of the same words do. The clean "
            "probe measures under every rule.",
        )

    def draw(self) -> Figure:
        """A row per dataset, a column per rule, a line per intervention."""
        names, rules = present(self.data, "intervention", tuple(INTERVENTIONS)), rules_in(self.data)
        colours = dataset_styles(self.datasets)
        heights = rows_that_fit(len(self.datasets), 0.5 + 0.265 * len(names), 0.78)
        legend = Legend(group_marks_handles(legend_style(list(colours.values()))), 2, self.notes)
        wide = 3.3 if len(rules) < 3 else 2.75
        page = canvas(f"{self.model}: all interventions", Grid([wide] * len(rules), heights, labels=2.35), legend)
        for line, dataset in zip(page.axes, self.datasets, strict=True):
            limits = self._limits(dataset)
            for place, (axes, rule) in enumerate(zip(line, rules, strict=True)):
                rows = select(self.data, dataset=dataset, assignment=rule)
                marks = [
                    Mark(names.index(row["intervention"]), group_offset(row["group"]), estimate_of(row),
                         group_style(row["group"], colours[dataset]))
                    for row in rows.to_dicts()
                ]  # fmt: skip
                draw_forest(axes, [intervention_label(name) if place == 0 else "" for name in names], marks)
                first_control = next((i for i, name in enumerate(names) if name in CONTROLS), None)
                if first_control:  # what should do nothing stands below a line
                    axes.axhline(first_control - 0.5, color="#9a9a9a", linewidth=0.8, linestyle=(0, (4.0, 2.5)))
                axes.set_xlim(*limits)
                axes.set_title(f"{display_name(dataset)}, {rule_title(rule)}")
                axes.set_xlabel("ΔP at l*")
        return page.figure

    def _limits(self, dataset: str) -> tuple[float, float]:
        """One scale for the panels of a dataset: they are there to be compared."""
        rows = select(self.data, dataset=dataset)
        ends = [value for name in ("value", "ci_low", "ci_high") for value in rows[name].drop_nulls().drop_nans()]
        low, high = min([0.0, *ends]), max([0.0, *ends])
        pad = 0.05 * max(high - low, 1.0)
        return low - pad, high + pad


def effects_table(findings: Findings, wanted: tuple[str, ...], made_of: tuple[str, ...] = OTHERS) -> Table:
    """ΔP at l* and flips of both groups under some interventions, on datasets that have one of `made_of`."""
    table = interventions(findings)
    table = table.filter(pl.col("intervention").is_in(list(wanted)))
    rows = []
    for dataset in datasets_in(findings, table.filter(pl.col("intervention").is_in(list(made_of)))):
        for name in present(select(table, dataset=dataset), "intervention", wanted):
            for rule in EXPERIMENT_TITLES:
                mine = select(table, dataset=dataset, intervention=name, assignment=rule)
                if mine.height:
                    rows.append(
                        (display_name(dataset), intervention_label(name), rule_name(rule), *_effect_cells(mine))
                    )
    head = ("dataset", "what is done", "rule", "Q-Anchored ΔP", "items", "A-Anchored ΔP", "items", "Q − A")
    return Table((*head, "Q flips", "A flips", "all flips"), tuple(rows), 3)


def _effect_cells(rows: pl.DataFrame) -> tuple[str, ...]:
    cells: list[str] = []
    for group in GROUPS:
        found = find(rows, quantity="delta_p_reference", group=group)
        cells += [shown(found, points), count(found.n) if found else NOTHING]
    cells.append(shown(find(rows, quantity="delta_p_reference_difference"), points))
    flips = [find(rows, quantity="flip_rate", group=group) for group in (*GROUPS, None)]
    return (*cells, *(shown(found, percent) for found in flips))


def _others(findings: Findings) -> pl.DataFrame:
    """Rows of the summary about interventions besides the knockout, its controls and the choices of words."""
    return findings.summary.filter(pl.col("intervention").is_in(list(OTHERS)))


SECTION = SectionSpec(
    slug="interventions",
    title="All interventions",
    rows=_others,
    text=(
        "The same items, the same probes and the same two groups under every intervention of this run. Above the "
        "dashed line the question's key words are taken away in one way or another; below it nothing of importance "
        "should be lost, so the marks should lie near zero.",
        "The groups were made by the knockout: that Q lies below A on its line is partly built in, and on the lines "
        "that cut the same words as well. An intervention with text of its own (words put in, question dropped) does "
        "not share the knockout's numerical accidents, so it is the stronger confirmation. A flip is a changed "
        "verdict of an item that was called right before. Under the retained rule a probe that was trained on the cut "
        "states sorts the items; what is measured here is the clean probe's verdict, as under the other rules.",
    ),
    charts=(InterventionsChart,),
    tables=(("", lambda findings, _: effects_table(findings, tuple(INTERVENTIONS))),),
)
