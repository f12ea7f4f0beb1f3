"""Runs side by side: what a comparison hands to its page, and the printed ΔP chart with a panel per run.

Models differ in depth. With `relative_depth` the x axis runs from the first layer (0) to the last (1), so that the same
place in two panels is the same share of the depth.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from anchorscope.report.charts.delta_p import delta_p_of_runs
from anchorscope.report.findings import Findings
from anchorscope.report.palette import display_name
from anchorscope.report.panel_figure import ExperimentFigure
from anchorscope.report.wording import Table

RANDOM_MARK = "RANDOM WEIGHTS"


@dataclass(frozen=True)
class Difference:
    """One thing in which the runs are not alike."""

    name: str
    """As `--allow` takes it: site, group-by, random-weights …"""
    refused: bool
    """Whether it is there only because the user allowed it."""
    values: Mapping[str, str]
    """What each run has, by the run's name."""
    words: str
    """The difference without its reason: "site: mlp in A; residual in B"."""
    reason: str
    """What it does to the comparison."""

    @property
    def text(self) -> str:
        """The whole line."""
        return f"{self.words}. {self.reason[:1].upper()}{self.reason[1:]}."

    def record(self) -> dict[str, Any]:
        """For programs."""
        kind = "allowed" if self.refused else "flag"
        return {"name": self.name, "kind": kind, "text": self.text, "values": dict(self.values)}


@dataclass(frozen=True)
class Compared:
    """Runs side by side, as the page sees them."""

    runs: tuple[Findings, ...]
    """In order of their panels; `model` is a name that no other run here has."""
    folders: tuple[str, ...]
    assignment: str = "plain"
    """The rule of the chart."""
    relative_depth: bool = False
    """Whether x runs from 0 to 1 instead of over the layers."""
    flags: tuple[Difference, ...] = ()
    command: str = ""
    """The command that repeats it."""
    kind: str = "comparison"
    title: str = ""
    """Of a study; a comparison is named after its runs."""
    all_runs: Table | None = None
    """Every run of a study, whatever its state."""
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


def panel_title(run: Findings) -> str:
    """The model's name; random weights are named where nobody can overlook them."""
    return f"{run.model} ({RANDOM_MARK})" if run.random_weights and RANDOM_MARK not in run.model else run.model


def delta_p_panels(compared: Compared) -> ExperimentFigure:
    """ΔP per layer of both groups under one rule with the random control: a panel per run, one legend, one y axis."""
    titles = {run.model: panel_title(run) for run in compared.runs}
    return delta_p_of_runs(compared.runs, compared.assignment, titles, _notes(compared), compared.relative_depth)


def _notes(compared: Compared) -> list[str]:
    """Where each run was read, if not the same for all, and the datasets that a run lacks."""
    read_at = {run.model: f"{run.site}, {run.position}" for run in compared.runs}
    places = "; ".join(f"{model} at {place}" for model, place in read_at.items())
    notes = [f"Read at different places: {places}."] if len(set(read_at.values())) > 1 else []
    for run in compared.runs:
        lacking = [display_name(name) for name in compared.datasets if name not in run.datasets]
        notes += [f"{run.model}: not run on {', '.join(lacking)}"] if lacking else []
    return notes
