"""The same items in several wordings: do the numbers of single items repeat themselves?

Without reliability nothing can be said of single items, however clear the mean of all is.
"""

from typing import Any

import polars as pl

from anchorscope.report.experiments.experiment_rows import TRUTHS, find, present, select, statistics
from anchorscope.report.experiments.panels import Forest, Marks
from anchorscope.report.experiments.section import SectionSpec
from anchorscope.report.experiments.section_answer import RELIABLE, Answer, Said, told
from anchorscope.report.experiments.section_chart import ChartSpec
from anchorscope.report.experiments.section_tables import Key, TableSpec, items, value
from anchorscope.report.findings import Findings
from anchorscope.report.palette import CONTROL_GREY
from anchorscope.report.verdicts import above
from anchorscope.report.wording import estimate

MEASURES = {"item_share": "share of an item", "item_ratio": "the same as a plain ratio", "delta_p": "ΔP of an item"}
"""Variant → its words."""
_STYLES: dict[str, dict[str, Any]] = {
    "item_share": {"color": "#0072b2", "marker": "o", "markersize": 4.6, "markerfacecolor": "#0072b2"},
    "item_ratio": {"color": "#56b4e9", "marker": "^", "markersize": 4.6, "markerfacecolor": "white"},
    "delta_p": {"color": CONTROL_GREY, "marker": "s", "markersize": 4.6, "markerfacecolor": "white"},
}
PROBES = ("other probes", "same probes")
"""Who judged the odd wordings; the first is drawn."""
_COLUMNS = ("dataset", "quantity", "variant", "against", "truth", "value", "ci_low", "ci_high", "n", "method")


def _drawn(findings: Findings) -> pl.DataFrame:
    return statistics(findings, "wordings", "reliability", "question_share").select(_COLUMNS)


def _panels(data: pl.DataFrame) -> list[Forest]:
    wordings = present(select(data, quantity="question_share"), "variant")
    return [
        Forest(
            "truth",
            TRUTHS,
            Marks("variant", {name: (words, _STYLES[name]) for name, words in MEASURES.items()}),
            "reliability",
            where={"quantity": "reliability", "against": PROBES[0]},
        ),
        Forest(
            "variant",
            {name: name for name in wordings},
            Marks("quantity", {"question_share": (MEASURES["item_share"], _STYLES["item_share"])}),
            "Λ",
        ),
    ]


def _repeats(rows: pl.DataFrame) -> Said | None:
    found = find(rows, quantity="reliability", variant="item_share", against=PROBES[0], truth="all")
    return told(found, above(found, RELIABLE), estimate)


SECTION = SectionSpec(
    slug="wordings",
    title="Other wordings",
    rows=lambda findings: statistics(findings, "wordings"),
    asks="Is what the cut does to an item the item's own, or of one wording?",
    careful="Judged by the same probes, wordings also agree in what these got wrong. ΔP repeats itself by its label: "
    "read it within truth.",
    answer=Answer(
        "Single items repeat themselves well enough to be sorted: the reliability of their share is above 0.7",
        "Single items should not be sorted by their share: its reliability is below 0.7",
        "Whether single items can be sorted by their share (reliability above 0.7) is undecided",
        _repeats,
    ),
    charts=(
        ChartSpec(
            "wordings",
            "the same items in other wordings",
            "Reliability of single items over wordings, and the question share in every wording",
            "At the most frequent reference layer.",
            "Left: reliability of a measure over all wordings, from its rank correlation between odd and even ones "
            "(Spearman–Brown), each judged by other probes. Right: question share of the same items in every wording. "
            "Lines: 95 % intervals.",
            _drawn,
            _panels,
            height=2.2,
            labels=0.9,
            gap=1.4,
        ),
    ),
    tables=(
        TableSpec(
            "How well single items repeat themselves: reliability",
            (Key("variant", "measure", MEASURES), Key("truth", "of", TRUTHS)),
            (*(value(probes, estimate, against=probes) for probes in PROBES), items()),
            lambda rows: select(rows, quantity="reliability"),
        ),
        TableSpec(
            "Question share of the same items, wording by wording",
            (Key("variant", "wording"),),
            (value("question share", estimate), items()),
            lambda rows: select(rows, quantity="question_share"),
        ),
    ),
)
