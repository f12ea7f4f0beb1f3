"""The knowledge boundary: do the pathways differ in what the model knows, admits not to know, and is sure of?

In a balanced set half of the answers are true by design. So every number is also weighted by how many answers an item
stands for; the report shows the weighted one and, faintly, the one as drawn.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl
from matplotlib.lines import Line2D

from anchorscope.report.experiments.experiment_rows import find, present, rules_in, select, statistics
from anchorscope.report.experiments.panels import Forest, GroupMarks, Style
from anchorscope.report.experiments.section import SectionSpec
from anchorscope.report.experiments.section_answer import SMALL_GAP, Answer, Said, told, whole_percent
from anchorscope.report.experiments.section_chart import ChartSpec
from anchorscope.report.experiments.section_tables import RULE, Key, TableSpec, both_groups, difference, items, value
from anchorscope.report.findings import Findings
from anchorscope.report.palette import CONTROL_GREY, GROUPS, DatasetStyle
from anchorscope.report.verdicts import Verdict, above, below, between
from anchorscope.report.wording import Show, estimate, percent

WEIGHTED, AS_DRAWN = "weighted", "as drawn"
QUANTITIES: dict[str, tuple[str, Show]] = {
    "accuracy": ("true answers", percent),
    "dont_know_rate": ("says “I don't know”", percent),
    "popularity": ("log10 popularity", estimate),
    "confidence_mean": ("mean log-probability", estimate),
    "confidence_min": ("lowest log-probability", estimate),
}
"""Quantity → its words and how it is written."""
_SHOWS = {name: show for name, (_, show) in QUANTITIES.items()}
_QUANTITY = Key("measure", "quantity", {name: words for name, (words, _) in QUANTITIES.items()})
_COLUMNS = ("dataset", "variant", "assignment", "group", "quantity", "value", "ci_low", "ci_high", "n", "method")
_SMALL: dict[str, Any] = {
    "color": CONTROL_GREY,
    "marker": "o",
    "markersize": 2.6,
    "markerfacecolor": CONTROL_GREY,
    "markeredgecolor": CONTROL_GREY,
    "linewidth": 0.8,
    "linestyle": "none",
}


@dataclass(frozen=True)
class _WeightedMarks(GroupMarks):
    """Both groups, weighted; the numbers as drawn are small and grey beside them."""

    def of(self, row: Mapping[str, Any], colours: DatasetStyle) -> tuple[float, Style] | None:
        offset = -0.22 if row["group"] == GROUPS[0] else 0.22
        weighted = super().of(row, colours)
        return (offset + 0.13, _SMALL) if row["variant"] == AS_DRAWN or weighted is None else (offset, weighted[1])


def _drawn(findings: Findings) -> pl.DataFrame:
    return select(statistics(findings, "boundary", *QUANTITIES), truth="all", group=GROUPS).select(_COLUMNS)


def _panels(data: pl.DataFrame) -> list[Forest]:
    rules = {rule: rule for rule in rules_in(data)}
    return [
        Forest(
            "assignment",
            rules,
            _WeightedMarks(),
            "share" if _SHOWS[quantity] is percent else "",
            QUANTITIES[quantity][0],
            1.95,
            {"quantity": quantity},
            None,
            words_once=True,
            bins=4,
        )
        for quantity in present(data, "quantity", tuple(QUANTITIES))
    ]


def _accuracy(rows: pl.DataFrame) -> Said | None:
    """Whether the share of true answers differs; equal only where the interval leaves room for a trifle."""
    gap = find(rows, measure="accuracy", aspect="difference", variant=WEIGHTED)
    apart = "holds" in (above(gap, 0.0), below(gap, 0.0))
    same = between(gap, -SMALL_GAP, SMALL_GAP) == "holds"
    verdict: Verdict = "does not hold" if same else "holds" if apart else "undecided"
    return told(gap, verdict, whole_percent, "Q − A, weighted")


SECTION = SectionSpec(
    slug="boundary",
    title="Knowledge boundary",
    rows=lambda findings: statistics(findings, "boundary"),
    asks="Do the pathways differ in what the model knows, admits not to know, and is sure of?",
    careful="Half of the answers are true by design; weights undo that. A rule that sorts by label makes groups "
    "differ in whatever goes with truth.",
    answer=Answer(
        "The groups differ in how many answers are true",
        "The groups hardly differ in how many answers are true",
        "Whether the groups differ in how many answers are true is undecided",
        _accuracy,
    ),
    charts=(
        ChartSpec(
            "boundary",
            "what the model knows, by pathway",
            "Accuracy, don't-know rate, popularity and confidence of both groups",
            "Each panel has a scale of its own.",
            "Large marks: weighted by inverse sampling probability. Small grey marks: as drawn, where half of the "
            "answers are true by design. Lines: 95 % intervals.",
            _drawn,
            _panels,
            labels=0.35,
            gap=0.3,
            height=lambda data: 0.35 + 0.5 * data["assignment"].n_unique(),
            more_handles=lambda data, _: [Line2D([], [], label=AS_DRAWN, **_SMALL)],
        ),
    ),
    tables=(
        TableSpec(
            "All answers",
            (_QUANTITY, RULE, Key("variant", "items count", {WEIGHTED: WEIGHTED})),
            both_groups(_SHOWS),
            lambda rows: select(rows, measure=tuple(QUANTITIES), truth="all"),
        ),
        TableSpec(
            "Q − A within true and within false answers",
            (_QUANTITY, RULE),
            tuple(
                column
                for truth in ("true", "false")
                for column in difference(_SHOWS, f"Q − A, {truth} answers", truth=truth)
            ),
            # Of true answers, all are true: accuracy has nothing to say here.
            lambda rows: select(rows, measure=tuple(QUANTITIES)[1:], variant=WEIGHTED, truth=("true", "false")),
        ),
        TableSpec(
            "Share of all answered questions that the weighted items stand for",
            (),
            (value("coverage", percent), items()),
            lambda rows: select(rows, quantity="coverage"),
        ),
    ),
)
