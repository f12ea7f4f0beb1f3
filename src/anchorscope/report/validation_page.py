"""The page of the calibration: how well experiments find pathways that were planted, and what each rule calls them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, final

import numpy as np
import polars as pl
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from anchorscope.progress import Progress, Silent
from anchorscope.report.charts.display import Display, save_all
from anchorscope.report.charts.layout import Grid, Legend, canvas, empty_panel, rows_that_fit
from anchorscope.report.page_sections import Section, SectionFigure, SectionsPage, Tables, filled, write_sections_page
from anchorscope.report.palette import A_ANCHORED, INK, Q_ANCHORED
from anchorscope.report.recovery_chart import RecoveryChart, other_recovery_table, recovery_table
from anchorscope.report.result_rows import TRUTHS, present, select
from anchorscope.report.wording import Table, count, number

CONFUSION_SCHEMA: dict[str, type[pl.DataType]] = {
    "rule": pl.String,
    "truth": pl.String,
    "planted": pl.String,
    "called": pl.String,
    "n": pl.Int64,
}
"""Columns of the confusion counts: `truth` is all, true or false; one row per cell, zeros may be left out."""
PLANTED = ("question", "answer", "both")
CALLED = (Q_ANCHORED, A_ANCHORED, "misclassified")


@final
@dataclass(frozen=True)
class ConfusionChart(Display):
    """One matrix per rule and truth: counts, coloured by the share of the planted pathway."""

    title: str

    name: ClassVar[str] = "confusion"

    @classmethod
    def from_counts(cls, counts: pl.DataFrame, title: str) -> "ConfusionChart":
        """Take the counts, all answers added up where they are not given."""
        note = (
            "Rows: where the truth was planted. Columns: what the rule called it. Numbers: items, and their share of "
            "the row. Where both sources say the same, neither call is wrong."
        )
        return cls(with_totals(counts), (note,), title)

    def draw(self) -> Figure:
        """A row per rule, a column for all, true and false answers."""
        rules = present(self.data, "rule")
        grid = Grid([2.5] * 3, rows_that_fit(len(rules), 1.35, 0.5), labels=0.25, gap_x=0.25, gap_y=0.5)
        page = canvas(self.title, grid, Legend([], 1, self.notes))
        for place, (panels, rule) in enumerate(zip(page.axes, rules, strict=True)):
            for axes, (truth, words) in zip(panels, TRUTHS.items(), strict=True):
                self._draw_panel(axes, _matrix(select(self.data, rule=rule, truth=truth)))
                axes.set_title(f"{rule}: {words}", fontsize=9)
                axes.set_yticks(range(len(PLANTED)), PLANTED if truth == "all" else [""] * len(PLANTED))
                last = place == len(rules) - 1
                axes.set_xticks(range(len(CALLED)), CALLED if last else [""] * len(CALLED), fontsize=7.6)
                axes.tick_params(length=0)
        return page.figure

    @staticmethod
    def _draw_panel(axes: Axes, counts: np.ndarray) -> None:
        shares = _shares(counts)
        axes.imshow(np.nan_to_num(shares), cmap=colormaps["Blues"], vmin=0.0, vmax=1.0, aspect="auto")
        axes.grid(False)
        for spine in axes.spines.values():
            spine.set_visible(False)
        if not counts.sum():
            empty_panel(axes, "no items")
            return
        for row, column in np.ndindex(counts.shape):
            share = float(shares[row, column])
            words = f"{counts[row, column]}" + ("" if np.isnan(share) else f"\n{number(100 * share, 0)} %")
            axes.text(
                column,
                row,
                words,
                ha="center",
                va="center",
                fontsize=7.4,
                linespacing=1.1,
                color="white" if share > 0.6 else INK,
            )


def confusion_tables(counts: pl.DataFrame) -> Tables:
    """One table per rule; rows are the planted pathways, split by truth."""
    counts = with_totals(counts)
    return tuple((f"Rule: {rule}", _rule_table(select(counts, rule=rule))) for rule in present(counts, "rule"))


def _rule_table(counts: pl.DataFrame) -> Table:
    rows = []
    for truth, words in TRUTHS.items():
        matrix = _matrix(select(counts, truth=truth))
        shares = _shares(matrix)
        for place, planted in enumerate(PLANTED):
            if matrix[place].sum():
                cells = [
                    f"{count(int(n))} ({number(100 * share, 0)}%)"
                    for n, share in zip(matrix[place], shares[place], strict=True)
                ]
                rows.append((words, planted, *cells, count(int(matrix[place].sum()))))
    return Table(("answers", "planted in", *CALLED, "items"), tuple(rows), 2)


def with_totals(counts: pl.DataFrame) -> pl.DataFrame:
    """The counts, with all answers added up for rules that have only true and false ones."""
    given = select(counts, truth="all")["rule"].unique().to_list()
    split = counts.filter(pl.col("truth").is_in(["true", "false"]) & ~pl.col("rule").is_in(given))
    keys = ["rule", "planted", "called"]
    added = split.group_by(keys, maintain_order=True).agg(pl.col("n").sum()).with_columns(truth=pl.lit("all"))
    return pl.concat([counts, added.select(counts.columns)], how="vertical_relaxed")


def _matrix(counts: pl.DataFrame) -> np.ndarray:
    """Counts [planted, called]."""
    matrix = np.zeros((len(PLANTED), len(CALLED)), dtype=np.int64)
    for planted, called, n in counts.select("planted", "called", "n").iter_rows():
        matrix[PLANTED.index(planted), CALLED.index(called)] += n
    return matrix


def _shares(matrix: np.ndarray) -> np.ndarray:
    """Shares of each row; NaN for a row without items."""
    sums = matrix.sum(axis=1, keepdims=True)
    return np.divide(matrix, sums, out=np.full(matrix.shape, np.nan), where=sums > 0)


HOW_TO_READ = (
    "The model of this page was trained on a made-up language. For some of its items the truth of an answer can only "
    "be known from the question, for others only from the answer, for some from both. So the pathway of every item "
    "is known, and each experiment can be marked. Truth and pathway are crossed: with equal shares, knowing one says "
    "nothing of the other.",
    "AUC is the chance that an item planted in the question gets a higher score than one planted in the answer: 1 is "
    "perfect, 0.5 guessing. The columns within true and within false answers decide: a rule that only follows the "
    "label does well on neither. The matrices show what a rule calls the items, planted pathway by planted pathway.",
    "What holds here holds for a small model with clean pathways. A rule that fails here should not be trusted "
    "elsewhere; one that succeeds has passed an easy test.",
)


@dataclass(frozen=True)
class Validation:
    """What the calibration found."""

    title: str
    summary: Sequence[str]
    """Sentences from the numbers."""
    recovery: pl.DataFrame
    """Columns of `RECOVERY_SCHEMA`."""
    confusion: pl.DataFrame
    """Columns of `CONFUSION_SCHEMA`."""
    facts: Mapping[str, str] = field(default_factory=dict)
    """What was run, in display order."""
    command: str = ""
    """The command that repeats it."""
    sections: Sequence[Section] = ()
    """Further parts, shown after the matrices."""


def write_validation(validation: Validation, out: Path, progress: Progress | None = None) -> None:
    """Write figures/recovery and figures/confusion, validation.html and validation.md."""
    out.mkdir(parents=True, exist_ok=True)
    listener = progress or Silent()
    charts = [
        RecoveryChart.from_table(validation.recovery, f"{validation.title}: recovery"),
        ConfusionChart.from_counts(validation.confusion, f"{validation.title}: planted and called"),
    ]
    listener.start("figures", len(charts))
    save_all(charts, out, listener)
    listener.finish()
    recovery, others = recovery_table(validation.recovery), other_recovery_table(validation.recovery)
    sections = [
        Section("how", "How to read it", HOW_TO_READ),
        Section(
            "recovery",
            "Recovery",
            (),
            filled(("", recovery), ("Other measures", others)),
            (SectionFigure("recovery", "AUC for the planted pathway by experiment", "The line at 0.5 is guessing."),),
        ),
        Section(
            "confusion",
            "Planted and called",
            (),
            confusion_tables(validation.confusion),
            (SectionFigure("confusion", "Planted against called pathways", "Darker: a larger share of the row."),),
        ),
        *validation.sections,
        *([Section("run", "What was run", facts=validation.facts)] if validation.facts else []),
    ]
    title = f"{validation.title}: are planted pathways found?"
    page = SectionsPage("anchorscope calibration", title, validation.summary, sections, validation.command)
    write_sections_page(page, out, "validation")
