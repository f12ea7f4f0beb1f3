"""What a comparison hands to its page: the runs' findings under unique names, and what the reader must know first."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import polars as pl

from anchorscope.report.charts.line_chart import drawable
from anchorscope.report.findings import Findings
from anchorscope.report.wording import Table

RANDOM_MARK = "RANDOM WEIGHTS"


@dataclass(frozen=True)
class Flag:
    """A difference between the runs."""

    words: str
    """What differs, with every run's value."""
    reason: str
    """What that does to the comparison."""
    allowed: bool
    """Whether it would have been refused, had the user not allowed it."""


@dataclass(frozen=True)
class Compared:
    """Runs side by side, as the page sees them."""

    runs: tuple[Findings, ...]
    """In order of their panels; `model` is a name that no other run here has."""
    folders: tuple[str, ...]
    assignment: str = "plain"
    """The rule of the first chart."""
    relative_depth: bool = False
    """Whether x runs from 0 to 1 instead of over the layers."""
    flags: tuple[Flag, ...] = ()
    command: str = ""
    """The command that repeats it."""
    kind: str = "comparison"
    title: str = ""
    """Of a study; a comparison is named after its runs."""
    all_runs: Table | None = None
    """Every run of a study, whatever became of it."""
    pages: Mapping[str, str] = field(default_factory=dict)
    """Addresses of the runs' own pages, by name."""
    note: str = ""
    """What else a reader must know first, such as runs that failed."""
    same_weights: bool = False
    """Whether all runs have the same model."""

    @property
    def datasets(self) -> tuple[str, ...]:
        """Every dataset of any run, in the order in which they first appear."""
        return tuple(dict.fromkeys(name for run in self.runs for name in run.datasets))

    @property
    def second_assignment(self) -> str:
        """The rule of the second chart: corrected for the common shift, or the paper's where the first is that."""
        return "plain" if self.assignment == "corrected" else "corrected"


def panel_title(run: Findings) -> str:
    """The model's name; random weights are named where nobody can overlook them."""
    return f"{run.model} ({RANDOM_MARK})" if run.random_weights and RANDOM_MARK not in run.model else run.model


def chart_rows(run: Findings, assignment: str) -> pl.DataFrame:
    """The curves of a run's chart under one rule: knockout and random cut, all items, its headline place."""
    wanted = (
        (pl.col("assignment") == assignment)
        & (pl.col("truth") == "all")
        & pl.col("intervention").is_in(["knockout", "random"])
        & pl.col("dataset").is_in(run.datasets)
    )
    return drawable(run.curves, run.site, run.position).filter(wanted)
