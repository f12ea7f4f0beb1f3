"""The same items in several wordings: do the numbers of single items repeat themselves?

Without reliability nothing can be said of single items, however clear the mean of all is.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, final

import polars as pl
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from anchorscope.report.charts.forest import Mark, draw_forest
from anchorscope.report.charts.layout import Grid, Legend, canvas, rows_that_fit
from anchorscope.report.experiments.experiment_rows import (
    TRUTHS,
    datasets_in,
    estimate_of,
    find,
    present,
    select,
    statistics,
)
from anchorscope.report.experiments.section import ExperimentChart, SectionSpec
from anchorscope.report.findings import Findings
from anchorscope.report.palette import CONTROL_GREY, display_name
from anchorscope.report.wording import Table, count, estimate, shown

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


@final
@dataclass(frozen=True)
class WordingsChart(ExperimentChart):
    """Reliability of both measures, and the share of all items in every wording."""

    name: ClassVar[str] = "wordings"

    alt: ClassVar[str] = "Reliability of single items over wordings, and the question share in every wording"
    caption: ClassVar[str] = "At the most frequent reference layer."

    @classmethod
    def rows(cls, findings: Findings) -> pl.DataFrame:
        """Reliabilities, and the shares by wording."""
        return statistics(findings, "wordings", "reliability", "question_share").select(_COLUMNS)

    @classmethod
    def explained(cls, findings: Findings) -> tuple[str, ...]:
        """What the two panels show."""
        return (
            "Left: reliability of a measure over all wordings, from its rank correlation between odd and even ones "
            "(Spearman–Brown), each judged by other probes. Right: question share of the same items in every wording. "
            "Lines: 95 % intervals.",
        )

    def draw(self) -> Figure:
        """A row per dataset."""
        handles = [Line2D([], [], label=words, linestyle="none", **_STYLES[name]) for name, words in MEASURES.items()]
        grid = Grid([3.1, 3.1], rows_that_fit(len(self.datasets), 2.2, 0.78), labels=0.9, gap_x=1.4)
        page = canvas(f"{self.model}: the same items in other wordings", grid, Legend(handles, 3, self.notes))
        for panels, dataset in zip(page.axes, self.datasets, strict=True):
            table = select(self.data, dataset=dataset)
            reliable = [
                Mark(line, 0.22 * (place - 1), estimate_of(row), _STYLES[name])
                for line, truth in enumerate(TRUTHS)
                for place, name in enumerate(MEASURES)
                for row in table.filter(quantity="reliability", variant=name, against=PROBES[0], truth=truth).to_dicts()
            ]
            draw_forest(panels[0], list(TRUTHS.values()), reliable, null=0.0)
            panels[0].set_xlabel("reliability")
            names = present(select(table, quantity="question_share"), "variant")
            shares = [
                Mark(line, 0.0, estimate_of(row), _STYLES["item_share"])
                for line, name in enumerate(names)
                for row in select(table, quantity="question_share", variant=name).to_dicts()
            ]
            draw_forest(panels[1], names, shares, null=0.0)
            panels[1].set_xlabel("Λ")
            for axes in panels:
                axes.set_title(display_name(dataset), fontsize=9)
        return page.figure


def _reliability_table(findings: Findings, table: pl.DataFrame) -> Table:
    rows = []
    for dataset in datasets_in(findings, table):
        for name, words in MEASURES.items():
            for truth, which in TRUTHS.items():
                mine = table.filter(dataset=dataset, variant=name, truth=truth, quantity="reliability")
                found = [find(mine, against=probes) for probes in PROBES]
                known = next((one for one in found if one is not None), None)
                if known is not None:
                    cells = [shown(one, estimate) for one in found]
                    rows.append((display_name(dataset), words, which, *cells, count(known.n)))
    return Table(("dataset", "measure", "of", *PROBES, "items"), tuple(rows), 3)


def _shares_table(findings: Findings, table: pl.DataFrame) -> Table:
    table, rows = select(table, quantity="question_share"), []
    for dataset in datasets_in(findings, table):
        for row in select(table, dataset=dataset).to_dicts():
            found = estimate_of(row)
            rows.append((display_name(dataset), row["variant"], estimate(found), count(found.n)))
    return Table(("dataset", "wording", "question share", "items"), tuple(rows), 2)


def _rows(findings: Findings) -> pl.DataFrame:
    return statistics(findings, "wordings")


SECTION = SectionSpec(
    slug="wordings",
    title="Other wordings",
    rows=_rows,
    text=(
        "Is what the cut does to an item a property of the item, or of the words in which it was asked? Items are "
        "asked again in other words and after other examples, with the same answer; the odd wordings say how much of "
        "an item's evidence needs the question, the even ones say it again.",
        "Reliability is the share of the differences between items that would come out the same in new wordings. Below "
        "about 0.7 single items should not be sorted by a measure. Judged by the same probes, odd and even wordings "
        "also agree in what these got wrong. ΔP hangs on the label, which is the same in all wordings: within true and "
        "within false answers its reliability is the one that counts.",
    ),
    charts=(WordingsChart,),
    tables=(
        ("How well single items repeat themselves: reliability", _reliability_table),
        ("Question share of the same items, wording by wording", _shares_table),
    ),
)
