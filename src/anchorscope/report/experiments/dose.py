"""Dose: ΔP at l* as more of the key words are cut, beside as many random tokens."""

from functools import partial

import polars as pl

from anchorscope.report.experiments.experiment_rows import find, select, statistics
from anchorscope.report.experiments.panels import Lines, Series
from anchorscope.report.experiments.section import SectionSpec
from anchorscope.report.experiments.section_answer import HALF, Answer, Said, told, whole_percent
from anchorscope.report.experiments.section_chart import ChartSpec
from anchorscope.report.experiments.section_tables import Key, TableSpec, items, p_value, value
from anchorscope.report.findings import Findings
from anchorscope.report.palette import CONTROL_GREY, DatasetStyle
from anchorscope.report.verdicts import above
from anchorscope.report.wording import estimate, percent, points

DOSES = ("1 token", "25 %", "50 %", "75 %", "100 %")
"""In the order of the axis."""
KINDS = {"exact": "key words", "random": "as many random tokens"}
NOTHING_CUT = "nothing cut"
_COLUMNS = ("dataset", "kind", "dose", "value", "ci_low", "ci_high", "n", "p_value", "q_value", "x")


def _rows(findings: Findings) -> pl.DataFrame:
    """All answers, with what is cut and how much in columns of their own."""
    table = select(statistics(findings, "dose"), truth="all")
    parts, nothing = pl.col("variant").str.splitn(" ", 2).struct, pl.col("variant") == NOTHING_CUT
    found = table.with_columns(
        kind=pl.when(nothing).then(pl.lit("exact")).otherwise(parts.field("field_0")),
        dose=pl.when(nothing).then(pl.lit(NOTHING_CUT)).otherwise(parts.field("field_1")),
    )
    return select(found, kind=tuple(KINDS), dose=(NOTHING_CUT, *DOSES))


def _drawn(findings: Findings) -> pl.DataFrame:
    rows = select(_rows(findings), quantity="delta_p_reference", dose=DOSES)
    step = pl.col("dose").replace_strict({dose: float(place) for place, dose in enumerate(DOSES)}, default=None)
    beside = pl.when(pl.col("kind") == "exact").then(-0.06).otherwise(0.06)
    return rows.with_columns(x=step.cast(pl.Float64) + beside).select(_COLUMNS)


def _style(kind: str, colours: DatasetStyle) -> dict[str, object]:
    exact = kind == "exact"
    colour = colours.q_colour if exact else CONTROL_GREY
    return {
        "color": colour,
        "marker": "o" if exact else "s",
        "markersize": 4.4,
        "linewidth": 1.5,
        "linestyle": "-" if exact else (0, (1.0, 1.5)),
        "markerfacecolor": colour if exact else "white",
    }


_SERIES = [Series({"kind": kind}, partial(_style, kind), words, "bars") for kind, words in KINDS.items()]
_PANEL = Lines(_SERIES, "ΔP at l*", width=3.4, x="x", ticks=DOSES, x_label="Key words cut")


def _one_token(rows: pl.DataFrame) -> Said | None:
    share = find(rows, kind="exact", dose=DOSES[0], quantity="share_of_full")
    return told(share, above(share, HALF), whole_percent)


SECTION = SectionSpec(
    slug="dose",
    title="Dose: how many of the key words",
    rows=_rows,
    asks="Does one token carry what the probe needs, or do all? Key tokens are cut in random order, each dose on top "
    "of the smaller ones.",
    careful="ΔP moves where all items move alike; AUC and Λ do not.",
    answer=Answer(
        "One token alone does at least half of what all key words do",
        "One token alone does less than half of what all key words do: the tokens add up",
        "Whether one token does half of what all key words do is undecided",
        _one_token,
    ),
    charts=(
        ChartSpec(
            "dose",
            "dose",
            "ΔP at l* by the share of the key words that is cut, and of as many random tokens",
            "Doses are nested: each cuts what the smaller ones cut, and more.",
            "Mean ΔP at the reference layer over all items, in percentage points; bars: 95 % intervals. Random tokens: "
            "items with as many other tokens as the dose cuts.",
            _drawn,
            lambda _: [_PANEL],
            gap=0.6,
            legend_columns=2,
        ),
    ),
    tables=(
        TableSpec(
            "ΔP at l* by dose, all answers",
            (Key("dose", "dose", {name: name for name in (NOTHING_CUT, *DOSES)}),),
            (
                value("tokens", lambda found: estimate(found, 1), kind="exact", quantity="tokens_cut"),
                value("ΔP", points, kind="exact", quantity="delta_p_reference"),
                items(kind="exact"),
                value("share of the full dose", percent, kind="exact", quantity="share_of_full"),
                value("random tokens", points, kind="random", quantity="delta_p_reference"),
                value("difference", points, kind="exact", quantity="delta_p_reference_difference"),
                p_value(kind="exact", quantity="delta_p_reference_difference"),
                value("AUC after", estimate, kind="exact", quantity="auc_reference"),
                value("AUC after random", estimate, kind="random", quantity="auc_reference"),
                value("Λ", estimate, kind="exact", quantity="question_share"),
                value("Λ, random", estimate, kind="random", quantity="question_share"),
            ),
        ),
    ),
)
