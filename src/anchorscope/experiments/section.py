"""One experiment's part of the page: its answer in a sentence with a verdict, then text, a figure and a table.

A table has a line for every combination of dataset and keys that has rows; a column is its head and a function from the
line's rows to a cell.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import polars as pl

from anchorscope.catalogue import EXPERIMENTS
from anchorscope.report.findings import (
    Findings,
    datasets_in,
    first_row,
    present,
    row_estimate,
    select,
    statistics,
)
from anchorscope.report.page import Section, SectionFigure, filled
from anchorscope.report.palette import GROUPS, display_name
from anchorscope.report.panel_figure import ChartSpec
from anchorscope.report.verdicts import Verdict, all_of
from anchorscope.report.wording import (
    NOTHING,
    Show,
    Table,
    count,
    estimate,
    p_value_cell,
)
from anchorscope.stats.curves import FEWEST_GROUPS
from anchorscope.stats.estimate import Estimate


@dataclass(frozen=True)
class SectionSpec:
    """What an experiment puts on the page, whatever the run."""

    slug: str
    title: str
    asks: str
    """What is asked, and how; about 25 words."""
    careful: str
    """What can go wrong in reading it; about 25 words."""
    answer: Answer
    charts: tuple[ChartSpec, ...] = ()
    tables: tuple[TableSpec, ...] = ()
    """The plain-text report shows the first one that has lines."""
    docs: str = ""
    """Below docs/; empty for the page that the catalogue names for the experiment of this slug."""
    rows: Callable[[Findings], pl.DataFrame] | None = None
    """The experiment's rows of a run, by default all its statistics; without rows and figure there is no section."""

    def section(self, findings: Findings) -> Section | None:
        """The section of a run; None where the experiment was not made."""
        rows = (
            statistics(findings, self.slug)
            if self.rows is None
            else self.rows(findings)
        )
        figures = tuple(
            SectionFigure(chart.name, chart.alt, chart.caption)
            for chart in self.charts
            if chart.was_made(findings)
        )
        if not rows.height and not figures:
            return None
        answer, verdict = self.answer.give(findings, rows)
        tables = filled(
            *((spec.title, spec.table(findings, rows)) for spec in self.tables)
        )
        docs = self.docs or EXPERIMENTS[self.slug].docs
        return Section(
            self.slug,
            self.title,
            (self.asks, self.careful),
            tables,
            figures,
            answer,
            verdict,
            docs,
        )


FIGURE_COLUMNS = (
    *("dataset", "quantity", "variant", "group", "truth", "layer", "probe_layer"),
    *("value", "ci_low", "ci_high", "n", "p_value", "q_value"),
)
"""What the CSV file beside a figure has of each row."""
HALF = 0.5
"""A part that does at least half of the whole does most of it. Also the AUC of guessing."""
RELIABLE = 0.7
"""Below it single items shouldn't be sorted by a measure."""
SMALL_GAP = 0.05
"""Smaller differences of two shares don't matter."""

_ENDS = ("ci_low", "ci_high")
_MOST_SHOWN = 2  # datasets whose numbers stand in the sentence, of those that decide it


class Said(NamedTuple):
    """What one dataset says."""

    verdict: Verdict
    numbers: str
    """With interval and n."""


@dataclass(frozen=True)
class Answer:
    """A claim in three sentences, without their full stops, and how a dataset decides between them."""

    holds: str
    fails: str
    undecided: str
    of: Callable[[pl.DataFrame], Said | None]
    """From one dataset's rows; None if its numbers are missing."""

    def give(self, findings: Findings, rows: pl.DataFrame) -> tuple[str, Verdict]:
        """The sentence over all datasets, and its verdict: it holds only if it holds for each."""
        few = (
            pl.col("n") < FEWEST_GROUPS
        )  # a bootstrap of so few has no honest interval, and decides nothing
        rows = rows.with_columns(
            pl.when(few).then(None).otherwise(pl.col(end)).alias(end) for end in _ENDS
        )
        answers = {
            name: answer
            for name in datasets_in(findings, rows)
            if (answer := self.of(select(rows, dataset=name))) is not None
        }
        verdict = all_of([answer.verdict for answer in answers.values()])
        words: Mapping[Verdict, str] = {
            "yes": self.holds,
            "no": self.fails,
            "inconclusive": self.undecided,
        }
        if not answers:
            return f"{self.undecided}: this run has no such number.", "inconclusive"
        decide = {
            name: answer.numbers
            for name, answer in answers.items()
            if answer.verdict == verdict
        }
        numbers = [
            text if len(findings.datasets) == 1 else f"{display_name(name)}: {text}"
            for name, text in decide.items()
        ][:_MOST_SHOWN]
        more = len(answers) - len(numbers)
        if more:
            numbers.append(f"{more} more")
        return f"{words[verdict]} ({'; '.join(numbers)}).", verdict


def whole_percent(share: Estimate | None) -> str:
    """A share in a sentence."""
    return estimate(share, 0, 100.0, "%")


def three_digits(area: Estimate | None) -> str:
    return estimate(area, 3)


def number(
    measured: Estimate | None, verdict: Verdict, show: Show, what: str = ""
) -> Said | None:
    """One number: what it is, its interval and its n."""
    if measured is None:
        return None
    return Said(verdict, f"{what} {show(measured)}, n = {count(measured.n)}".strip())


Rows = pl.DataFrame
Cell = Callable[[Rows], str]
Column = tuple[str, Cell]
ITEMS = "items"
"""The head of a column of counts."""


@dataclass(frozen=True)
class Key:
    """What lines are about: a line for every value of a column."""

    column: str
    head: str
    words: Mapping[str, str] = field(default_factory=dict)
    """Value → its words, in the order of the lines; others keep their names and come last."""


GROUP = Key("group", "group", {name: name for name in GROUPS})


@dataclass(frozen=True)
class TableSpec:
    title: str
    keys: Sequence[Key]
    """What the lines are about besides the dataset, which is always first."""
    columns: Sequence[Column]
    rows: Callable[[Rows], Rows] = lambda rows: rows
    """Which of the section's rows the lines are made of."""

    def table(self, findings: Findings, rows: Rows) -> Table:
        """The table of a run; a line without any number is left out."""
        keys = (
            Key(
                "dataset",
                "dataset",
                {name: display_name(name) for name in findings.datasets},
            ),
            *self.keys,
        )
        lines = []
        for words, mine in _lines(self.rows(rows), keys):
            cells = [cell(mine) for _, cell in self.columns]
            if {
                cell
                for cell, (head, _) in zip(cells, self.columns, strict=True)
                if head != ITEMS
            } != {NOTHING}:
                lines.append((*words, *cells))
        return Table(
            (*(key.head for key in keys), *(head for head, _ in self.columns)),
            tuple(lines),
            len(keys),
        )


def _lines(rows: Rows, keys: Sequence[Key]) -> Iterator[tuple[tuple[str, ...], Rows]]:
    """Every combination of the keys that has rows: its words, and the rows."""
    if not keys:
        yield (), rows
        return
    first, *others = keys
    for value in present(rows, first.column, tuple(first.words)):
        for words, mine in _lines(select(rows, **{first.column: value}), others):
            yield (first.words.get(value, value), *words), mine


def value(head: str, show: Show | Mapping[str, Show], /, **where: Any) -> Column:
    """A number with its interval, of the first row that fits; `show` may depend on the row's measure."""
    return head, _of_row(
        lambda row: (show[row["measure"]] if isinstance(show, Mapping) else show)(
            row_estimate(row)
        ),
        where,
    )


def items(head: str = ITEMS, /, **where: Any) -> Column:
    """How many items the first row that fits rests on."""
    return head, _of_row(lambda row: count(row["n"]), where)


def p_value(head: str = "p", /, **where: Any) -> Column:
    """Its p-value, with the false discovery rate controlled where there is one."""
    return head, _of_row(
        lambda row: p_value_cell(row["p_value"], row["q_value"]), where
    )


def _of_row(say: Callable[[Mapping[str, Any]], str], where: Mapping[str, Any]) -> Cell:
    def cell(rows: Rows) -> str:
        row = first_row(rows, **where)
        return NOTHING if row is None else say(row)

    return cell
