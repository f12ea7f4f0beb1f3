"""Fitted detectors that are made of others: sums of parts, mixtures, routes, networks, and a way back to confidence."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Float
from scipy.special import expit, log_expit
from torch import Tensor

from anchorscope.detectors.features import CLEAN, Features, Needs, StateKey
from anchorscope.detectors.fitted import Fitted, LinearProbe

Stored = tuple[dict[str, Tensor], dict[str, Any]]


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
        return store_parts(self.parts, {
            "part_weights": list(self.part_weights), "columns": list(self.columns),
            "column_weights": list(self.column_weights), "bias": self.bias,
        })  # fmt: skip

    @classmethod
    def from_stored(cls, tensors: Mapping[str, Tensor], values: Mapping[str, Any]) -> "WeightedSum":
        """The sum of what was stored."""
        return cls(
            load_parts(tensors, values), tuple(map(float, values["part_weights"])), tuple(map(str, values["columns"])),
            tuple(map(float, values["column_weights"])), float(values["bias"]),
        )  # fmt: skip


@dataclass(frozen=True)
class StateChange:
    """How far a cut moves a state, log(‖h − h′‖ / ‖h‖): no weights of its own, only a place."""

    kind: ClassVar[str] = "state-change"

    run: str
    site: str
    layer: int

    @property
    def needs(self) -> Needs:
        """The states with and without the cut."""
        return Needs(states=((CLEAN, self.site, self.layer), (self.run, self.site, self.layer)))

    def log_odds(self, features: Features) -> Float[np.ndarray, " item"]:
        """The logarithm of the relative change."""
        return state_change(*(features.states[key] for key in self.needs.states)).cpu().numpy()

    def stored(self) -> Stored:
        """Where it reads."""
        return {}, {"run": self.run, "site": self.site, "layer": self.layer}

    @classmethod
    def from_stored(cls, tensors: Mapping[str, Tensor], values: Mapping[str, Any]) -> "StateChange":
        """The same place."""
        return cls(str(values["run"]), str(values["site"]), int(values["layer"]))


def state_change(clean: Float[Tensor, "item d_model"], cut: Float[Tensor, "item d_model"]) -> Float[Tensor, " item"]:
    """log(‖h − h′‖ / ‖h‖), bounded below where nothing moves."""
    exact = clean.double()
    moved = torch.linalg.vector_norm(exact - cut.double().to(exact.device), dim=-1)
    return torch.log(moved / torch.linalg.vector_norm(exact, dim=-1).clamp(min=1e-12) + 1e-6)


@dataclass(frozen=True)
class MeasuredGate:
    """A gate by what the cut does: (|z − z′| − middle) / scale, z and z′ a probe's log-odds without and with the cut."""

    kind: ClassVar[str] = "measured-gate"

    clean: Fitted
    cut: Fitted
    middle: float
    scale: float

    @property
    def needs(self) -> Needs:
        """What both probes read."""
        return Needs.together([self.clean.needs, self.cut.needs])

    def log_odds(self, features: Features) -> Float[np.ndarray, " item"]:
        """Log-odds of "takes its evidence from the question"."""
        return (np.abs(self.clean.log_odds(features) - self.cut.log_odds(features)) - self.middle) / self.scale

    def stored(self) -> Stored:
        """Both probes, and where the middle lies."""
        return store_parts((self.clean, self.cut), {"middle": self.middle, "scale": self.scale})

    @classmethod
    def from_stored(cls, tensors: Mapping[str, Tensor], values: Mapping[str, Any]) -> "MeasuredGate":
        """The gate of what was stored."""
        clean, cut = load_parts(tensors, values)
        return cls(clean, cut, float(values["middle"]), float(values["scale"]))


@dataclass(frozen=True)
class Mixture:
    """Mixture-of-Probes: p = g · σ(question expert) + (1 − g) · σ(answer expert), g = σ(gate)."""

    kind: ClassVar[str] = "mixture"

    gate: Fitted
    question: Fitted
    answer: Fitted

    @property
    def needs(self) -> Needs:
        """What gate and experts read."""
        return Needs.together([self.gate.needs, self.question.needs, self.answer.needs])

    def log_odds(self, features: Features) -> Float[np.ndarray, " item"]:
        """Log-odds of the mixture's probability."""
        gate, question, answer = (one.log_odds(features) for one in (self.gate, self.question, self.answer))
        true = np.logaddexp(log_expit(gate) + log_expit(question), log_expit(-gate) + log_expit(answer))
        false = np.logaddexp(log_expit(gate) + log_expit(-question), log_expit(-gate) + log_expit(-answer))
        return true - false

    def stored(self) -> Stored:
        """Gate and experts."""
        return store_parts((self.gate, self.question, self.answer), {})

    @classmethod
    def from_stored(cls, tensors: Mapping[str, Tensor], values: Mapping[str, Any]) -> "Mixture":
        """The mixture of what was stored."""
        return cls(*load_parts(tensors, values))


@dataclass(frozen=True)
class Routed:
    """A hard gate: items whose gate is above zero go one way, all others the other."""

    kind: ClassVar[str] = "routed"

    gate: Fitted
    question: Fitted
    answer: Fitted

    @property
    def needs(self) -> Needs:
        """What gate and both ways read."""
        return Needs.together([self.gate.needs, self.question.needs, self.answer.needs])

    def log_odds(self, features: Features) -> Float[np.ndarray, " item"]:
        """Log-odds of the way that each item goes."""
        return np.where(
            self.gate.log_odds(features) > 0, self.question.log_odds(features), self.answer.log_odds(features)
        )

    def stored(self) -> Stored:
        """Gate and both ways."""
        return store_parts((self.gate, self.question, self.answer), {})

    @classmethod
    def from_stored(cls, tensors: Mapping[str, Tensor], values: Mapping[str, Any]) -> "Routed":
        """The routes of what was stored."""
        return cls(*load_parts(tensors, values))


@dataclass(frozen=True)
class Network:
    """Two hidden layers with ReLU on one state, which is first brought along its principal directions."""

    kind: ClassVar[str] = "network"

    key: StateKey
    weights: tuple[Tensor, ...]
    """Of the three layers, [out, in]; the first acts on the raw state."""
    biases: tuple[Tensor, ...]

    @property
    def needs(self) -> Needs:
        """The state that it reads."""
        return Needs(states=(self.key,))

    def log_odds(self, features: Features) -> Float[np.ndarray, " item"]:
        """The network's output."""
        values = features.states[self.key].double()
        last = len(self.weights) - 1
        for place, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            values = values @ weight.double().to(values.device).T + bias.double().to(values.device)
            values = values if place == last else values.relu()
        return values[:, 0].cpu().numpy()

    def stored(self) -> Stored:
        """All weights and biases."""
        tensors = {f"weight.{place}": one for place, one in enumerate(self.weights)}
        return tensors | {f"bias.{place}": one for place, one in enumerate(self.biases)}, {"key": list(self.key)}

    @classmethod
    def from_stored(cls, tensors: Mapping[str, Tensor], values: Mapping[str, Any]) -> "Network":
        """The network of what was stored."""
        run, site, layer = values["key"]
        weights, biases = (tuple(tensors[f"{name}.{place}"] for place in range(3)) for name in ("weight", "bias"))
        return cls((str(run), str(site), int(layer)), weights, biases)


@dataclass(frozen=True)
class WithFallback:
    """A detector with a range: items whose state lies outside that of the training states are left to another."""

    kind: ClassVar[str] = "with-fallback"

    detector: Fitted
    fallback: Fitted
    range: LinearProbe | Fitted
    """Its log-odds are above zero outside the range."""

    @property
    def needs(self) -> Needs:
        """What all three read."""
        return Needs.together([self.detector.needs, self.fallback.needs, self.range.needs])

    def log_odds(self, features: Features) -> Float[np.ndarray, " item"]:
        """The detector's log-odds inside the range, the fallback's outside."""
        share = expit(self.range.log_odds(features))
        return (1 - share) * self.detector.log_odds(features) + share * self.fallback.log_odds(features)

    def stored(self) -> Stored:
        """All three."""
        return store_parts((self.detector, self.fallback, self.range), {})

    @classmethod
    def from_stored(cls, tensors: Mapping[str, Tensor], values: Mapping[str, Any]) -> "WithFallback":
        """The detector of what was stored."""
        return cls(*load_parts(tensors, values))


@dataclass(frozen=True)
class TrainingRange:
    """How far a state lies from the training states: its whitened distance along their leading directions.

    Above zero where the distance is beyond that of nearly all training states.
    """

    kind: ClassVar[str] = "training-range"

    key: StateKey
    weight: Float[Tensor, "direction d_model"]
    """Directions, divided by their deviation in training."""
    offset: Float[Tensor, " direction"]
    limit: float
    """The distance at which the range ends."""
    scale: float
    """How fast it ends: the distances' own deviation."""

    @property
    def needs(self) -> Needs:
        """The state that it looks at."""
        return Needs(states=(self.key,))

    def log_odds(self, features: Features) -> Float[np.ndarray, " item"]:
        """(distance − limit) / scale."""
        states = features.states[self.key].double()
        along = states @ self.weight.double().to(states.device).T + self.offset.double().to(states.device)
        distance = along.square().mean(-1).sqrt().cpu().numpy()
        return (distance - self.limit) / self.scale

    def stored(self) -> Stored:
        """Directions and limit."""
        return {"weight": self.weight, "offset": self.offset}, {
            "key": list(self.key), "limit": self.limit, "scale": self.scale,
        }  # fmt: skip

    @classmethod
    def from_stored(cls, tensors: Mapping[str, Tensor], values: Mapping[str, Any]) -> "TrainingRange":
        """The range of what was stored."""
        run, site, layer = values["key"]
        key = (str(run), str(site), int(layer))
        return cls(key, tensors["weight"], tensors["offset"], float(values["limit"]), float(values["scale"]))


KINDS: dict[str, type[Fitted]] = {
    one.kind: one
    for one in (
        LinearProbe, WeightedSum, StateChange, MeasuredGate, Mixture, Routed, Network, WithFallback, TrainingRange,
    )
}  # fmt: skip
"""Every kind of fitted detector, by the name it is stored under."""


def store_parts(parts: tuple[Fitted, ...], values: dict[str, Any]) -> Stored:
    """Several fitted detectors as one: the tensors of each under its number."""
    tensors: dict[str, Tensor] = {}
    described = []
    for place, part in enumerate(parts):
        own, plain = part.stored()
        tensors |= {f"{place}.{name}": tensor for name, tensor in own.items()}
        described.append({"kind": part.kind, "values": plain})
    return tensors, {**values, "parts": described}


def load_parts(tensors: Mapping[str, Tensor], values: Mapping[str, Any]) -> tuple[Fitted, ...]:
    """The fitted detectors of what `store_parts` gave."""
    found = []
    for place, one in enumerate(values["parts"]):
        own = {name.partition(".")[2]: part for name, part in tensors.items() if name.partition(".")[0] == str(place)}
        found.append(KINDS[one["kind"]].from_stored(own, one["values"]))
    return tuple(found)
