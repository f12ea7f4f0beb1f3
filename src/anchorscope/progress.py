"""How a long job reports how far it is, without knowing who listens."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class PlannedStep:
    """One step of a job that is about to begin."""

    name: str
    """As the manifest names it: `atlas/probes`."""
    kind: str
    """Steps of one kind are equally fast here: what one took tells how long the others will take."""
    cost: float | None
    """How much work it usually is; None where nobody has measured that."""
    seconds: float | None = None
    """What it took, if it's there already."""


class Progress:
    """A listener that shows nothing. The pipeline reports its steps, the engine and the solver the parts of a step."""

    def plan(self, steps: Sequence[PlannedStep]) -> None:
        """The job's steps; those that have their `seconds` are there already."""

    def begin(self, step: str) -> None:
        """This step is being made; others may be made on the way."""

    def done(self, step: str) -> None:
        """This step was made."""

    def start(self, title: str, total: int) -> None:
        """A part of the work, of `total` units, begins."""

    def advance(self, units: int) -> None:
        """That many more units are done."""

    def finish(self) -> None:
        """This part is over."""

    def note(self, text: str) -> None:
        """Something that the user has to know."""


Silent = Progress
