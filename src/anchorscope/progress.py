"""How a long job reports its progress to any listener."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class PlannedStep:
    """One step of a job that is about to begin."""

    name: str
    """As the manifest names it: `atlas/probes`."""
    kind: str
    """Steps of one kind are equally fast: one's duration predicts the others'."""
    cost: float | None
    """Its usual amount of work; None if never measured."""
    seconds: float | None = None
    """Its duration, if it exists already."""


class Progress:
    """A listener that shows nothing. The pipeline reports its steps, the engine and the solver the parts of a step."""

    def plan(self, steps: Sequence[PlannedStep]) -> None:
        """The job's steps; those with `seconds` exist already."""

    def begin(self, step: str) -> None:
        """This step is being made; others may be made inside it."""

    def done(self, step: str) -> None:
        """This step was made."""

    def start(self, title: str, total: int) -> None:
        """A part of the work, of `total` units, begins."""

    def advance(self, units: int) -> None:
        """That many more units are done."""

    def finish(self) -> None:
        """This part is over."""

    def note(self, text: str) -> None:
        """A message for the user."""


Silent = Progress
