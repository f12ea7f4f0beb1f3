"""The runs' own main readings, one beside the other: the same claim on the same dataset, a column per run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from anchorscope.report.palette import display_name
from anchorscope.report.readings import RULES
from anchorscope.report.readings.of_datasets import short_number


@dataclass(frozen=True)
class Cell:
    """One run's answer."""

    numbers: str
    verdict: str
    """Empty where the run has no such reading."""


@dataclass(frozen=True)
class Row:
    """One claim and the answer of every run."""

    claim: str
    """The claim in words, without any run's numbers."""
    cells: tuple[Cell, ...]


def side_by_side(readings: Mapping[str, Sequence[dict[str, Any]]]) -> tuple[Row, ...]:
    """Key readings that at least two runs have, in the order of the first that has them.

    A run on one dataset has its key readings there, one on several has them over all of them: where nothing meets so,
    the same claims are looked up dataset by dataset.
    """
    everything = [one for found in readings.values() for one in found]
    key_claims = {(one["assignment"], one["claim"]) for one in everything if one["key"]}
    rows = _rows([[one for one in found if one["key"]] for found in readings.values()])
    return rows or _rows([
        [one for one in found if (one["assignment"], one["claim"]) in key_claims] for found in readings.values()
    ])  # fmt: skip


def _rows(columns: Sequence[Sequence[dict[str, Any]]]) -> tuple[Row, ...]:
    by_id = [{one["id"]: one for one in column} for column in columns]
    rows = []
    for name in dict.fromkeys(name for found in by_id for name in found):
        answers = [found.get(name) for found in by_id]
        known = [one for one in answers if one is not None]
        if len(known) > 1:
            rows.append(Row(_claim(known[0]), tuple(_cell(one) for one in answers)))
    return tuple(rows)


def _claim(one: dict[str, Any]) -> str:
    """The claim of a reading, without any run's numbers."""
    subject = display_name(one["dataset"]) if one["dataset"] else "All datasets of the run"
    rule = f", {RULES[one['assignment']]}" if one["assignment"] else ""
    return f"{subject}{rule}: {one['statement']}"


def _cell(one: dict[str, Any] | None) -> Cell:
    return Cell("", "") if one is None else Cell(short_number(one), one["verdict"])
