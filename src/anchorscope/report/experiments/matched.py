"""Matched strings: questions have exchanged their answers, so that neither words nor answers nor relations tell truth.

What a probe still knows there comes from how question and answer fit together; the question share of it stands beside
that of the model's own answers.
"""

from typing import Any

import polars as pl

from anchorscope.report.experiments.experiment_rows import TRUTHS, find, select, statistics
from anchorscope.report.experiments.panels import Forest, Marks
from anchorscope.report.experiments.section import SectionSpec
from anchorscope.report.experiments.section_answer import HALF, Answer, Said, told
from anchorscope.report.experiments.section_chart import ChartSpec
from anchorscope.report.experiments.section_tables import Key, TableSpec, items, value
from anchorscope.report.findings import Findings
from anchorscope.report.palette import CONTROL_GREY
from anchorscope.report.verdicts import above
from anchorscope.report.wording import estimate, percent

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
    "won, same question": "of one question, the true answer wins",
    "won, same answer": "of one answer, the question it is true for wins",
    "won_free_probe, same question": "of one question, the true answer wins, by the run's own probe",
}
_STYLES: dict[str, dict[str, Any]] = {
    "matched": {"color": "#0072b2", "marker": "o", "markersize": 4.6, "markerfacecolor": "#0072b2"},
    "free": {"color": CONTROL_GREY, "marker": "s", "markersize": 4.6, "markerfacecolor": "white"},
}
_MARKS = Marks("variant", {name: (words, _STYLES[name]) for name, words in SETS.items()}, 0.3)
_COLUMNS = ("dataset", "quantity", "variant", "truth", "probe_layer", "value", "ci_low", "ci_high", "n", "method")


def reference_rows(findings: Findings) -> pl.DataFrame:
    """Rows at the reference layer: those in the layer that is also told within truth, and those without a layer."""
    table = statistics(findings, "matched")
    layers = select(table, truth="true").select("dataset", "probe_layer").unique()
    with_layer = table.join(layers, on=["dataset", "probe_layer"], how="semi")
    return pl.concat([table.filter(pl.col("probe_layer").is_null()), with_layer])


def _drawn(findings: Findings) -> pl.DataFrame:
    return select(reference_rows(findings), quantity=(*AREAS, *SHARES), truth="all").select(_COLUMNS)


def _wins(rows: pl.DataFrame) -> pl.DataFrame:
    return select(rows.with_columns(pair=pl.format("{}, {}", "quantity", "against")), pair=tuple(WINS))


def _knows(rows: pl.DataFrame) -> Said | None:
    mine = select(rows, variant="matched", truth="all")
    area, share = find(mine, quantity="auc"), find(mine, quantity="question_share")
    said = told(area, above(area, HALF), estimate, "AUC")
    return (
        said
        if said is None or share is None
        else Said(said.verdict, f"{said.numbers}; question share {estimate(share)}")
    )


SECTION = SectionSpec(
    slug="matched",
    title="Matched strings",
    rows=reference_rows,
    asks="Does the probe know truth where words cannot tell? Questions have exchanged their answers, so that words "
    "alone reach 0.5.",
    careful="A larger share here than among the model's own answers means that there answers speak for themselves.",
    answer=Answer(
        "A probe tells true from false where words cannot",
        "A probe tells nothing where words cannot tell",
        "Whether a probe tells true from false where words cannot is undecided",
        _knows,
    ),
    charts=(
        ChartSpec(
            "matched",
            "answers exchanged between questions",
            "AUC and question share of exchanged answers and of the model's own",
            "At the most frequent reference layer.",
            "Left: AUC of true against false answers; words and relation are at 0.5 by design. Right: the share of the "
            "probe's evidence that needs what was cut. Lines: 95 % intervals.",
            _drawn,
            lambda _: [Forest("quantity", AREAS, _MARKS, "AUC", null=HALF), Forest("quantity", SHARES, _MARKS, "Λ")],
            height=2.0,
            labels=1.5,
            gap=1.6,
            legend_columns=2,
        ),
    ),
    tables=(
        TableSpec(
            "What tells true from false",
            (Key("quantity", "what tells truth (AUC)", AREAS),),
            tuple(
                column
                for name, words in SETS.items()
                for column in (value(words, estimate, variant=name), items(variant=name))
            ),
            lambda rows: select(rows, quantity=tuple(AREAS), truth="all"),
        ),
        TableSpec(
            "Share of the probe's evidence that needs what was cut",
            (Key("variant", "answers", SETS), Key("quantity", "cut", SHARES)),
            tuple(
                value(head, estimate, truth=truth)
                for head, truth in zip(("share", "true answers", "false answers"), TRUTHS, strict=True)
            ),
            lambda rows: select(rows, quantity=tuple(SHARES)),
        ),
        TableSpec(
            "How often the true one of two items scores higher",
            (Key("pair", "pairs", WINS),),
            (value("share", percent), items("true items")),
            _wins,
        ),
    ),
)
