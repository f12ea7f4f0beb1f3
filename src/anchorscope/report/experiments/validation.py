"""The page of the calibration: how well each experiment finds pathways that were planted."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl

from anchorscope.progress import Progress, Silent
from anchorscope.report.charts.draughtsmen import save_all
from anchorscope.report.experiments.confusion import ConfusionChart, confusion_tables
from anchorscope.report.experiments.recovery import RecoveryChart, other_recovery_table, recovery_table
from anchorscope.report.experiments.section import Plate, Section, filled
from anchorscope.report.page import write_page
from anchorscope.report.tables import Table

HOW_TO_READ = (
    "The model of this page was trained on a made-up language. For some of its items the truth of an answer can only "
    "be known from the question, for others only from the answer, for some from both. So the pathway of every item "
    "is known, and each experiment can be marked. Truth and pathway are crossed: with equal shares, knowing one says "
    "nothing of the other.",
    "AUC is the chance that an item planted in the question gets a higher score than one planted in the answer: 1 is "
    "perfect, 0.5 guessing. The columns within true and within false answers decide: a rule that only follows the "
    "label does well on neither. The matrices show what a rule calls the items, planted pathway by planted pathway.",
    "What holds here holds for a small model with clean pathways. A rule that fails here should not be trusted "
    "elsewhere; one that succeeds has passed an easy test.",
)


@dataclass(frozen=True)
class Validation:
    """What the calibration found."""

    title: str
    summary: Sequence[str]
    """Sentences from the numbers."""
    recovery: pl.DataFrame
    """Columns of `RECOVERY_SCHEMA`."""
    confusion: pl.DataFrame
    """Columns of `CONFUSION_SCHEMA`."""
    facts: Mapping[str, str] = field(default_factory=dict)
    """What was run, in display order."""
    command: str = ""
    """The command that repeats it."""
    sections: Sequence[Section] = ()
    """Further parts, shown after the matrices."""


def write_validation(validation: Validation, out: Path, progress: Progress | None = None) -> None:
    """Write figures/recovery and figures/confusion, validation.html and validation.md."""
    out.mkdir(parents=True, exist_ok=True)
    listener = progress or Silent()
    charts = [
        RecoveryChart.from_table(validation.recovery, f"{validation.title}: recovery"),
        ConfusionChart.from_counts(validation.confusion, f"{validation.title}: planted and called"),
    ]
    listener.start("figures", len(charts))
    save_all(charts, out, listener)
    listener.finish()
    recovery, others = recovery_table(validation.recovery), other_recovery_table(validation.recovery)
    parts = [
        Section("recovery", "Recovery", (), filled(("", recovery), ("Other measures", others)),
                (Plate("recovery", "AUC for the planted pathway by experiment", "The line at 0.5 is guessing."),)),
        Section("confusion", "Planted and called", (), _named(confusion_tables(validation.confusion)),
                (Plate("confusion", "Planted against called pathways", "Darker: a larger share of the row."),)),
        *validation.sections,
    ]  # fmt: skip
    content = {"validation": validation, "parts_shown": parts, "how_to_read": HOW_TO_READ}
    for name in ("validation.html", "validation.md"):
        write_page(name, content, out)


def _named(tables: tuple[tuple[str, Table], ...]) -> tuple[tuple[str, Table], ...]:
    return tuple((f"Rule: {rule}", table) for rule, table in tables)
