"""Fitted detectors of every kind: features in, log-odds of "truthful" out; and their weights, to save and load.

Each is a small frozen record whose fields are tensors, other detectors and plain values; `store` and `load` turn any of
them into named tensors and a JSON record and back. `TrainingRange` tells states unlike those of training by the mean
distance to their nearest training states along leading principal directions: training states lie in clusters, and a
state between them is far from all of them, though not far from their mean.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, TypeVar, get_type_hints

import numpy as np
import torch
from jaxtyping import Bool, Float
from pydantic import ConfigDict, TypeAdapter
from torch import Tensor

from anchorscope.detectors.features import (
    TEXT_BUCKETS,
    TEXT_STATE,
    TEXTS,
    Features,
    Needs,
    StateKey,
    needs_of,
)
from anchorscope.errors import UserError
from anchorscope.json_text import to_json


class Fitted(ABC):
    """A fitted detector; a subclass is a frozen dataclass."""

    kind: ClassVar[str]
    """The name it is stored under."""

    @property
    def needs(self) -> Needs:
        """What the detectors read that it is made of, the states of its `key`, and its `columns`."""
        values = vars(self)
        flat = [
            part
            for value in values.values()
            for part in (value if isinstance(value, tuple) else (value,))
        ]
        parts = [part.needs for part in flat if isinstance(part, Fitted)]
        own = [needs_of(values["key"])] if "key" in values else []
        return Needs.together([*parts, *own, Needs(columns=values.get("columns", ()))])

    @abstractmethod
    def log_odds(self, features: Features) -> Float[np.ndarray, " item"]:
        """Log-odds of "truthful" of every item, not calibrated."""

    def check(self, d_model: int) -> None:
        """Raises `ValueError` where parts don't fit each other, or states of this width."""
        for value in vars(self).values():
            for part in value if isinstance(value, tuple) else (value,):
                if isinstance(part, Fitted):
                    part.check(d_model)


T = TypeVar("T")


def _refuse_unequal(what: str, *sizes: int) -> None:
    if len(set(sizes)) > 1:
        raise ValueError(f"{what}: {' and '.join(map(str, sizes))} do not fit")


def _width(key: StateKey, d_model: int) -> int:
    return TEXT_BUCKETS if key == TEXT_STATE else d_model


def store(part: Any, path: str, tensors: dict[str, Tensor]) -> dict[str, Any]:
    """The plain values of a dataclass; its tensors go into `tensors`, named by their path."""
    values: dict[str, Any] = {}
    for name, hint in _fields_of(type(part)).items():
        value = getattr(part, name)
        if hint is Tensor:
            tensors[f"{path}/{name}"] = value
        elif hint == tuple[Tensor, ...]:
            tensors |= {
                f"{path}/{name}.{number}": tensor for number, tensor in enumerate(value)
            }
        elif isinstance(value, Fitted):
            values[name] = store_detector(value, f"{path}/{name}", tensors)
        elif hint == tuple[Fitted, ...]:
            values[name] = {
                str(n): store_detector(inner, f"{path}/{n}", tensors)
                for n, inner in enumerate(value)
            }
        else:
            values[name] = TypeAdapter(hint).dump_python(value, mode="json")
    return values


def store_detector(
    fitted: Fitted, path: str, tensors: dict[str, Tensor]
) -> dict[str, Any]:
    return {"kind": fitted.kind, "values": store(fitted, path, tensors)}


def load(
    kind: type[T], tensors: Mapping[str, Tensor], values: Mapping[str, Any], path: str
) -> T:
    """What `store` was given; raises KeyError or ValueError where something is missing or of another type."""
    parts: dict[str, Any] = {}
    for name, hint in _fields_of(kind).items():
        if hint is Tensor:
            parts[name] = tensors[f"{path}/{name}"]
            _refuse_form(parts[name], get_type_hints(kind)[name])
        elif hint == tuple[Tensor, ...]:
            n = sum(key.startswith(f"{path}/{name}.") for key in tensors)
            parts[name] = tuple(
                tensors[f"{path}/{name}.{number}"] for number in range(n)
            )
        elif hint == tuple[Fitted, ...]:
            n = len(values[name])
            parts[name] = tuple(
                load_detector(tensors, values[name][str(i)], f"{path}/{i}")
                for i in range(n)
            )
        elif isinstance(hint, type) and issubclass(hint, Fitted):
            parts[name] = load_detector(tensors, values[name], f"{path}/{name}")
            if not isinstance(parts[name], hint):
                raise ValueError(f"{name} is no {hint.kind}")
        elif name in values:
            plain: TypeAdapter[Any] = TypeAdapter(hint, config=_STRICT)
            parts[name] = plain.validate_json(to_json(values[name]))
    return kind(**parts)


_STRICT = ConfigDict(strict=True, allow_inf_nan=False)


def _refuse_form(tensor: Tensor, hint: Any) -> None:
    if not isinstance(tensor, hint):
        raise ValueError(f"a tensor {list(tensor.shape)} of {tensor.dtype}")


def load_detector(
    tensors: Mapping[str, Tensor], record: Mapping[str, Any], path: str
) -> Fitted:
    """A detector of {"kind", "values"}; an unknown kind is refused."""
    kinds = {kind.kind: kind for kind in Fitted.__subclasses__()}
    if record["kind"] not in kinds:
        raise UserError(
            f"it holds a detector of the unknown kind {record['kind']!r}; known here: {', '.join(sorted(kinds))}; load "
            f"it with the version of anchorscope that made it"
        )
    return load(kinds[record["kind"]], tensors, record["values"], path)


def _fields_of(kind: Any) -> dict[str, Any]:
    """The types of a dataclass's fields, by name; that of a tensor without its shape."""
    hints = get_type_hints(kind)
    return {
        field.name: getattr(hints[field.name], "array_type", hints[field.name])
        for field in fields(kind)
    }


@dataclass(frozen=True)
class LinearProbe(Fitted):
    """One linear probe on the states of one run, site and layer."""

    kind: ClassVar[str] = "linear-probe"

    key: StateKey
    weight: Float[Tensor, " d_model"]
    bias: float

    def log_odds(self, features: Features) -> Float[np.ndarray, " item"]:
        """State times weight, plus bias; summed in float64, so that an item alone is scored as in a batch."""
        states = features.state(self.key)
        weight = self.weight.to(states.device, torch.double)
        return (states.double() @ weight + self.bias).cpu().numpy()

    def check(self, d_model: int) -> None:
        _refuse_unequal("weight", len(self.weight), _width(self.key, d_model))


@dataclass(frozen=True)
class WeightedSum(Fitted):
    """Weighted parts and columns, plus a bias: what stacking gives."""

    kind: ClassVar[str] = "weighted-sum"

    parts: tuple[Fitted, ...]
    part_weights: tuple[float, ...]
    columns: tuple[str, ...]
    column_weights: tuple[float, ...]
    bias: float

    def log_odds(self, features: Features) -> Float[np.ndarray, " item"]:
        total = np.full(features.n_items, self.bias)
        for part, weight in zip(self.parts, self.part_weights, strict=True):
            total = total + weight * part.log_odds(features)
        for name, weight in zip(self.columns, self.column_weights, strict=True):
            total = total + weight * np.asarray(
                features.columns[name], dtype=np.float64
            )
        return total

    def check(self, d_model: int) -> None:
        super().check(d_model)
        _refuse_unequal("part weights", len(self.parts), len(self.part_weights))
        _refuse_unequal("column weights", len(self.columns), len(self.column_weights))
        if not set(TEXTS).isdisjoint(self.columns):
            raise ValueError("a text has no weight")


@dataclass(frozen=True)
class Mixture(Fitted):
    """Mixture-of-Probes: p = g · σ(question expert) + (1 − g) · σ(answer expert), g = σ(gate)."""

    kind: ClassVar[str] = "mixture"

    gate: Fitted
    question: Fitted
    answer: Fitted

    def log_odds(self, features: Features) -> Float[np.ndarray, " item"]:
        parts = [
            torch.from_numpy(part.log_odds(features))
            for part in (self.gate, self.question, self.answer)
        ]
        return mix_log_odds(*parts).numpy()


def mix_log_odds(gate: Tensor, question: Tensor, answer: Tensor) -> Tensor:
    log_sigmoid = torch.nn.functional.logsigmoid
    true = torch.logaddexp(
        log_sigmoid(gate) + log_sigmoid(question),
        log_sigmoid(-gate) + log_sigmoid(answer),
    )
    false = torch.logaddexp(
        log_sigmoid(gate) + log_sigmoid(-question),
        log_sigmoid(-gate) + log_sigmoid(-answer),
    )
    return true - false


@dataclass(frozen=True)
class WithFallback(Fitted):
    """A detector with a range: items whose state lies outside that of the training states are left to another."""

    kind: ClassVar[str] = "with-fallback"

    detector: Fitted
    fallback: Fitted
    range: "TrainingRange"

    def log_odds(self, features: Features) -> Float[np.ndarray, " item"]:
        """The detector's log-odds inside the range, the fallback's outside."""
        share = torch.sigmoid(torch.from_numpy(self.range.log_odds(features))).numpy()
        return (1 - share) * self.detector.log_odds(
            features
        ) + share * self.fallback.log_odds(features)


@dataclass(frozen=True)
class Network(Fitted):
    """Hidden layers with ReLU on one state."""

    kind: ClassVar[str] = "network"

    key: StateKey
    weight: tuple[Tensor, ...]
    """Of the layers, [out, in]; the first acts on the raw state."""
    bias: tuple[Tensor, ...]

    def log_odds(self, features: Features) -> Float[np.ndarray, " item"]:
        values = features.state(self.key).double()
        last = len(self.weight) - 1
        for number, (weight, bias) in enumerate(
            zip(self.weight, self.bias, strict=True)
        ):
            values = values @ weight.double().to(values.device).T + bias.double().to(
                values.device
            )
            values = values if number == last else values.relu()
        return values[:, 0].cpu().numpy()

    def check(self, d_model: int) -> None:
        _refuse_unequal("layers", len(self.weight), len(self.bias))
        width = _width(self.key, d_model)
        for weight, bias in zip(self.weight, self.bias, strict=True):
            _refuse_form(weight, Float[Tensor, "out in"])
            _refuse_form(bias, Float[Tensor, " out"])
            _refuse_unequal("inputs of a layer", weight.shape[1], width)
            _refuse_unequal("outputs of a layer", weight.shape[0], len(bias))
            width = len(bias)
        if not self.weight or width != 1:
            raise ValueError("the last layer has not one output")


NEIGHBOURS = 5
"""Nearest training states whose mean distance counts."""


@dataclass(frozen=True)
class TrainingRange(Fitted):
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
    """Tokens of the longest prompt with its answer in training; None where it was not counted."""
    border: float | None = None
    """The distance from which on a fallback takes over; None where that is the limit."""
    softness: float = 0.05
    """The width over which it takes over, as a share of that distance."""

    def distance_of(
        self, states: Float[Tensor, "item d_model"]
    ) -> Float[np.ndarray, " item"]:
        """Mean distance to the nearest training states."""
        device = states.device
        along = states.double() @ self.weight.double().to(
            device
        ).T + self.offset.double().to(device)
        known, number = (
            self.known.double().to(device),
            min(NEIGHBOURS, max(1, len(self.known) - 1)),
        )
        # Not by the matrix product's shortcut, in which an item alone and in a batch would differ.
        apart = [
            torch.cdist(part, known, compute_mode="donot_use_mm_for_euclid_dist")
            for part in along.split(1024)
        ]
        return (
            torch.cat([mean_of_nearest(part, number) for part in apart]).cpu().numpy()
        )

    def log_odds(self, features: Features) -> Float[np.ndarray, " item"]:
        """Above zero beyond the border."""
        border = self.limit if self.border is None else self.border
        return (self.distance_of(features.state(self.key)) - border) / (
            self.softness * max(border, 1e-12)
        )

    def is_outside(self, features: Features) -> Bool[np.ndarray, " item"]:
        """Which items lie beyond the limit; a state that is no number always does."""
        return ~(self.distance_of(features.state(self.key)) <= self.limit)

    def check(self, d_model: int) -> None:
        directions, width = self.weight.shape
        _refuse_unequal("weight", width, _width(self.key, d_model))
        _refuse_unequal("directions", directions, len(self.offset), self.known.shape[1])
        if not len(self.known) or self.softness <= 0:
            raise ValueError("no state, or no softness")


def mean_of_nearest(
    apart: Float[Tensor, "item state"], number: int
) -> Float[Tensor, " item"]:
    """Mean of the smallest distances; infinite ones are left out, and infinite where there is no other."""
    nearest = apart.topk(number, dim=-1, largest=False).values
    return (
        torch.where(torch.isfinite(nearest), nearest, torch.nan)
        .nanmean(-1)
        .nan_to_num(nan=torch.inf)
    )
