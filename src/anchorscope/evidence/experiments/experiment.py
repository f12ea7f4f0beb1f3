"""What an experiment is: a function from its inputs to what it found, under the name that the catalogue gives it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module

from anchorscope.catalogue import EXPERIMENTS
from anchorscope.evidence.experiments.found import Found, ItemValues, Statistic
from anchorscope.evidence.experiments.inputs import ExperimentInputs

__all__ = ["Experiment", "ExperimentInputs", "Found", "ItemValues", "Statistic", "chosen_experiments"]


@dataclass(frozen=True)
class Experiment:
    """A registered experiment."""

    name: str
    """As in `--evidence` and in the column `experiment`."""
    about: str
    """What is computed, for the dry run."""
    run: Callable[[ExperimentInputs], Found]


def chosen_experiments(evidence: Sequence[str]) -> list[Experiment]:
    """Those asked for that are more than interventions, in the order in which they run."""
    homes = [one.home for one in EXPERIMENTS.values() if one.name in evidence and one.home is not None]
    return [_load(home) for home in homes]


def _load(home: str) -> Experiment:
    module, _, name = home.partition(":")
    found = getattr(import_module(module), name)
    assert isinstance(found, Experiment), f"{home} is no experiment"
    return found
