"""What a comparison hands to its page: the runs' findings under unique names, and what the reader has to know first."""

from dataclasses import dataclass

import polars as pl

from anchorscope.report.charts.line_chart import drawable
from anchorscope.report.findings import Findings

RANDOM_MARK = "RANDOM WEIGHTS"


@dataclass(frozen=True)
class Flag:
    """A difference between the runs that stands beside their curves."""

    words: str
    """What differs, with every run's value."""
    reason: str
    """What that does to the comparison."""
    allowed: bool
    """Whether it would have been refused, had the user not asked for it."""


@dataclass(frozen=True)
class Compared:
    """Runs side by side, as the page sees them."""

    runs: tuple[Findings, ...]
    """In order of their panels; `model` is a name that no other run here has."""
    folders: tuple[str, ...]
    """The names of their folders."""
    assignment: str = "plain"
    """The rule of the first chart and of the trends."""
    relative_depth: bool = False
    """Whether x runs from 0 to 1 instead of over the layers."""
    flags: tuple[Flag, ...] = ()
    command: str = ""
    """The command that repeats it."""

    @property
    def datasets(self) -> tuple[str, ...]:
        """Every dataset of any run, in the order in which they first appear."""
        return tuple(dict.fromkeys(name for run in self.runs for name in run.datasets))

    @property
    def shared(self) -> tuple[str, ...]:
        """The datasets that all runs have."""
        return tuple(name for name in self.datasets if all(name in run.datasets for run in self.runs))

    @property
    def second_assignment(self) -> str:
        """The rule of the second chart: with the common shift taken out, or the paper's where the first is that."""
        return "plain" if self.assignment == "corrected" else "corrected"


def panel_title(run: Findings) -> str:
    """The model's name; random weights are said there, where nobody can overlook them."""
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
