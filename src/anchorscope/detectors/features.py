"""What a detector reads of an item, states and plain numbers, and how each is made for an item that is being scored.

A run is named as in the result files. A new answer is scored by one pass, the run `clean`; `question-only` is the same
pass, read before the answer begins. Detectors that read other runs (strengthened attention, random weights) can be
compared, and not used. All states are those of one position.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from anchorscope.engine.sequences import SITES
from anchorscope.errors import UserError

CLEAN = "clean"
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
        states = dict.fromkeys(key for part in parts for key in part.states)
        return Needs(tuple(states), tuple(dict.fromkeys(name for part in parts for name in part.columns)))


@dataclass(frozen=True)
class Features:
    """States and plain numbers of some items."""

    n_items: int
    states: Mapping[StateKey, Float[Tensor, "item d_model"]]
    columns: Mapping[str, Float[np.ndarray, " item"]]

    def take(self, items: Sequence[int] | Int[np.ndarray, " chosen"]) -> "Features":
        """Some of the items, in this order."""
        chosen = np.asarray(items, dtype=np.int64)
        index = torch.from_numpy(chosen)
        states = {key: values[index.to(values.device)] for key, values in self.states.items()}
        return Features(len(chosen), states, {name: values[chosen] for name, values in self.columns.items()})

    def only(self, needs: Needs) -> "Features":
        """Nothing but what is needed."""
        states = {key: self.states[key] for key in needs.states}
        return Features(self.n_items, states, {name: self.columns[name] for name in needs.columns})

    def has(self, needs: Needs) -> bool:
        """Whether all of this is present."""
        return all(key in self.states for key in needs.states) and all(name in self.columns for name in needs.columns)


QUESTION_ONLY = "question-only"
ANSWER_TOKENS = "answer_tokens"

Statistics = Float[np.ndarray, "statistic answer_token"]
"""Log-probability, margin and entropy of an answer's tokens."""

COLUMNS: Mapping[str, Callable[[Statistics], float]] = {
    "log_prob_mean": lambda statistics: float(statistics[0].mean()),
    "log_prob_min": lambda statistics: float(statistics[0].min()),
    "log_prob_first": lambda statistics: float(statistics[0, 0]),
    "margin_first": lambda statistics: float(statistics[1, 0]),
    "entropy_mean": lambda statistics: float(statistics[2].mean()),
}
"""Confidence by name, as `run --keep detection` names its columns, made of the clean run."""
CONFIDENCE = tuple(COLUMNS)
"""The model's confidence in its answer: mean, least and first log-probability of the answer's tokens, the first
token's lead over the next best one, and the mean entropy of the distributions that the tokens were drawn from."""


def refuse_unknown(needs: Needs, n_layers: int) -> None:
    """A detector that reads what cannot be measured of a new item is refused before anything is run."""
    for run, site, layer in needs.states:
        if run not in (CLEAN, QUESTION_ONLY):
            raise UserError(
                f"The detector reads states of the run {run!r}, which is not made of new answers: it can be compared "
                f"(anchorscope detect) but not used for scoring; choose another detector."
            )
        if site not in SITES or not 0 <= layer < n_layers:
            raise UserError(
                f"The detector reads site {site!r} of layer {layer}; the model has {', '.join(SITES)} of layers 0 to "
                f"{n_layers - 1}. Train it on this model."
            )
    for name in needs.columns:
        if name not in COLUMNS and name != ANSWER_TOKENS:
            raise UserError(
                f"The detector reads {name!r}, which is not measured of new answers (known: "
                f"{', '.join((*COLUMNS, ANSWER_TOKENS))}); choose another detector."
            )
