"""The table of an experiment, as data: what a line is about, and what stands in its columns.

A line is a dataset, then a rule, a group, a truth, or whatever else the keys name; there is one for every combination
that has rows. A column is its head and a function from the line's rows to a cell; most are made by `value`, `items`,
`p_value` and `both_groups`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from anchorscope.report.assignment_rules import RULES
from anchorscope.report.experiments.experiment_rows import TRUTHS, estimate_of, first_row, present, select
from anchorscope.report.findings import Findings
from anchorscope.report.palette import GROUPS, display_name
from anchorscope.report.wording import NOTHING, Show, Table, count, p_value_cell, plain

Rows = pl.DataFrame
Cell = Callable[[Rows], str]
Column = tuple[str, Cell]
ITEMS = "items"
"""The head of a column that says how many items a line rests on, and is no finding by itself."""


@dataclass(frozen=True)
class Key:
    """What lines are about: a line for every value of a column."""

    column: str
    head: str
    words: Mapping[str, str] = field(default_factory=dict)
    """Value → its words, in the order of the lines; others keep their names and come after them."""

    def say(self, value: str) -> str:
        """A value in words."""
        return self.words.get(value, value)


RULE = Key("assignment", "rule", RULES)
GROUP = Key("group", "group", {name: name for name in GROUPS})
TRUTH = Key("truth", "answers", TRUTHS)


@dataclass(frozen=True)
class TableSpec:
    """A table, whatever the run."""

    title: str
    """The line above it; may be empty."""
    keys: Sequence[Key]
    """What the lines are about besides the dataset, which is always first."""
    columns: Sequence[Column]
    rows: Callable[[Rows], Rows] = lambda rows: rows
    """Which of the section's rows the lines are made of."""

    def table(self, findings: Findings, rows: Rows) -> Table:
        """The table of a run; a line without any number is left out."""
        keys = (Key("dataset", "dataset", {name: display_name(name) for name in findings.datasets}), *self.keys)
        lines = []
        for words, mine in _lines(self.rows(rows), keys):
            cells = [cell(mine) for _, cell in self.columns]
            told = {cell for cell, (head, _) in zip(cells, self.columns, strict=True) if head != ITEMS}
            if told != {NOTHING}:
                lines.append((*words, *cells))
        return Table((*(key.head for key in keys), *(head for head, _ in self.columns)), tuple(lines), len(keys))


def _lines(rows: Rows, keys: Sequence[Key]) -> Iterator[tuple[tuple[str, ...], Rows]]:
    """Every combination of the keys that has rows: its words, and the rows."""
    if not keys:
        yield (), rows
        return
    first, *others = keys
    for value in present(rows, first.column, tuple(first.words)):
        for words, mine in _lines(select(rows, **{first.column: value}), others):
            yield (first.say(value), *words), mine


def value(head: str, show: Show | Mapping[str, Show], /, **where: Any) -> Column:
    """A number with its interval, of the first row that fits; `show` may hang on the row's measure."""
    return head, _of_row(
        lambda row: (show[row["measure"]] if isinstance(show, Mapping) else show)(estimate_of(row)), where
    )


def items(head: str = ITEMS, /, **where: Any) -> Column:
    """How many items the first row that fits rests on."""
    return head, _of_row(lambda row: count(row["n"]), where)


def p_value(head: str = "p", /, **where: Any) -> Column:
    """Its p-value, with the false discovery rate controlled where there is one."""
    return head, _of_row(lambda row: p_value_cell(row["p_value"], row["q_value"]), where)


def both_groups(show: Show | Mapping[str, Show], **where: Any) -> tuple[Column, ...]:
    """A measure in both groups with their items, and the difference."""
    groups = (
        (value(group, show, aspect="", group=group, **where), items(aspect="", group=group, **where))
        for group in GROUPS
    )
    return (*(column for pair in groups for column in pair), *difference(show, **where))


def difference(show: Show | Mapping[str, Show], head: str = "Q − A", **where: Any) -> tuple[Column, ...]:
    """Q − A with its p-value and its effect size."""
    gap = {"aspect": "difference"} | where
    return (value(head, show, **gap), p_value(**gap), ("d", _of_row(lambda row: plain(row["effect_size"], 2), gap)))


def _of_row(say: Callable[[Mapping[str, Any]], str], where: Mapping[str, Any]) -> Cell:
    def cell(rows: Rows) -> str:
        found = first_row(rows, **where)
        return NOTHING if found is None else say(found)

    return cell
