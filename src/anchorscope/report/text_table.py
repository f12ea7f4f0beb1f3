"""A table of text, and cells that compare the two pathways: both groups, their difference, how sure it is."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import polars as pl

from anchorscope.report.experiments.experiment_rows import find, select
from anchorscope.report.palette import A_ANCHORED, Q_ANCHORED
from anchorscope.report.wording import count, number
from anchorscope.stats.estimate import Estimate


@dataclass(frozen=True)
class Table:
    """A table of text."""

    head: tuple[str, ...]
    """Column titles."""
    rows: tuple[tuple[str, ...], ...]
    """Cells, row by row."""
    text_columns: int = 1
    """The first columns that are words, set to the left; the others are numbers."""


NOTHING = "–"
"""In a cell that has no number; the reason stands under "Not available" or in the text."""

GROUP_HEAD = ("Q-Anchored", "items", "A-Anchored", "items", "Q − A", "p", "d")

Show = Callable[[Estimate | None], str]


def group_cells(rows: pl.DataFrame, quantity: str, show: Show) -> tuple[str, ...]:
    """A quantity in both groups and the difference; `rows` hold one dataset, rule, variant and truth."""
    cells: list[str] = []
    for group in (Q_ANCHORED, A_ANCHORED):
        found = find(rows, quantity=quantity, group=group)
        cells += [shown(found, show), count(found.n) if found else NOTHING]
    return (*cells, *difference_cells(rows, quantity, show))


def difference_cells(rows: pl.DataFrame, quantity: str, show: Show) -> tuple[str, ...]:
    """The difference Q − A with its p-value and its effect size."""
    gap = select(rows, quantity=f"{quantity}_difference")
    if not gap.height:
        return (NOTHING, NOTHING, NOTHING)
    row = gap.row(0, named=True)
    return (shown(find(gap), show), p_value_cell(row["p_value"], row["q_value"]), plain(row["effect_size"], 2))


def shown(found: Estimate | None, show: Show) -> str:
    """A number in a cell, or a dash."""
    return NOTHING if found is None else show(found)


def p_value_cell(p: float | None, q: float | None = None) -> str:
    """A p-value; the one with the false discovery rate controlled where there is one."""
    value = p if q is None or math.isnan(q) else q
    if value is None or math.isnan(value):
        return NOTHING
    return "< 0.001" if value < 0.001 else number(value, 3)


def plain(value: float | None, digits: int) -> str:
    """A number without an interval."""
    return NOTHING if value is None or math.isnan(value) else number(value, digits)
