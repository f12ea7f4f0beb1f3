"""Mediation: which share of a pair's difference follows the key words' states, layer by layer, both ways."""

from collections.abc import Callable
from functools import partial
from typing import Any

import polars as pl

from anchorscope.report.experiments.experiment_rows import estimate_of, find, select, statistics
from anchorscope.report.experiments.panels import Lines, Series
from anchorscope.report.experiments.section import SectionSpec
from anchorscope.report.experiments.section_answer import Answer, Said, told
from anchorscope.report.experiments.section_chart import ChartSpec
from anchorscope.report.experiments.section_tables import Key, TableSpec
from anchorscope.report.findings import Findings
from anchorscope.report.palette import CONTROL_GREY, DatasetStyle
from anchorscope.report.verdicts import DISCOVERY_RATE, NEGLIGIBLE_SHARE, Verdict
from anchorscope.report.wording import NOTHING, count, estimate, shown

DIRECTIONS = {"necessity": "true answers get false ones' states: lost", "sufficiency": "the other way round: gained"}
OPPOSITE, SAME, OTHER = "opposite truth", "same truth", "other tokens"
KINDS = {OPPOSITE: "partner of opposite truth", SAME: "donor of the same truth", OTHER: "the partner's other tokens"}
_DASHES: dict[str, Any] = {OPPOSITE: "-", SAME: (0, (4.0, 1.8)), OTHER: (0, (1.0, 1.5))}
_COLUMNS = ("dataset", "quantity", "variant", "layer", "value", "ci_low", "ci_high", "n", "p_value", "q_value")


def _drawn(findings: Findings) -> pl.DataFrame:
    rows = select(statistics(findings, "mediation", *DIRECTIONS), variant=tuple(KINDS))
    return rows.drop_nulls("layer").select(_COLUMNS)


def _style(kind: str, colours: DatasetStyle) -> dict[str, object]:
    return {
        "color": colours.q_colour if kind == OPPOSITE else CONTROL_GREY,
        "linestyle": _DASHES[kind],
        "linewidth": 1.6,
    }


_SERIES = [Series({"variant": kind}, partial(_style, kind), words) for kind, words in KINDS.items()]
_PANELS = [
    Lines(_SERIES, "share of the difference", words, 4.3, {"quantity": quantity}, empty="too few pairs")
    for quantity, words in DIRECTIONS.items()
]


def _largest(rows: pl.DataFrame) -> dict[str, Any] | None:
    """The row of the layer at which most follows the states."""
    mine = select(rows, variant=OPPOSITE, aspect="").sort("value")
    return mine.row(-1, named=True) if mine.height else None


def _at_largest(say: Callable[[dict[str, Any]], str]) -> Callable[[pl.DataFrame], str]:
    def cell(rows: pl.DataFrame) -> str:
        best = _largest(rows)
        return say(best) if best else NOTHING

    return cell


def _there(**where: str) -> Callable[[pl.DataFrame], str]:
    """Another number at that layer."""

    def cell(rows: pl.DataFrame) -> str:
        best = _largest(rows)
        return shown(find(rows, layer=best["layer"], **where), estimate) if best else NOTHING

    return cell


def _beyond_control(rows: pl.DataFrame) -> pl.DataFrame:
    """Layers at which a partner of opposite truth surely does more than a donor of the same."""
    gaps = select(rows, aspect="difference", against=SAME)
    return gaps.filter((pl.col("q_value") < DISCOVERY_RATE) & (pl.col("ci_low") > 0))


def _last_layer(rows: pl.DataFrame) -> str:
    sure = _beyond_control(rows)["layer"].to_list()
    return str(max(sure)) if sure else NOTHING


def _carries(rows: pl.DataFrame) -> Said | None:
    mine = select(rows, measure="necessity")
    gaps = select(mine, aspect="difference", against=SAME).sort("value")
    sure = _beyond_control(mine)["layer"].to_list()
    if not gaps.height:
        return None
    best = gaps.row(-1, named=True)
    small = gaps.filter(pl.col("ci_high") >= NEGLIGIBLE_SHARE).height == 0
    verdict: Verdict = "holds" if sure else "does not hold" if small else "undecided"
    said = told(estimate_of(best), verdict, estimate, f"beyond the control at layer {best['layer']}:")
    return said if said is None or not sure else Said(verdict, f"{said.numbers}; until layer {max(sure)}")


SECTION = SectionSpec(
    slug="mediation",
    title="Mediation: the key words' states exchanged",
    rows=lambda findings: statistics(findings, "mediation"),
    asks="Until which layer do the key words' states carry truth? They are replaced by those of an item of opposite "
    "truth.",
    careful="Anybody's states disturb a run: only what exceeds a donor of the same truth counts.",
    answer=Answer(
        "The key words' states carry truth",
        "The key words' states carry hardly any truth",
        "Whether the key words' states carry truth is undecided",
        _carries,
    ),
    charts=(
        ChartSpec(
            "mediation",
            "mediation",
            "Share of the pairs' difference that follows the key words' states, per layer, both ways",
            "States are replaced at the entry of one layer; the probe reads at l*.",
            "Share of the difference in log-odds at l* between the members of a pair; bands: 95 % intervals. Grey: "
            "controls. A layer counts the pairs whose l* is not below it.",
            _drawn,
            lambda _: _PANELS,
            height=2.3,
            gap=0.6,
        ),
    ),
    tables=(
        TableSpec(
            "The layer at which most follows the states, and the controls there (chosen among all layers: read it "
            "with the figure)",
            (Key("measure", "", {name: name for name in DIRECTIONS}),),
            (
                ("layer", _at_largest(lambda row: str(row["layer"]))),
                ("share", _at_largest(lambda row: estimate(estimate_of(row)))),
                ("pairs", _at_largest(lambda row: count(row["n"]))),
                (SAME, _there(variant=SAME, aspect="")),
                (OTHER, _there(variant=OTHER, aspect="")),
                (f"minus {SAME}", _there(aspect="difference", against=SAME)),
                (f"minus {OTHER}", _there(aspect="difference", against=OTHER)),
                (f"last layer above {SAME}", _last_layer),
            ),
            lambda rows: select(rows, measure=tuple(DIRECTIONS)),
        ),
    ),
)
