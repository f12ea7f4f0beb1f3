"""Do the ways to take the question away call the same items Q-Anchored?

Two rules that both follow the label agree without knowing anything of pathways. So every matrix is drawn for all
answers and again within the true and within the false ones, where the label cannot help.
"""

from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from anchorscope.catalogue import METHODS
from anchorscope.report.assignment_rules import rule_name
from anchorscope.report.charts.heatmap import draw_heat, text_colour
from anchorscope.report.charts.layout import Grid, Legend, canvas, empty_panel
from anchorscope.report.experiments.experiment_rows import (
    TRUTHS,
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
from anchorscope.report.palette import Q_ANCHORED, display_name
from anchorscope.report.wording import NOTHING, Table, count, estimate, number, p_value_cell, percent, shown

_COLUMNS = ("dataset", "assignment", "truth", "variant", "against", "value", "ci_low", "ci_high", "n", "p_value",
            "q_value")  # fmt: skip
_CELL = 0.44
_ON_HATCH = {"facecolor": "white", "edgecolor": "none", "alpha": 0.75, "pad": 0.6}


def method_name(method: str) -> str:
    """A method in a few letters; what stands in brackets is said in the text."""
    return method.split(" (")[0]


@final
@dataclass(frozen=True)
class AgreementChart(ExperimentChart):
    """Kappa of every pair of methods."""

    name: ClassVar[str] = "agreement"

    alt: ClassVar[str] = "Kappa between every pair of methods, for all, true and false answers"
    caption: ClassVar[str] = "Each pair once, below the diagonal."

    @classmethod
    def rows(cls, findings: Findings) -> pl.DataFrame:
        """The kappas."""
        rows = statistics(findings, "agreement", "kappa")
        return rows.with_columns(pl.col("truth").fill_null("all")).select(_COLUMNS)

    @classmethod
    def explained(cls, findings: Findings) -> tuple[str, ...]:
        """What kappa is, and what the label does to it."""
        return (
            "Cohen's kappa of being called Q-Anchored: 0 is chance, 1 full agreement; hatched where its 95 % interval "
            "holds zero. "
            "Agreement that comes from the label alone vanishes within true and within false answers.",
        )

    def draw(self) -> Figure:
        """A row per dataset and rule, a column for all, true and false answers."""
        methods = _methods(self.data)
        down, across = methods[1:], methods[:-1]  # each pair once: a method agrees with itself
        lines = [(dataset, rule) for dataset in self.datasets for rule in rules_in(select(self.data, dataset=dataset))]
        height = max(1.2, min(_CELL * len(down), 15.0 / max(1, len(lines)) - 0.6))
        width = max(2.0, 1.2 * _CELL * len(across))
        grid = Grid([width] * 3, [height] * len(lines), labels=0.45, gap_x=0.2, gap_y=0.5, foot=0.7)
        page = canvas(f"{self.model}: do the methods agree?", grid, Legend([], 1, self.notes))
        for place, (panels, (dataset, rule)) in enumerate(zip(page.axes, lines, strict=True)):
            for axes, (truth, words) in zip(panels, TRUTHS.items(), strict=True):
                self._draw_panel(axes, select(self.data, dataset=dataset, assignment=rule, truth=truth), methods)
                axes.set_title(f"{display_name(dataset)}, {rule}: {words}", fontsize=8.6)
                axes.set_yticks(range(len(down)), [method_name(name) if truth == "all" else "" for name in down])
                last = place == len(lines) - 1
                axes.set_xticks(range(len(across)), [method_name(name) if last else "" for name in across])
                axes.tick_params(axis="x", rotation=40, length=0)
                axes.tick_params(axis="y", length=0)
                for label in axes.get_xticklabels():
                    label.set(ha="right", rotation_mode="anchor")
        return page.figure

    @staticmethod
    def _draw_panel(axes: Axes, table: pl.DataFrame, methods: list[str]) -> None:
        values = np.full((len(methods) - 1,) * 2, np.nan)
        not_significant = np.full(values.shape, False)
        for row in table.to_dicts():
            low, high = sorted((methods.index(row["variant"]), methods.index(row["against"])))
            values[high - 1, low] = row["value"]
            found = estimate_of(row | {"method": ""})
            not_significant[high - 1, low] = not (found.ci_low > 0 or found.ci_high < 0)
        draw_heat(axes, values, not_significant, 1.0, signs=False)
        axes.set_facecolor("none")
        axes.set_ylim(len(methods) - 1.5, -0.5)
        for spine in axes.spines.values():
            spine.set_visible(False)
        if not table.height:
            empty_panel(axes, "too few items")
        for row, column in np.argwhere(np.isfinite(values)):
            value = float(values[row, column])
            box = _ON_HATCH if not_significant[row, column] else None
            axes.text(column, row, number(value, 2), ha="center", va="center", color=text_colour(value, 1.0), bbox=box,
                      fontsize=7.6)  # fmt: skip


def _methods_table(findings: Findings, table: pl.DataFrame) -> Table:
    rows = []
    single = table.filter(pl.col("quantity").is_in(["q_share", "true_share", "auc"]))
    for dataset in datasets_in(findings, single):
        for rule in rules_in(single):
            for method in present(select(single, dataset=dataset, assignment=rule), "variant", METHODS):
                mine = select(single, dataset=dataset, assignment=rule, variant=method)
                share = find(mine, quantity="q_share", truth="all")
                split = [find(mine, quantity="q_share", truth=truth) for truth in ("true", "false")]
                true = find(mine, quantity="true_share", group=Q_ANCHORED) or find(mine, quantity="true_share")
                auc = [find(mine, quantity="auc", truth=truth) for truth in ("all", "true", "false")]
                cells = [shown(one, percent) for one in (share, *split, true)] + [shown(one, estimate) for one in auc]
                items = count(share.n) if share else NOTHING
                rows.append((display_name(dataset), rule_name(rule), method, *cells, items))
    head = ("dataset", "rule", "method", "Q share", "of true answers", "of false answers", "true among Q")
    return Table((*head, "AUC", "AUC, true", "AUC, false", "items"), tuple(rows), 3)


def _pairs_table(findings: Findings, table: pl.DataFrame) -> Table:
    """Pairs with the knockout; all pairs where it is not among the methods."""
    pairs = select(table, quantity="kappa")
    with_knockout = pairs.filter((pl.col("variant") == METHODS[0]) | (pl.col("against") == METHODS[0]))
    pairs, rows = with_knockout if with_knockout.height else pairs, []
    for dataset in datasets_in(findings, pairs):
        for rule in rules_in(pairs):
            here = select(table, dataset=dataset, assignment=rule)
            chosen = select(pairs, dataset=dataset, assignment=rule).select("variant", "against")
            for first, second in chosen.unique(maintain_order=True).iter_rows():
                mine = select(here, variant=first, against=second)
                kappas = [find(mine, quantity="kappa", truth=truth) for truth in TRUTHS]
                all_answers = select(mine, truth="all")
                row = select(all_answers, quantity="kappa")
                p = p_value_cell(*row.select("p_value", "q_value").row(0)) if row.height else NOTHING
                numbers = [find(all_answers, quantity=f"n_{name}") for name in _TABLE]
                counts = [number(one.value, 0) if one else NOTHING for one in numbers]
                about = (display_name(dataset), rule_name(rule), f"{method_name(first)} · {method_name(second)}")
                rows.append((*about, *(shown(one, estimate) for one in kappas), p, *counts))
    head = ("dataset", "rule", "pair", "kappa", "within true", "within false", "q", "both Q", "first only")
    return Table((*head, "second only", "neither"), tuple(rows), 3)


_TABLE = ("both", "first_only", "second_only", "neither")


def _methods(table: pl.DataFrame) -> list[str]:
    """The methods, first those that cut, then the others as they come."""
    both = pl.concat([table["variant"], table["against"]]).drop_nulls().unique(maintain_order=True).to_list()
    return [*(name for name in METHODS if name in both), *(name for name in both if name not in METHODS)]


SECTION = SectionSpec(
    slug="agreement",
    title="Agreement",
    rows=lambda findings: statistics(findings, "agreement"),
    text=(
        "Do cutting, patching, dropping the question and saliency call the same items Q-Anchored? Each method sorts "
        "the items by its own flips at l*; saliency has no flips, so it calls as many items as the knockout does, "
        "those with the largest share.",
        "Kappa is agreement beyond chance. Methods that all push verdicts towards “false” agree on true answers "
        "without any pathway, so read the panels within true and within false answers. The AUC needs no threshold: "
        "how well a method's own score finds the items that the knockout calls Q-Anchored.",
    ),
    charts=(AgreementChart,),
    tables=(
        ("What each method calls Q-Anchored", _methods_table),
        ("Pairs with the knockout; all pairs are in the figure and in experiments.csv", _pairs_table),
    ),
)
