"""Does the untouched state already say which pathway an item takes?

A probe predicts the pathway from clean states, layer by layer. Where the rule sorts by label, knowing the truth is
enough to predict the pathway; so the line within true and within false answers is the one that counts.
"""

from collections.abc import Callable, Sequence
from typing import Any

import polars as pl
from matplotlib.artist import Artist

from anchorscope.report.assignment_rules import rule_title
from anchorscope.report.charts.line_chart import reference_handle
from anchorscope.report.experiments.experiment_rows import estimate_of, find, present, rules_in, select, statistics
from anchorscope.report.experiments.panels import Lines, Series
from anchorscope.report.experiments.section import SectionSpec
from anchorscope.report.experiments.section_answer import HALF, Answer, Said, three_digits, told
from anchorscope.report.experiments.section_chart import ChartSpec
from anchorscope.report.experiments.section_tables import RULE, Key, TableSpec
from anchorscope.report.findings import Findings
from anchorscope.report.palette import CONTROL_GREY, DatasetStyle
from anchorscope.report.verdicts import above
from anchorscope.report.wording import NOTHING, count, estimate, p_value_cell

LINES: dict[str, tuple[str, dict[str, Any]]] = {
    "auc": ("probe on clean states", {"color": "#0072b2", "marker": "o", "markersize": 3.4, "markeredgewidth": 0.0}),
    "auc_within_truth": (
        "the same, within true and within false answers",
        {"color": "#d55e00", "linestyle": (0, (5.0, 1.6)), "marker": "s", "markersize": 3.4, "markeredgewidth": 0.0},
    ),
}
LEVELS: dict[str, tuple[str, dict[str, Any]]] = {
    "auc_truth_label": ("the label alone", {"color": "#555555", "linestyle": (0, (1.0, 1.4)), "linewidth": 1.3}),
    "auc_truth_probe": (
        "the truth probe at l* alone",
        {"color": "#009e73", "linestyle": (0, (5.0, 1.6, 1.0, 1.6)), "linewidth": 1.3},
    ),
}
PERMUTED = "auc_permuted"
SCORES = {
    "auc_at_reference": "probe at l*",
    "auc_below": "probe below all l*",
    "auc": "probe, best layer",
    "auc_truth_label": "the label",
    "auc_truth_probe": "the truth probe",
    "auc_truth_margin": "the truth probe's margin",
}
"""What predicts the pathway; each also within truth, where that is known."""
_COLUMNS = (
    "dataset",
    "assignment",
    "quantity",
    "variant",
    "probe_layer",
    "value",
    "ci_low",
    "ci_high",
    "n",
    "p_value",
    "method",
    "x",
)
_BESIDE = 0.15  # layers between permutations of two kinds


def _drawn(findings: Findings) -> pl.DataFrame:
    """Both lines, the level lines and the permutations, of which each kind stands a little aside."""
    rows = statistics(findings, "self-awareness", *LINES, *LEVELS, PERMUTED)
    permuted = pl.col("quantity") == PERMUTED
    unnamed = permuted & pl.col("variant").is_null()
    named = pl.when(unnamed).then(pl.lit("pathways")).otherwise(pl.col("variant"))
    rows = select(rows, truth="all").with_columns(variant=named)
    kinds = _kinds(rows)
    aside = {kind: _BESIDE * (2 * place - len(kinds) + 1) for place, kind in enumerate(kinds)}
    moved = (
        pl.when(permuted)
        .then(pl.col("variant").replace_strict(aside, default=0.0, return_dtype=pl.Float64))
        .otherwise(0.0)
    )
    rows = rows.with_columns(x=pl.col("probe_layer") + moved).select(_COLUMNS)
    return rows.sort("dataset", "assignment", "quantity", "variant", "probe_layer")


def _kinds(rows: pl.DataFrame) -> list[str]:
    """The ways to permute."""
    return present(select(rows, quantity=PERMUTED), "variant")


def _panels(data: pl.DataFrame) -> list[Lines]:
    layers = max(1, min(4, data["probe_layer"].drop_nulls().n_unique() // 6))
    grey = {"color": CONTROL_GREY, "markersize": 4.2, "linestyle": "none", "markeredgewidth": 0.0, "zorder": 2.6}
    series = [
        *(Series({"quantity": name}, style | {"markevery": layers}, words) for name, (words, style) in LINES.items()),
        *(
            Series({"quantity": name, "probe_layer": None}, style, words, "level")
            for name, (words, style) in LEVELS.items()
        ),
        *(
            Series(
                {"quantity": PERMUTED, "variant": kind},
                grey | {"marker": "vD^<>"[place % 5]},
                f"permuted {kind}",
                "bars",
            )
            for place, kind in enumerate(_kinds(data))
        ),
    ]
    rules = rules_in(data)
    return [
        Lines(
            series,
            "AUC",
            rule_title(rule),
            4.35 if len(rules) > 1 else 6.2,
            {"assignment": rule},
            "x",
            null=0.5,
            marks_reference=True,
        )
        for rule in rules
    ]


def _reference(data: pl.DataFrame, colours: DatasetStyle) -> Sequence[Artist]:
    return [reference_handle()]


def _best(aspect: str, say: Callable[[dict[str, Any]], str]) -> Callable[[pl.DataFrame], str]:
    """A cell from the best row: of a quantity per layer the best layer, of any other the only one."""

    def cell(rows: pl.DataFrame) -> str:
        found = select(rows, aspect=aspect).sort("value", descending=True)
        return say(found.row(0, named=True)) if found.height else NOTHING

    return cell


def _area(row: dict[str, Any]) -> str:
    where = f" at layer {row['probe_layer']}" if row["quantity"] in LINES else ""
    return estimate(estimate_of(row), 3) + where


def _scores(aspect: str, head: str) -> tuple[tuple[str, Callable[[pl.DataFrame], str]], ...]:
    return (
        (head, _best(aspect, _area)),
        ("p", _best(aspect, lambda row: p_value_cell(row["p_value"]))),
        ("items", _best(aspect, lambda row: count(row["n"]))),
    )


def _beyond_label(rows: pl.DataFrame) -> Said | None:
    area = find(rows, measure="auc_at_reference", aspect="within_truth")
    return told(area, above(area, HALF), three_digits, "AUC within truth at l*")


SECTION = SectionSpec(
    slug="self-awareness",
    title="Self-awareness",
    rows=lambda findings: select(statistics(findings, "self-awareness"), truth="all"),
    asks="Does the untouched state already tell which pathway an answer takes?",
    careful="A probe that knows the truth knows a pathway that follows the label: read the AUC within true and within "
    "false answers.",
    answer=Answer(
        "Clean states tell the pathway beyond the label",
        "Clean states do not tell the pathway beyond the label",
        "Whether clean states tell the pathway beyond the label is undecided",
        _beyond_label,
    ),
    charts=(
        ChartSpec(
            "self_awareness",
            "the pathway, read from clean states",
            "AUC of the pathway per layer, within truth, and with permuted pathways",
            "Ticks: the reference layers, where the pathway was assigned.",
            "AUC of telling Q-Anchored from A-Anchored items, out of fold; 0.5 is guessing. Bands: 95 % intervals. "
            "Grey bars: mean and 95 % range with the pathways permuted and the probe fitted again.",
            _drawn,
            _panels,
            height=2.8,
            share="y",
            marks_reference=True,
            gap=0.42,
            more_handles=_reference,
            # Level lines alone are no figure.
            made=lambda findings: bool(statistics(findings, "self-awareness", "auc").height),
        ),
    ),
    tables=(
        TableSpec(
            "AUC of the pathway; p is the share of permutations that reach it",
            (RULE, Key("measure", "what predicts", SCORES)),
            (*_scores("", "AUC"), *_scores("within_truth", "AUC within truth")),
            lambda rows: select(rows, measure=tuple(SCORES), aspect=("", "within_truth")),
        ),
    ),
)
