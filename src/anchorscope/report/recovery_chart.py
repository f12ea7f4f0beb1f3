"""How well experiments find pathways that were planted: the calibration of the instrument.

The table has a row per experiment, rule or variant, truth and quantity. What counts is the AUC within true and within
false answers: an experiment that only knows the label reaches a high AUC over all answers wherever pathway and label
go together, and none within them.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar, final

import polars as pl
from matplotlib.figure import Figure

from anchorscope.report.charts.display import Display
from anchorscope.report.charts.forest import Mark, draw_forest
from anchorscope.report.charts.layout import Grid, Legend, canvas, empty_panel
from anchorscope.report.result_rows import TRUTHS, find, present, row_estimate, select
from anchorscope.report.wording import NOTHING, Table, count, estimate, shown

RECOVERY_SCHEMA: dict[str, type[pl.DataType]] = {
    "experiment": pl.String,
    "rule_or_variant": pl.String,
    "truth": pl.String,
    "quantity": pl.String,
    "value": pl.Float64,
    "ci_low": pl.Float64,
    "ci_high": pl.Float64,
    "n": pl.Int64,
    "method": pl.String,
}
"""Columns of the recovery table."""
_MARK = {"color": "#0072b2", "marker": "o", "markersize": 4.6, "markeredgewidth": 0.0, "linewidth": 1.5}
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#9467bd", "#8c564b")


@final
@dataclass(frozen=True)
class RecoveryChart(Display):
    """AUC for the planted pathway of every experiment and rule: all answers, true ones, false ones."""

    title: str

    name: ClassVar[str] = "recovery"

    @classmethod
    def from_table(cls, table: pl.DataFrame, title: str) -> "RecoveryChart":
        """Choose the areas under the curve."""
        data = table.filter((pl.col("quantity") == "auc") & pl.col("value").is_finite())
        data = data.with_columns(pl.col("truth").fill_null("all"))
        notes = (
            "AUC of an experiment's score for items whose truth was planted in the question, against those where it "
            "was planted in the answer; 0.5 is guessing, 1 perfect, below 0.5 the wrong way round. Lines: 95% "
            "intervals.",
        )
        return cls(data, notes, title)

    def draw(self) -> Figure:
        """A line per experiment and rule, a panel for all, true and false answers."""
        lines = _lines(self.data)
        heights = [0.4 + 0.235 * max(3, len(lines))]
        longest = max((len(line_name(*line)) for line in lines), default=0)
        grid = Grid([2.35] * 3, heights, labels=max(0.3, 0.082 * longest - 0.5), gap_x=0.2)
        page = canvas(self.title, grid, Legend([], 1, self.notes))
        experiments = present(self.data, "experiment")
        for place, (axes, (truth, words)) in enumerate(zip(page.axes[0], TRUTHS.items(), strict=True)):
            rows = select(self.data, truth=truth)
            marks = []
            for row in rows.to_dicts():
                colour = _COLOURS[experiments.index(row["experiment"]) % len(_COLOURS)]
                line = lines.index((row["experiment"], row["rule_or_variant"]))
                marks.append(Mark(line, 0.0, row_estimate(row), _MARK | {"color": colour}))
            labels = [line_name(*line) for line in lines] if place == 0 else [""] * len(lines)
            draw_forest(axes, labels, marks, null=0.5)
            for number, ((before, _), (after, _)) in enumerate(pairwise(lines)):
                if before != after:
                    axes.axhline(number + 0.5, color="#b8b8b8", linewidth=0.8)
            axes.set_xlim(-0.02, 1.04)
            axes.set_xticks([0.0, 0.25, 0.5, 0.75, 1.0], ["0", "", "0.5", "", "1"])
            axes.set_title(words)
            axes.set_xlabel("AUC")
            if not marks:
                empty_panel(axes, "not available")
        return page.figure


def recovery_table(table: pl.DataFrame) -> Table:
    """AUC for the planted pathway: all answers, true ones, false ones."""
    areas = table.filter((pl.col("quantity") == "auc") & pl.col("value").is_finite())
    rows = []
    for experiment, rule in _lines(areas):
        mine = _of(areas, experiment, rule)
        found = [find(mine, truth=truth) for truth in TRUTHS]
        first = next(one for one in found if one is not None)
        cells = (*(shown(one, lambda e: estimate(e, 3)) for one in found), count(first.n))
        rows.append((experiment, rule or NOTHING, *cells))
    head = ("experiment", "rule or variant", "AUC, all", "within true", "within false", "items")
    return Table(head, tuple(rows), 2)


def other_recovery_table(table: pl.DataFrame) -> Table:
    """All other quantities, one row each."""
    others = table.filter((pl.col("quantity") != "auc") & pl.col("value").is_finite())
    rows = []
    for experiment, rule in _lines(others):
        mine = _of(others, experiment, rule)
        for quantity in present(mine, "quantity"):
            found = [find(mine, quantity=quantity, truth=truth) for truth in TRUTHS]
            first = next(one for one in found if one is not None)
            cells = (*(shown(one, lambda e: estimate(e, 3)) for one in found), count(first.n))
            rows.append((experiment, rule or NOTHING, quantity.replace("_", " "), *cells))
    head = ("experiment", "rule or variant", "quantity", "all", "within true", "within false", "items")
    return Table(head, tuple(rows), 3)


def line_name(experiment: str, rule: str | None) -> str:
    """The label of a line."""
    return f"{experiment}: {rule}" if rule else experiment


def _lines(table: pl.DataFrame) -> list[tuple[str, str | None]]:
    """Experiments with their rules, each experiment's together, in the order in which they come."""
    pairs = table.select("experiment", "rule_or_variant").unique(maintain_order=True)
    order = present(pairs, "experiment")
    return sorted(pairs.iter_rows(), key=lambda pair: order.index(pair[0]))


def _of(table: pl.DataFrame, experiment: str, rule: str | None) -> pl.DataFrame:
    return select(table, experiment=experiment, rule_or_variant=rule)
