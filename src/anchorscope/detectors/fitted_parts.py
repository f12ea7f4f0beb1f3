"""Fitted detectors that are made of others: weighted sums, gates, mixtures, routes, and a way back to another."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from jaxtyping import Float
from scipy.special import expit, log_expit
from torch import Tensor

from anchorscope.detectors.features import Features, Needs
from anchorscope.detectors.fitted import Fitted, Stored, load_parts, registered, store_parts


@registered
@dataclass(frozen=True)
class WeightedSum:
    """Weighted parts and columns, plus a bias: what stacking gives."""

    kind: ClassVar[str] = "weighted-sum"

    parts: tuple[Fitted, ...]
    part_weights: tuple[float, ...]
    columns: tuple[str, ...]
    column_weights: tuple[float, ...]
    bias: float

    @property
    def needs(self) -> Needs:
        """What its parts read, and its columns."""
        return Needs.together([*(part.needs for part in self.parts), Needs(columns=self.columns)])

    def log_odds(self, features: Features) -> Float[np.ndarray, " item"]:
        """The sum."""
        found = np.full(features.n_items, self.bias)
        for part, weight in zip(self.parts, self.part_weights, strict=True):
            found = found + weight * part.log_odds(features)
        for name, weight in zip(self.columns, self.column_weights, strict=True):
            found = found + weight * np.asarray(features.columns[name], dtype=np.float64)
        return found

    def stored(self) -> Stored:
        """Its parts under their numbers."""
        tensors, records = store_parts({str(place): part for place, part in enumerate(self.parts)})
        return tensors, {
            "parts": records,
            "part_weights": list(self.part_weights),
            "columns": list(self.columns),
            "column_weights": list(self.column_weights),
            "bias": self.bias,
        }

    @classmethod
    def from_stored(cls, tensors: Mapping[str, Tensor], values: Mapping[str, Any]) -> "WeightedSum":
        """The sum of what was stored."""
        parts = load_parts(tensors, values["parts"])
        return cls(
            tuple(parts[str(place)] for place in range(len(parts))),
            tuple(map(float, values["part_weights"])),
            tuple(map(str, values["columns"])),
            tuple(map(float, values["column_weights"])),
            float(values["bias"]),
        )


class _MadeOfDetectors:
    """What detectors share that are made of other detectors, which are their fields, and of nothing else."""

    @property
    def needs(self) -> Needs:
        """What all of them read."""
        return Needs.together([part.needs for part in vars(self).values()])

    def stored(self) -> Stored:
        """All of them, under the names of the fields."""
        return store_parts(vars(self))

    @classmethod
    def from_stored(cls, tensors: Mapping[str, Tensor], values: Mapping[str, Any]) -> Self:
        """The detector of what was stored."""
        return cls(**load_parts(tensors, values))


@registered
@dataclass(frozen=True)
class Mixture(_MadeOfDetectors):
    """Mixture-of-Probes: p = g · σ(question expert) + (1 − g) · σ(answer expert), g = σ(gate)."""

    kind: ClassVar[str] = "mixture"

    gate: Fitted
    question: Fitted
    answer: Fitted

    def log_odds(self, features: Features) -> Float[np.ndarray, " item"]:
        """Log-odds of the mixture's probability."""
        gate, question, answer = (one.log_odds(features) for one in (self.gate, self.question, self.answer))
        true = np.logaddexp(log_expit(gate) + log_expit(question), log_expit(-gate) + log_expit(answer))
        false = np.logaddexp(log_expit(gate) + log_expit(-question), log_expit(-gate) + log_expit(-answer))
        return true - false


@registered
@dataclass(frozen=True)
class Routed(_MadeOfDetectors):
    """A hard gate: items whose gate is above zero go one way, all others the other."""

    kind: ClassVar[str] = "routed"

    gate: Fitted
    question: Fitted
    answer: Fitted

    def log_odds(self, features: Features) -> Float[np.ndarray, " item"]:
        """Log-odds of the way that each item goes."""
        return np.where(
            self.gate.log_odds(features) > 0, self.question.log_odds(features), self.answer.log_odds(features)
        )


@registered
@dataclass(frozen=True)
class WithFallback(_MadeOfDetectors):
    """A detector with a range: items whose state lies outside that of the training states are left to another."""

    kind: ClassVar[str] = "with-fallback"

    detector: Fitted
    fallback: Fitted
    range: Fitted
    """Its log-odds are above zero outside the range."""

    def log_odds(self, features: Features) -> Float[np.ndarray, " item"]:
        """The detector's log-odds inside the range, the fallback's outside."""
        share = expit(self.range.log_odds(features))
        return (1 - share) * self.detector.log_odds(features) + share * self.fallback.log_odds(features)
