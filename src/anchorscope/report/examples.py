"""A few items to look at, chosen by a rule and not by taste: in file order, spread over datasets and relations."""

from collections.abc import Sequence

import polars as pl

from anchorscope.report.findings import Findings
from anchorscope.report.palette import GROUPS, display_name
from anchorscope.report.tables import Table

PER_GROUP = 5
_LONGEST_CELL = 240


def examples_table(findings: Findings) -> Table:
    """Five items of each group under the plain rule, with what the corrected rule calls them."""
    rows = [row for group in GROUPS for row in _rows(findings, group)]
    head = ("pathway", "corrected", "dataset", "question", "model's answer", "accepted", "truth")
    return Table(head, tuple(rows), len(head))


def _rows(findings: Findings, group: str) -> list[tuple[str, ...]]:
    order = {name: place for place, name in enumerate(findings.datasets)}
    items = findings.items.filter(pl.col("pathway") == group).with_row_index("place")
    # First the first item of every relation, then the second ones: a block of one relation would show little.
    turn = pl.col("place").rank("ordinal").over("dataset", "relation")
    chosen = items.with_columns(
        turn=turn, order=pl.col("dataset").replace_strict(order, default=len(order), return_dtype=pl.Int64)
    ).sort("turn", "place")
    # One dataset after the other within a turn, so that no dataset takes all five places.
    chosen = (
        chosen.with_columns(round=pl.col("turn").cum_count().over("dataset")).sort("round", "order").head(PER_GROUP)
    )
    return [_cells(row, group) for row in chosen.to_dicts()]


def _cells(row: dict[str, object], group: str) -> tuple[str, ...]:
    answers = row.get("answers")
    accepted = (
        "; ".join(map(str, answers)) if isinstance(answers, Sequence) and not isinstance(answers, str) else answers
    )
    truth = {True: "true", False: "false"}.get(bool(row["truthful"])) if row.get("truthful") is not None else "unknown"
    texts = (row["question"], row["model_answer"], accepted)
    dataset = display_name(str(row["dataset"]))
    return (group, str(row.get("pathway_corrected") or "–"), dataset, *map(_short, texts), str(truth))


def _short(value: object) -> str:
    text = " ".join(str(value if value is not None else "").split())
    return text if len(text) <= _LONGEST_CELL else text[: _LONGEST_CELL - 1] + "…"
