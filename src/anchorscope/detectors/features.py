"""What a detector reads of an item: states of some runs, sites and layers, and plain numbers.

A run is named as in the result files: `clean`, an intervention (`knockout`, `random`), or another text or model
(`question-only`, `answer-only`, `random-weights`, `boost-question-1`, …). All states are those of one position.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

CLEAN = "clean"
CONFIDENCE = ("log_prob_mean", "log_prob_min", "log_prob_first", "margin_first", "entropy_mean")
"""The model's confidence in its answer: mean, least and first log-probability of the answer's tokens, the first
token's lead over the next best one, and the mean entropy of the distributions that the tokens were drawn from."""

StateKey = tuple[str, str, int]
"""(run, site, layer) of states."""


@dataclass(frozen=True)
class Needs:
    """What a detector asks for."""

    states: tuple[StateKey, ...] = ()
    columns: tuple[str, ...] = ()

    @property
    def runs(self) -> tuple[str, ...]:
        """The runs whose states it reads."""
        return tuple(dict.fromkeys(run for run, _, _ in self.states))

    @staticmethod
    def together(several: "Iterable[Needs]") -> "Needs":
        """What all of these ask for."""
        parts = tuple(several)
        states = dict.fromkeys(key for one in parts for key in one.states)
        return Needs(tuple(states), tuple(dict.fromkeys(name for one in parts for name in one.columns)))


@dataclass(frozen=True)
class Features:
    """What is known of some items."""

    n_items: int
    states: Mapping[StateKey, Float[Tensor, "item d_model"]]
    columns: Mapping[str, Float[np.ndarray, " item"]]

    def take(self, items: Sequence[int] | Int[np.ndarray, " chosen"]) -> "Features":
        """Some of the items, in this order."""
        chosen = np.asarray(items, dtype=np.int64)
        places = torch.from_numpy(chosen)
        states = {key: found[places.to(found.device)] for key, found in self.states.items()}
        return Features(len(chosen), states, {name: found[chosen] for name, found in self.columns.items()})

    def only(self, needs: Needs) -> "Features":
        """Nothing but what is needed."""
        states = {key: self.states[key] for key in needs.states}
        return Features(self.n_items, states, {name: self.columns[name] for name in needs.columns})

    def has(self, needs: Needs) -> bool:
        """Whether all of this is here."""
        return all(key in self.states for key in needs.states) and all(name in self.columns for name in needs.columns)
