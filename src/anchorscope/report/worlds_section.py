"""The worlds on the page of the calibration: how far off the parts are, and how often their intervals are right."""

from collections.abc import Mapping

import polars as pl

from anchorscope.report.page_sections import Section, filled
from anchorscope.report.result_rows import present, select
from anchorscope.report.wording import NOTHING, Table, count, number

WORLDS_SCHEMA: dict[str, type[pl.DataType]] = {
    "world": pl.String,
    "items": pl.Int64,
    "quantity": pl.String,
    "part": pl.String,
    "value": pl.Float64,
    "ci_low": pl.Float64,
    "ci_high": pl.Float64,
    "replicas": pl.Int64,
    "passes": pl.Boolean,
    "method": pl.String,
}
"""Columns of worlds.csv. Rows whose quantity is `truth` say what is so in a world; they have no number of items."""
_PARTS = ("together", "question", "answer", "either")
_TEXT = (
    "These worlds have no model. States are drawn, with evidence for the label in the question, in the answer or only "
    "in both together, among directions that tell nothing. The parts of an endless sample are known.",
    "A world is passed where every part is off by at most 0.03 on average, intervals hold the truth at least 93 times "
    "in 100, and what is not there is claimed at most 5 times in 100. Rates come from few replicas, and their "
    "intervals are in worlds.csv; ask for more with --replicas.",
)


def worlds_section(table: pl.DataFrame, about: Mapping[str, str]) -> Section:
    """The truth of every world, and what came out at every number of items."""
    rows = table.filter(pl.col("items").is_not_null())
    titles = [
        (f"{count(size)} items", _marks_table(select(rows, items=size))) for size in sorted(rows["items"].unique())
    ]
    return Section(
        "worlds", "Worlds whose parts are known", _TEXT, filled(*titles, ("The worlds", _truths(table, about)))
    )


def _marks_table(rows: pl.DataFrame) -> Table:
    lines = []
    for world in present(rows, "world"):
        mine = select(rows, world=world)
        bias = [_value(mine, "bias", part, 1) for part in _PARTS]
        rates = [_value(mine, name, "all parts", 100) for name in ("covered", "false alarms")]
        replicas = select(mine, quantity="bias", part=_PARTS[0])["replicas"][0]
        verdict = "yes" if mine["passes"][0] else "no"
        lines.append((world, _value(mine, "auc", "probe", 1), *bias, *rates, count(replicas), verdict))
    heads = (
        "world",
        "AUC",
        *(f"bias: {part}" for part in _PARTS),
        "coverage, %",
        "false alarms, %",
        "replicas",
        "passes",
    )
    return Table(heads, tuple(lines))


def _truths(table: pl.DataFrame, about: Mapping[str, str]) -> Table:
    truths = table.filter(pl.col("items").is_null())
    lines = [
        (
            world,
            about.get(world, NOTHING),
            *(_value(select(truths, world=world), "truth", part, 1) for part in _PARTS),
            _value(select(truths, world=world), "auc", "best", 1),
        )
        for world in present(truths, "world")
    ]
    return Table(("world", "what it is", *_PARTS, "AUC of the best probe"), tuple(lines), 2)


def _value(rows: pl.DataFrame, quantity: str, part: str, factor: float) -> str:
    values = select(rows, quantity=quantity, part=part)["value"]
    return number(factor * values[0], 0 if factor > 1 else 2) if len(values) else NOTHING
