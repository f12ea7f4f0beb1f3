"""Single heads: the key words cut for one head at a time, at the reference layer's depth.

One head may carry what the probe reads, or many may share it. All heads together give the scale: what no head does
alone, they may still do together.
"""

import re
from dataclasses import dataclass
from typing import Any, ClassVar, final

import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from anchorscope.report.assignment_rules import rule_name, rule_title
from anchorscope.report.charts.forest import group_offset, legend_style
from anchorscope.report.charts.layout import Grid, Legend, canvas, empty_panel, rows_that_fit, zero_line
from anchorscope.report.experiments.experiment_rows import (
    datasets_in,
    estimate_of,
    present,
    rules_in,
    select,
    statistics,
)
from anchorscope.report.experiments.section import ExperimentChart, SectionSpec
from anchorscope.report.findings import Findings
from anchorscope.report.palette import GROUPS, LINE_STYLES, DatasetStyle, dataset_styles, display_name
from anchorscope.report.verdicts import DISCOVERY_RATE
from anchorscope.report.wording import GROUP_HEAD, NOTHING, Table, group_cells, p_value_cell, points, shown

_ALL = -1
_VARIANT = re.compile(r"(?:head (?P<head>\d+)|all heads)(?:, (?P<depth>layers? .+))?")
_COLUMNS = ("dataset", "assignment", "group", "variant", "head", "depth", "layer", "value", "ci_low", "ci_high", "n",
            "p_value", "q_value", "effect_size")  # fmt: skip
HERE = "at the reference layer's depth"


def head_of(variant: str | None) -> tuple[int, str] | None:
    """The head (−1 for all of them) and the layers, from "head 3" or "head 3, layers 10–16"."""
    found = _VARIANT.fullmatch(variant or "")
    return (int(found["head"] or _ALL), found["depth"] or HERE) if found else None


@final
@dataclass(frozen=True)
class HeadsChart(ExperimentChart):
    """ΔP at l* per head, both groups, with all heads together as level lines."""

    name: ClassVar[str] = "heads"

    alt: ClassVar[str] = "ΔP at l* for every head and both groups"
    caption: ClassVar[str] = "All heads together: level lines."

    @classmethod
    def rows(cls, findings: Findings) -> pl.DataFrame:
        """ΔP at l* of every head and of all together."""
        data = _with_heads(statistics(findings, "heads", "delta_p_reference"))
        data = data.filter(pl.col("group").is_in(list(GROUPS)))
        return data.select(_COLUMNS).sort("dataset", "assignment", "depth", "group", "head", maintain_order=True)

    @classmethod
    def explained(cls, findings: Findings) -> tuple[str, ...]:
        """What is measured and which marks are filled."""
        return (
            "ΔP at the reference layer with the key words cut for one query head, in percentage points; bars: 95 % "
            f"intervals. Filled: q < {DISCOVERY_RATE} over the heads of a panel. Level lines: all heads together.",
        )

    def draw(self) -> Figure:
        """A row per dataset and rule, a column for one layer and one for several."""
        lines = [(dataset, rule) for dataset in self.datasets for rule in rules_in(select(self.data, dataset=dataset))]
        depths = max((len(self._depths(dataset)) for dataset in self.datasets), default=1)
        colours = dataset_styles(self.datasets)
        handles = self._handles(legend_style(list(colours.values())))
        grid = Grid([4.3] * depths, rows_that_fit(len(lines), 2.2, 0.78), gap_x=0.55)
        page = canvas(f"{self.model}: single heads", grid, Legend(handles, 4, self.notes))
        for panels, (dataset, rule) in zip(page.axes, lines, strict=True):
            for axes, depth in zip(panels, self._depths(dataset), strict=False):
                self._draw_panel(
                    axes, select(self.data, dataset=dataset, assignment=rule, depth=depth), colours[dataset]
                )
                layers = select(self.data, dataset=dataset, depth=depth)["layer"].drop_nulls().to_list()
                where = f"layer {layers[0]}" if depth == HERE and layers else depth
                axes.set_title(f"{display_name(dataset)}, {rule_title(rule)}: {where}")
            for axes in panels[len(self._depths(dataset)) :]:
                axes.set_axis_off()
            panels[0].set_ylabel("ΔP at l*")
        return page.figure

    def _depths(self, dataset: str) -> list[str]:
        return present(select(self.data, dataset=dataset), "depth", (HERE,))

    @staticmethod
    def _draw_panel(axes: Axes, table: pl.DataFrame, colours: DatasetStyle) -> None:
        zero_line(axes)
        if not table.height:
            empty_panel(axes, "too few items")
        for row in table.to_dicts():
            colour, found = colours.colour(row["group"]), estimate_of(row | {"method": ""})
            if row["head"] == _ALL:
                axes.axhline(found.value, color=colour, linestyle=LINE_STYLES[row["group"]], linewidth=1.1, zorder=2)
                continue
            x = row["head"] + group_offset(row["group"])
            significant = row["q_value"] is not None and row["q_value"] < DISCOVERY_RATE
            axes.plot([x, x], [found.ci_low, found.ci_high], color=colour, linewidth=1.3, zorder=2.5)
            axes.plot([x], [found.value], zorder=3, **_marker(row["group"], colour, significant))
        axes.xaxis.set_major_locator(MaxNLocator(nbins=12, integer=True))
        axes.set_xlabel("Head")

    def _handles(self, colours: DatasetStyle) -> list[Line2D]:
        handles = [
            Line2D([], [], label=f"{group}, one head", **_marker(group, colours.colour(group), True))
            for group in GROUPS
        ]
        if select(self.data, head=_ALL).height:
            handles += [
                Line2D([], [], color=colours.colour(group), linestyle=LINE_STYLES[group], linewidth=1.1,
                       label=f"{group}, all heads")
                for group in GROUPS
            ]  # fmt: skip
        return handles


def _strongest_table(findings: Findings, table: pl.DataFrame) -> Table:
    table, rows = select(table, quantity="delta_p_reference"), []
    for dataset in datasets_in(findings, table):
        for rule in rules_in(table):
            for depth in present(select(table, dataset=dataset), "depth", (HERE,)):
                for group in GROUPS:
                    mine = select(table, dataset=dataset, assignment=rule, depth=depth, group=group)
                    if mine.height:
                        rows.append((display_name(dataset), rule_name(rule), depth, group, *_strongest_cells(mine)))
    head = ("dataset", "rule", "where", "group", "all heads", "lowest head", "its ΔP", "q", "heads with q < 0.05")
    return Table(head, tuple(rows), 4)


def _strongest_cells(rows: pl.DataFrame) -> tuple[str, ...]:
    single = rows.filter(pl.col("head") != _ALL).sort("value")
    together = select(rows, head=_ALL)
    cells = [shown(estimate_of(together.row(0, named=True)), points) if together.height else NOTHING]
    if not single.height:
        return (*cells, *[NOTHING] * 4)
    lowest = single.row(0, named=True)
    significant = single.filter(pl.col("q_value") < DISCOVERY_RATE).height
    cells += [str(lowest["head"]), points(estimate_of(lowest)), p_value_cell(lowest["p_value"], lowest["q_value"])]
    return (*cells, f"{significant} of {single.height}")


def _significant_table(findings: Findings, table: pl.DataFrame) -> Table:
    gaps = select(table, quantity="delta_p_reference_difference").filter(pl.col("head") != _ALL)
    significant = gaps.filter(pl.coalesce("q_value", "p_value") < DISCOVERY_RATE)
    rows = []
    for dataset in datasets_in(findings, significant):
        for row in select(significant, dataset=dataset).sort("assignment", "depth", "head").to_dicts():
            mine = select(table, dataset=dataset, assignment=row["assignment"], variant=row["variant"])
            cells = group_cells(mine, "delta_p_reference", points)
            rows.append((display_name(dataset), rule_name(row["assignment"]), row["variant"], *cells))
    return Table(("dataset", "rule", "head", *GROUP_HEAD), tuple(rows), 3)


def _with_heads(table: pl.DataFrame) -> pl.DataFrame:
    """The rows about heads, all answers together, with the head and the layers in columns of their own."""
    table = select(table, truth="all")
    found = [head_of(variant) for variant in table["variant"]]
    kept = table.filter(pl.Series([one is not None for one in found], dtype=pl.Boolean))
    named = [one for one in found if one is not None]
    return kept.with_columns(
        pl.Series("head", [one[0] for one in named], dtype=pl.Int64),
        pl.Series("depth", [one[1] for one in named], dtype=pl.String),
    )


def _marker(group: str, colour: str, significant: bool) -> dict[str, Any]:
    return {"marker": "o" if group == GROUPS[0] else "s", "markersize": 4.4, "markeredgecolor": colour,
            "markerfacecolor": colour if significant else "white", "markeredgewidth": 1.0,
            "linestyle": "none"}  # fmt: skip


def _head_rows(findings: Findings) -> pl.DataFrame:
    return _with_heads(statistics(findings, "heads", "delta_p_reference", "delta_p_reference_difference"))


SECTION = SectionSpec(
    slug="heads",
    title="Single heads",
    rows=_head_rows,
    text=(
        "Does one head carry the question to the answer? The key words are cut for one query head at a time, in the "
        "reference layer, and in the same head of several layers up to it so that an effect can add up.",
        "The level lines give the scale: all heads of these layers together. Every head is tested, so p is given with "
        "the false discovery rate controlled over the heads. A head that does nothing alone may still matter where "
        "others can stand in for it.",
    ),
    charts=(HeadsChart,),
    tables=(
        ("All heads together, and the head with the lowest ΔP in each group", _strongest_table),
        ("Heads whose difference Q − A has q < 0.05", _significant_table),
    ),
)
