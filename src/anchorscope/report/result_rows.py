"""Find rows of experiments.csv and of the summary. Nothing is filled in: a row that is not there is None."""

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from anchorscope.report.assignment_rules import RULES
from anchorscope.report.findings import Findings, row_estimate
from anchorscope.report.palette import display_name
from anchorscope.stats.estimate import Estimate

TRUTHS = {"all": "all answers", "true": "true answers", "false": "false answers"}
HEADLINE_RULES = ("corrected", "plain")
"""The rule that a section's answer goes by: the first that there is. The plain one sorts partly by label."""
_ASPECT = r"_(difference|within_truth|within_folds|permuted)$"

Wanted = str | int | bool | Sequence[str] | None
"""The value asked for; None asks for null, several values for any of them."""
Where = Mapping[str, Wanted]
"""Column → the value asked for."""


def statistics(findings: Findings, experiment: str, *quantities: str) -> pl.DataFrame:
    """Rows of one experiment at the headline place that have a value; all of its quantities where none is named."""
    here = pl.lit(True)
    for column, value in (("site", findings.site), ("position", findings.position)):
        here &= pl.col(column).is_null() | (pl.col(column) == value)
    wanted = here & (pl.col("experiment") == experiment) & pl.col("dataset").is_in(list(findings.datasets))
    if quantities:
        wanted &= pl.col("quantity").is_in(list(quantities))
    return with_aspects(findings.experiments.filter(wanted & pl.col("value").is_finite()))


def with_aspects(table: pl.DataFrame) -> pl.DataFrame:
    """The rows, with `measure` and `aspect`: "kappa_difference" is the measure kappa in its aspect difference."""
    quantity = pl.col("quantity")
    return table.with_columns(
        pl.col("truth").fill_null("all") if "truth" in table.columns else pl.lit("all").alias("truth"),
        measure=quantity.str.replace(_ASPECT, ""),
        aspect=quantity.str.extract(_ASPECT, 1).fill_null(""),
    )


def interventions(findings: Findings) -> pl.DataFrame:
    """Rows of the summary at the headline place that belong to an intervention and have a value."""
    here = (pl.col("site") == findings.site) & (pl.col("position") == findings.position)
    known = pl.col("dataset").is_in(list(findings.datasets)) & pl.col("value").is_finite()
    return with_aspects(findings.summary.filter(here & known & pl.col("intervention").is_not_null()))


def select(table: pl.DataFrame, **columns: Wanted) -> pl.DataFrame:
    """Rows whose columns are as asked; the truth "all" is also what has no truth at all."""
    fits = pl.lit(True)
    for column, value in columns.items():
        if value is None:
            fits &= pl.col(column).is_null()
        elif column == "truth" and value == "all":
            fits &= pl.col(column).is_null() | (pl.col(column) == "all")
        elif isinstance(value, Sequence) and not isinstance(value, str):
            fits &= pl.col(column).is_in(list(value))
        else:
            fits &= pl.col(column) == value
    return table.filter(fits)


def first_row(table: pl.DataFrame, **columns: Wanted) -> Mapping[str, Any] | None:
    """The first row that `select` would give."""
    rows = select(table, **columns)
    return rows.row(0, named=True) if rows.height else None


def find(table: pl.DataFrame, **columns: Wanted) -> Estimate | None:
    """The first row that fits, as an estimate."""
    row = first_row(table, **columns)
    return None if row is None else row_estimate(row)


def present(table: pl.DataFrame, column: str, order: Sequence[str] = ()) -> list[str]:
    """Values of a column: those of the order first, the others as they come."""
    values = [str(value) for value in table[column].drop_nulls().unique(maintain_order=True)]
    return [*(name for name in order if name in values), *(name for name in values if name not in order)]


def rules_in(table: pl.DataFrame) -> list[str]:
    """The assignment rules that a table has rows of."""
    return present(table, "assignment", tuple(RULES))


def headline(table: pl.DataFrame) -> pl.DataFrame:
    """The rows of the rule that a section's answer goes by."""
    there = rules_in(table)
    rule = next((name for name in (*HEADLINE_RULES, *there) if name in there), None)
    return table if rule is None else select(table, assignment=rule)


def absent_notes(findings: Findings, table: pl.DataFrame) -> tuple[str, ...]:
    """One note that names the datasets without a row."""
    there = set(table["dataset"])
    missing = [display_name(name) for name in findings.datasets if name not in there]
    return (f"Not measured here: {', '.join(missing)}.",) if missing else ()


def datasets_in(findings: Findings, table: pl.DataFrame) -> tuple[str, ...]:
    """The run's datasets that a table has rows of."""
    there = set(table["dataset"])
    return tuple(name for name in findings.datasets if name in there)
