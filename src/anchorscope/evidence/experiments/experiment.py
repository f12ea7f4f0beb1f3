"""What a further experiment is: a name, a line about it, and a function from the ground to what it found."""

from collections.abc import Callable
from dataclasses import dataclass

from anchorscope.evidence.experiments.found import Found, ItemValues, Statistic
from anchorscope.evidence.experiments.ground import Ground

__all__ = ["Experiment", "Found", "Ground", "ItemValues", "Statistic"]


@dataclass(frozen=True)
class Experiment:
    """A registered experiment."""

    name: str
    """As in `--evidence` and in the column `experiment`."""
    about: str
    """One line for help and report."""
    run: Callable[[Ground], Found]
