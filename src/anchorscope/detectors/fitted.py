"""Fitted detectors of every kind: features in, log-odds of "truthful" out; and their weights, to save and load.

Each is a small frozen record of tensors. `stored` gives them under names, with the few plain values that are no
tensors; `from_stored` makes the same detector of both. `TrainingRange` tells states unlike those of training by the
mean distance to their nearest training states along leading principal directions: training states lie in clusters, and
a state between them is far from all of them, though not far from their mean.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, Self, TypeVar, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float, Int
from scipy.special import expit, log_expit
from torch import Tensor

from anchorscope.detectors.features import CLEAN, QUESTION_ONLY, Features, Needs, StateKey
from anchorscope.errors import UserError
from anchorscope.evidence_parts.principal import principal_directions


@runtime_checkable
class Fitted(Protocol):
    """What every fitted detector can do."""

    kind: ClassVar[str]
    """The name it is stored under."""

    @property
    def needs(self) -> Needs:
        """What it reads."""
        ...

    def log_odds(self, features: Features) -> Float[np.ndarray, " item"]:
        """Log-odds of "truthful" of every item, not calibrated."""
        ...

    def stored(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Its tensors, and plain values beside them."""
        ...

    @classmethod
    def from_stored(cls, tensors: Mapping[str, Tensor], values: Mapping[str, Any]) -> "Fitted":
        """The detector of what was stored."""
        ...


Stored = tuple[dict[str, Tensor], dict[str, Any]]
"""Tensors by name, and plain values beside them."""
Kind = TypeVar("Kind", bound=type)
KINDS: dict[str, type[Fitted]] = {}
"""Every kind of fitted detector, by the name it is stored under."""
_BETWEEN = "/"


def registered(kind: Kind) -> Kind:
    """A class decorator: detectors of this kind can be loaded."""
    KINDS[kind.kind] = kind  # type: ignore[attr-defined]
    return kind


def kind_named(name: str) -> type[Fitted]:
    """The kind that is stored under a name."""
    if name not in KINDS:
        raise UserError(
            f"it holds a detector of the unknown kind {name!r}; known here: {', '.join(sorted(KINDS))}; load it with "
            f"the version of anchorscope that made it"
        )
    return KINDS[name]


def store_parts(parts: Mapping[str, Fitted]) -> Stored:
    """Several fitted detectors under their names: tensors as `NAME/TENSOR`, kind and values below `NAME`."""
    tensors: dict[str, Tensor] = {}
    records: dict[str, Any] = {}
    for name, part in parts.items():
        if _BETWEEN in name:
            raise ValueError(f"a part is called {name!r}; {_BETWEEN!r} stands between a part's name and its tensors'")
        own, values = part.stored()
        tensors |= {f"{name}{_BETWEEN}{inside}": tensor for inside, tensor in own.items()}
        records[name] = {"kind": part.kind, "values": values}
    return tensors, records


def load_parts(tensors: Mapping[str, Tensor], records: Mapping[str, Any]) -> dict[str, Fitted]:
    """The detectors of what `store_parts` gave; tensors of other names are left alone."""
    found: dict[str, Fitted] = {}
    for name, record in records.items():
        start = f"{name}{_BETWEEN}"
        own = {inside.removeprefix(start): tensor for inside, tensor in tensors.items() if inside.startswith(start)}
        found[name] = kind_named(str(record["kind"])).from_stored(own, record["values"])
    return found


@registered
@dataclass(frozen=True)
class LinearProbe:
    """One linear probe on the states of one run, site and layer."""

    kind: ClassVar[str] = "linear-probe"

    key: StateKey
    weight: Float[Tensor, " d_model"]
    bias: float

    @property
    def needs(self) -> Needs:
        """The states that it reads."""
        return Needs(states=(self.key,))

    def log_odds(self, features: Features) -> Float[np.ndarray, " item"]:
        """State times weight, plus bias; summed in float64, so that an item alone is scored as in a batch."""
        states = features.states[self.key]
        weight = self.weight.to(states.device, torch.double)
        return (states.double() @ weight + self.bias).cpu().numpy()

    def stored(self) -> Stored:
        """Its weight, and where it reads."""
        return {"weight": self.weight}, {"key": list(self.key), "bias": self.bias}

    @classmethod
    def from_stored(cls, tensors: Mapping[str, Tensor], values: Mapping[str, Any]) -> Self:
        """The probe of what was stored."""
        run, site, layer = values["key"]
        return cls((str(run), str(site), int(layer)), tensors["weight"], float(values["bias"]))


@registered
@dataclass(frozen=True)
class QuestionOrthogonal(LinearProbe):
    """A probe on a state without its part along the state before the answer begins."""

    kind: ClassVar[str] = "question-orthogonal"

    @property
    def needs(self) -> Needs:
        """Both states."""
        return Needs(states=(self.key, (QUESTION_ONLY, *self.key[1:])))

    def log_odds(self, features: Features) -> Float[np.ndarray, " item"]:
        """That part times weight, plus bias."""
        states = question_orthogonal(*(features.states[key] for key in self.needs.states))
        return super().log_odds(Features(features.n_items, {self.key: states}, {}))


def question_orthogonal(
    states: Float[Tensor, "item d_model"], question: Float[Tensor, "item d_model"]
) -> Float[Tensor, "item d_model"]:
    """h − (h·q / q·q) q, in double precision."""
    exact, along = states.double(), question.double().to(states.device)
    share = (exact * along).sum(-1, keepdim=True) / along.square().sum(-1, keepdim=True).clamp(min=1e-12)
    return exact - share * along


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


@registered
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


@registered
@dataclass(frozen=True)
class Network:
    """Hidden layers with ReLU on one state."""

    kind: ClassVar[str] = "network"

    key: StateKey
    weights: tuple[Tensor, ...]
    """Of the layers, [out, in]; the first acts on the raw state."""
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
        n = len(tensors) // 2
        weights, biases = (tuple(tensors[f"{name}.{place}"] for place in range(n)) for name in ("weight", "bias"))
        return cls((str(run), str(site), int(layer)), weights, biases)


DIRECTIONS = 32
"""Principal directions at most; one for every fourth item."""
NEIGHBOURS = 5
"""Nearest training states whose mean distance counts."""
BEYOND = 0.05
"""The share of training states that lies beyond the limit."""
MOST_STATES = 4000
"""Training states that are remembered: evenly spread over all of them where there are more."""
SOFT = 0.05
"""Of the limit: over so much a fallback takes over."""


@registered
@dataclass(frozen=True)
class TrainingRange:
    """The training states of one run, site and layer."""

    kind: ClassVar[str] = "training-range"

    key: StateKey
    weight: Float[Tensor, "direction d_model"]
    """Principal directions over their deviations: raw states times these are coordinates,"""
    offset: Float[Tensor, " direction"]
    """plus this."""
    known: Float[Tensor, "state direction"]
    """Coordinates of the training states."""
    limit: float
    """The largest distance that is still like training."""
    longest: int | None = None
    """Tokens of the longest prompt with its answer in training; None where nobody counted."""
    border: float | None = None
    """The distance from which on a fallback takes over; None where that is the limit."""

    @classmethod
    def fit(
        cls,
        key: StateKey,
        states: Float[Tensor, "item d_model"],
        longest: int | None = None,
        groups: Int[np.ndarray, " item"] | None = None,
        beyond: float = BEYOND,
    ) -> "TrainingRange":
        """The range of training states; states of one group are not each other's neighbours."""
        if len(states) < 4:
            raise ValueError(f"{len(states)} states have no range; at least 4 are needed")
        number = max(1, min(DIRECTIONS, len(states) // 4, states.shape[1]))
        found = principal_directions(states[None].float(), number)
        along = states.double().cpu() @ found.weight[0].T + found.offset[0]
        spread = along.std(dim=0).clamp(min=1e-9)
        coordinates = along / spread
        chosen = torch.linspace(0, len(states) - 1, min(len(states), MOST_STATES)).round().long()
        own = np.arange(len(states)) if groups is None else groups
        distances = neighbour_distances(coordinates[chosen], coordinates[chosen], own[chosen.numpy()])
        return cls(
            key,
            (found.weight[0] / spread[:, None]).float(),
            (found.offset[0] / spread).float(),
            coordinates[chosen].float(),
            float(distances.quantile(1 - beyond)),
            longest,
        )

    @property
    def needs(self) -> Needs:
        """The state that it looks at."""
        return Needs(states=(self.key,))

    def distance_of(self, states: Float[Tensor, "item d_model"]) -> Float[np.ndarray, " item"]:
        """Mean distance to the nearest training states."""
        device = states.device
        along = states.double() @ self.weight.double().to(device).T + self.offset.double().to(device)
        return neighbour_distances(along, self.known.double().to(device)).cpu().numpy()

    def log_odds(self, features: Features) -> Float[np.ndarray, " item"]:
        """Above zero beyond the border."""
        border = self.limit if self.border is None else self.border
        return (self.distance_of(features.states[self.key]) - border) / (SOFT * max(border, 1e-12))

    def is_outside(self, features: Features) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Which items lie beyond the limit; a state that is no number always does."""
        return ~(self.distance_of(features.states[self.key]) <= self.limit)

    def stored(self) -> Stored:
        """Its tensors, and plain values beside them."""
        tensors = {"weight": self.weight, "offset": self.offset, "known": self.known}
        return tensors, {"key": list(self.key), "limit": self.limit, "longest": self.longest, "border": self.border}

    @classmethod
    def from_stored(cls, tensors: Mapping[str, Tensor], values: Mapping[str, Any]) -> "TrainingRange":
        """The range of what was stored."""
        run, site, layer = values["key"]
        longest = None if values["longest"] is None else int(values["longest"])
        return cls(
            (str(run), str(site), int(layer)),
            tensors["weight"],
            tensors["offset"],
            tensors["known"],
            float(values["limit"]),
            longest,
            None if values.get("border") is None else float(values["border"]),
        )


def neighbour_distances(
    states: Float[Tensor, "item direction"],
    known: Float[Tensor, "state direction"],
    groups: Int[np.ndarray, " item"] | None = None,
) -> Float[Tensor, " item"]:
    """Mean distance of states to their nearest known ones; with `groups` both are the same states, and a group is not
    its own neighbour."""
    number = min(NEIGHBOURS, max(1, len(known) - 1))
    found = []
    for first in range(0, len(states), 1024):
        # Not by the matrix product's shortcut, in which an item alone and in a batch would differ.
        apart = torch.cdist(states[first : first + 1024], known, compute_mode="donot_use_mm_for_euclid_dist")
        if groups is not None:
            same = torch.as_tensor(groups[first : first + 1024, None] == groups[None])
            apart = apart.masked_fill(same.to(apart.device), torch.inf)
        nearest = apart.topk(number, dim=-1, largest=False).values
        found.append(torch.where(torch.isfinite(nearest), nearest, torch.nan).nanmean(-1))
    return torch.cat(found).nan_to_num(nan=torch.inf)
