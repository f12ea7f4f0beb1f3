"""Matched strings: questions have exchanged their answers, so that neither words nor answers nor relations tell truth.

What a probe still knows there comes from how question and answer fit together; the question share of it stands beside
that of the model's own answers.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, final

import polars as pl
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from anchorscope.report.charts.forest import Mark, draw_forest
from anchorscope.report.charts.layout import Grid, Legend, canvas, rows_that_fit
from anchorscope.report.experiments.experiment_rows import datasets_in, estimate_of, find, select, statistics
from anchorscope.report.experiments.section import ExperimentChart, SectionSpec
from anchorscope.report.findings import Findings
from anchorscope.report.palette import CONTROL_GREY, display_name
from anchorscope.report.wording import NOTHING, Table, count, estimate, percent, shown

SETS = {"matched": "exchanged answers", "free": "the model's own answers"}
"""Variant → its words."""
AREAS = {
    "auc": "probe trained on them",
    "auc_free_probe": "the run's own probe",
    "auc_confidence_mean": "mean log-probability",
    "auc_confidence_min": "lowest log-probability",
    "auc_words": "words alone",
    "auc_relation": "relation alone",
}
"""What tells true from false, and how well."""
SHARES = {
    "question_share": "key words cut",
    "question_share_random": "random tokens cut",
    "question_share_none": "nothing cut (floor)",
}
WINS = {
    ("won", "same question"): "of one question, the true answer wins",
    ("won", "same answer"): "of one answer, the question it is true for wins",
    ("won_free_probe", "same question"): "of one question, the true answer wins, by the run's own probe",
}
_STYLES: dict[str, dict[str, Any]] = {
    "matched": {"color": "#0072b2", "marker": "o", "markersize": 4.6, "markerfacecolor": "#0072b2"},
    "free": {"color": CONTROL_GREY, "marker": "s", "markersize": 4.6, "markerfacecolor": "white"},
}
_COLUMNS = ("dataset", "quantity", "variant", "truth", "probe_layer", "value", "ci_low", "ci_high", "n", "method")


def reference_rows(table: pl.DataFrame) -> pl.DataFrame:
    """Rows at the reference layer, of all answers: those in the layer that is also told within truth."""
    layers = table.filter(pl.col("truth") == "true").select("dataset", "probe_layer").unique()
    with_layer = table.join(layers, on=["dataset", "probe_layer"], how="semi")
    return pl.concat([table.filter(pl.col("probe_layer").is_null()), with_layer])


@final
@dataclass(frozen=True)
class MatchedChart(ExperimentChart):
    """AUCs and question shares of both sets at the reference layer."""

    name: ClassVar[str] = "matched"

    alt: ClassVar[str] = "AUC and question share of exchanged answers and of the model's own"
    caption: ClassVar[str] = "At the most frequent reference layer."

    @classmethod
    def rows(cls, findings: Findings) -> pl.DataFrame:
        """Both sets at the reference layer, all answers together."""
        rows = reference_rows(statistics(findings, "matched", *AREAS, *SHARES))
        return select(rows, truth="all").select(_COLUMNS)

    @classmethod
    def explained(cls, findings: Findings) -> tuple[str, ...]:
        """What the two panels show."""
        return (
            "Left: AUC of true against false answers; words and relation are at 0.5 by design. Right: the share of the "
            "probe's evidence that needs what was cut. Lines: 95 % intervals.",
        )

    def draw(self) -> Figure:
        """A row per dataset; AUCs at the left, shares at the right."""
        handles = [Line2D([], [], label=words, linestyle="none", **_STYLES[name]) for name, words in SETS.items()]
        grid = Grid([3.1, 3.1], rows_that_fit(len(self.datasets), 2.0, 0.78), labels=1.5, gap_x=1.6)
        page = canvas(f"{self.model}: answers exchanged between questions", grid, Legend(handles, 2, self.notes))
        for panels, dataset in zip(page.axes, self.datasets, strict=True):
            for axes, names, null, label in zip(panels, (AREAS, SHARES), (0.5, 0.0), ("AUC", "Λ"), strict=True):
                table = select(self.data, dataset=dataset)
                marks = [
                    Mark(line, -0.15 if variant == "matched" else 0.15, estimate_of(row), _STYLES[variant])
                    for line, quantity in enumerate(names)
                    for variant in SETS
                    for row in select(table, quantity=quantity, variant=variant).to_dicts()
                ]
                draw_forest(axes, list(names.values()), marks, null=null)
                axes.set_xlabel(label)
                axes.set_title(display_name(dataset), fontsize=9)
        return page.figure


def _areas_table(findings: Findings, table: pl.DataFrame) -> Table:
    table, rows = select(reference_rows(table), truth="all"), []
    for dataset in datasets_in(findings, table):
        for quantity, words in AREAS.items():
            found = [find(table, dataset=dataset, quantity=quantity, variant=name) for name in SETS]
            cells = [cell for one in found for cell in (shown(one, estimate), NOTHING if one is None else count(one.n))]
            rows.append((display_name(dataset), words, *cells))
    heads = [head for words in SETS.values() for head in (words, "items")]
    return Table(("dataset", "what tells truth (AUC)", *heads), tuple(rows), 2)


def _shares_table(findings: Findings, table: pl.DataFrame) -> Table:
    table, rows = reference_rows(table), []
    for dataset in datasets_in(findings, table):
        for name, set_words in SETS.items():
            for quantity, words in SHARES.items():
                mine = select(table, dataset=dataset, variant=name, quantity=quantity)
                cells = [shown(find(mine, truth=truth), estimate) for truth in ("all", "true", "false")]
                if mine.height:
                    rows.append((display_name(dataset), set_words, words, *cells))
    return Table(("dataset", "answers", "cut", "share", "true answers", "false answers"), tuple(rows), 3)


def _wins_table(findings: Findings, table: pl.DataFrame) -> Table:
    rows = []
    for dataset in datasets_in(findings, table):
        for (quantity, against), words in WINS.items():
            found = find(table, dataset=dataset, quantity=quantity, against=against)
            if found is not None:
                rows.append((display_name(dataset), words, percent(found), count(found.n)))
    return Table(("dataset", "pairs", "share", "true items"), tuple(rows), 2)


def _rows(findings: Findings) -> pl.DataFrame:
    return statistics(findings, "matched")


SECTION = SectionSpec(
    slug="matched",
    title="Matched strings",
    rows=_rows,
    text=(
        "Some answers are likelier to be true than others, whatever the question. Here questions of one kind have "
        "exchanged their accepted answers two by two: each question stands once with its own answer and once with the "
        "other's, each answer once where it is true and once where it is not. Words, answers and relations alone are "
        "at an AUC of 0.5 by design.",
        "What a probe knows here comes from how question and answer fit together. Where its share of evidence that "
        "needs the key words is larger here than among the model's own answers, part of what survived the cut there "
        "was what the answers say of themselves.",
    ),
    charts=(MatchedChart,),
    tables=(
        ("What tells true from false", _areas_table),
        ("Share of the probe's evidence that needs what was cut", _shares_table),
        ("How often the true one of two items scores higher", _wins_table),
    ),
)
