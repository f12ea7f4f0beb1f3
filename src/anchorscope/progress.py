"""How a long job tells how far it is, without knowing who listens.

The pipeline tells its listener which steps there are to make (`plan`), and which one is being made (`begin`, `done`);
the engine and the solver tell how far they are within one (`start`, `advance`, `finish`). A terminal shows bars with
the time left, a notebook one line, a test nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable


@dataclass(frozen=True)
class PlannedStep:
    """One step of a job that is about to begin."""

    name: str
    """As the manifest names it: `atlas/probes`."""
    kind: str
    """Steps of one kind are as slow as each other here: what one of them took says how long the others will take."""
    cost: float | None
    """How much work it usually is; None where nobody has measured that."""
    seconds: float | None = None
    """What it took, if it is there already and need not be made."""


@runtime_checkable
class Progress(Protocol):
    """Who listens to a job."""

    def plan(self, steps: Sequence[PlannedStep]) -> None:
        """These steps belong to the job; those that have their `seconds` are there already."""

    def begin(self, step: str) -> None:
        """This step is being made; others may be made on the way."""

    def done(self, step: str) -> None:
        """This step was made."""

    def start(self, title: str, total: int) -> None:
        """A part of the work, of `total` units, begins."""

    def advance(self, units: int) -> None:
        """So many more units are done."""

    def finish(self) -> None:
        """This part is over."""

    def note(self, text: str) -> None:
        """Something that the user has to know."""


class Silent:
    """Listens and shows nothing."""

    def plan(self, steps: Sequence[PlannedStep]) -> None:
        pass

    def begin(self, step: str) -> None:
        pass

    def done(self, step: str) -> None:
        pass

    def start(self, title: str, total: int) -> None:
        pass

    def advance(self, units: int) -> None:
        pass

    def finish(self) -> None:
        pass

    def note(self, text: str) -> None:
        pass
