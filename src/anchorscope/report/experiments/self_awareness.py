"""Does the untouched state already say which pathway an item takes?

A probe predicts the pathway from clean states, layer by layer. Where the rule sorts by label, knowing the truth is
enough to predict the pathway; so the line within true and within false answers is the one that counts.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, final

import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from anchorscope.report.assignment_rules import rule_name, rule_title
from anchorscope.report.charts.layout import Legend
from anchorscope.report.charts.line_chart import Line, Panel, auc_axes, line_chart, mark_reference, reference_handle
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
from anchorscope.report.palette import CONTROL_GREY, dataset_styles, display_name
from anchorscope.report.wording import NOTHING, Table, count, estimate, p_value_cell, shown

LINES: dict[str, tuple[str, dict[str, Any]]] = {
    "auc": ("probe on clean states", {"color": "#0072b2", "marker": "o", "markersize": 3.4, "markeredgewidth": 0.0}),
    "auc_within_truth": (
        "the same, within true and within false answers",
        {"color": "#d55e00", "linestyle": (0, (5.0, 1.6)), "marker": "s", "markersize": 3.4, "markeredgewidth": 0.0},
    ),
}
LEVELS: dict[str, tuple[str, dict[str, Any]]] = {
    "auc_truth_label": ("the label alone", {"color": "#555555", "linestyle": (0, (1.0, 1.4)), "linewidth": 1.3}),
    "auc_truth_probe": (
        "the truth probe at l* alone",
        {"color": "#009e73", "linestyle": (0, (5.0, 1.6, 1.0, 1.6)), "linewidth": 1.3},
    ),
}
PERMUTED = "auc_permuted"
SCORES = {
    "auc_at_reference": "probe at l*", "auc_below": "probe below all l*", "auc": "probe, best layer",
    "auc_truth_label": "the label", "auc_truth_probe": "the truth probe",
    "auc_truth_margin": "the truth probe's margin",
}  # fmt: skip
"""What predicts the pathway; each also within truth, where that is known."""
_COLUMNS = ("dataset", "assignment", "quantity", "variant", "probe_layer", "value", "ci_low", "ci_high", "n", "p_value",
            "method")  # fmt: skip


@final
@dataclass(frozen=True)
class SelfAwarenessChart(ExperimentChart):
    """AUC of the pathway per layer, with what the label alone and permuted pathways reach."""

    name: ClassVar[str] = "self_awareness"

    alt: ClassVar[str] = "AUC of the pathway per layer, within truth, and with permuted pathways"
    caption: ClassVar[str] = "Ticks: the reference layers, where the pathway was assigned."

    @classmethod
    def rows(cls, findings: Findings) -> pl.DataFrame:
        """Both lines, the level lines and the permutations."""
        rows = select(statistics(findings, "self-awareness", *LINES, *LEVELS, PERMUTED), truth="all")
        return rows.select(_COLUMNS).sort("dataset", "assignment", "quantity", "variant", "probe_layer")

    @classmethod
    def explained(cls, findings: Findings) -> tuple[str, ...]:
        """What the lines, the bands and the grey bars are."""
        return (
            "AUC of telling Q-Anchored from A-Anchored items, out of fold; 0.5 is guessing. Bands: 95 % intervals. "
            "Grey bars: mean and 95 % range with the pathways permuted and the probe fitted again.",
        )

    @classmethod
    def was_made(cls, findings: Findings) -> bool:
        """Whether a probe of the pathway was fitted: level lines alone are no figure."""
        return bool(statistics(findings, "self-awareness", "auc").height)

    def draw(self) -> Figure:
        """A row per dataset, a column per rule."""
        rules = rules_in(self.data)
        panels = [self._panel(dataset, rule) for dataset in self.datasets for rule in rules]
        return line_chart(
            f"{self.model}: the pathway, read from clean states", panels,
            (max(1, len(self.datasets)), max(1, len(rules))), (4.35, 2.8) if len(rules) > 1 else (6.2, 3.0),
            auc_axes(self.n_layers, mark_rows=1, value="value"), Legend(self._handles(), 3, self.notes),
        )  # fmt: skip

    def _panel(self, dataset: str, rule: str) -> Panel:
        table = select(self.data, dataset=dataset, assignment=rule)
        levels: list[tuple[float, dict[str, Any]]] = [
            (height, {"zorder": 2} | style)
            for quantity, (_, style) in LEVELS.items()
            for height in select(table, quantity=quantity, probe_layer=None)["value"]
        ]
        lines = []
        for quantity, (_, style) in LINES.items():
            rows = select(table, quantity=quantity).filter(pl.col("probe_layer").is_not_null())
            if rows.height:
                every = {"markevery": max(1, min(4, rows.height // 6)), "zorder": 3}
                lines.append(Line(rows.with_columns(layer=pl.col("probe_layer")), every | style))

        def finish(axes: Axes) -> None:
            self._draw_permuted(axes, table)
            mark_reference(axes, {dataset: self.reference_layers.get(dataset, ())}, dataset_styles((dataset,)))

        title = f"{display_name(dataset)}, {rule_title(rule)}"
        return Panel(title, lines, "" if table.height else "too few items", levels, finish=finish)

    def _draw_permuted(self, axes: Axes, table: pl.DataFrame) -> None:
        permuted = select(table, quantity=PERMUTED).filter(pl.col("probe_layer").is_not_null())
        kinds = _kinds(self.data)
        for row in permuted.to_dicts():
            place = kinds.index(row["variant"] or "")
            x = row["probe_layer"] + 0.012 * self.n_layers * (place - (len(kinds) - 1) / 2) * 2
            found = estimate_of(row)
            axes.plot([x, x], [found.ci_low, found.ci_high], color=CONTROL_GREY, linewidth=2.6, alpha=0.55, zorder=2.4)
            axes.plot([x], [found.value], zorder=2.6, **_permuted_style(place))

    def _handles(self) -> list[Line2D]:
        there = set(self.data["quantity"])
        entries = [*LINES.items(), *LEVELS.items()]
        handles = [Line2D([], [], label=words, **style) for quantity, (words, style) in entries if quantity in there]
        if PERMUTED in there:
            for place, kind in enumerate(_kinds(self.data)):
                label = f"permuted {kind}" if kind else "pathways permuted"
                handles.append(Line2D([], [], label=label, **_permuted_style(place)))
        return [*handles, *([reference_handle()] if self.reference_layers else [])]


def _scores_table(findings: Findings, table: pl.DataFrame) -> Table:
    """At l*, below it and at the best layer, beside what needs no probe of the pathway."""
    rows = []
    for dataset in datasets_in(findings, table):
        for rule in rules_in(select(table, dataset=dataset)):
            mine = select(table, dataset=dataset, assignment=rule)
            for quantity, words in SCORES.items():
                found = [(name, select(mine, quantity=name)) for name in (quantity, f"{quantity}_within_truth")]
                if any(rows_here.height for _, rows_here in found):
                    cells = [cell for _, rows_here in found for cell in _score_cells(rows_here)]
                    rows.append((display_name(dataset), rule_name(rule), words, *cells))
    head = ("dataset", "rule", "what predicts", "AUC", "p", "items", "AUC within truth", "p", "items")
    return Table(head, tuple(rows), 3)


def _score_cells(rows: pl.DataFrame) -> tuple[str, ...]:
    """The best row: of a quantity per layer the best layer, of any other the only one."""
    if not rows.height:
        return (NOTHING, NOTHING, NOTHING)
    row = rows.sort("value", descending=True).row(0, named=True)
    where = f" at layer {row['probe_layer']}" if row["quantity"] in LINES else ""
    return (estimate(estimate_of(row), 3) + where, p_value_cell(row["p_value"]), count(row["n"]))


def _permuted_table(findings: Findings, table: pl.DataFrame) -> Table:
    permuted = table.filter(pl.col("quantity").is_in([f"{name}_permuted" for name in LINES]))
    permuted = permuted.filter(pl.col("probe_layer").is_not_null())
    rows = []
    for dataset in datasets_in(findings, permuted):
        here = select(permuted, dataset=dataset).sort("assignment", "quantity", "probe_layer", "variant")
        for row in here.to_dicts():
            mine = select(table, dataset=dataset, assignment=row["assignment"], probe_layer=row["probe_layer"])
            quantity = row["quantity"].removesuffix("_permuted")
            real = shown(find(mine, quantity=quantity), lambda e: estimate(e, 3))
            about = (display_name(dataset), rule_name(row["assignment"]), LINES[quantity][0], row["variant"] or "–")
            rows.append((*about, str(row["probe_layer"]), real, estimate(estimate_of(row), 3)))
    head = ("dataset", "rule", "AUC of", "permuted", "layer", "AUC", "permuted: mean [95 % range]")
    return Table(head, tuple(rows), 4)


def _kinds(table: pl.DataFrame) -> list[str]:
    """The ways to permute, "" for one without a name."""
    rows = select(table, quantity=PERMUTED)
    return present(rows, "variant") or [""]


def _permuted_style(place: int) -> dict[str, Any]:
    marker = "vD^<>"[place % 5]
    return {"color": CONTROL_GREY, "marker": marker, "markersize": 4.2, "linestyle": "none", "markeredgewidth": 0.0}


SECTION = SectionSpec(
    slug="self-awareness",
    title="Self-awareness",
    rows=lambda findings: select(statistics(findings, "self-awareness"), truth="all"),
    text=(
        "Does the model's untouched state already tell which pathway an answer takes? A linear probe predicts "
        "Q-Anchored against A-Anchored from clean states, cross-fitted as all probes here.",
        "Under a rule that sorts by label, a probe that knows the truth knows the pathway too. So compare with the "
        "label alone, and read the AUC within true and within false answers: what is left there is more than the "
        "label. The pathway was assigned at l*; “below” is the layer under the lowest one that assigned any item, "
        "which has not seen the assigning state.",
        "The best layer is picked after the fact and flatters itself. p is the share of permutations that reach the "
        "value, on the layers that were fitted again with permuted pathways: an AUC within their range shows nothing.",
    ),
    charts=(SelfAwarenessChart,),
    tables=(
        ("", _scores_table),
        ("Pathways permuted", _permuted_table),
    ),
)
