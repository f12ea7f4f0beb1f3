"""A detector that has been fitted: features in, log-odds of "truthful" out; and its weights, to save and load.

Every kind of fitted detector is a small frozen record of tensors. `stored` gives them under names, with the few plain
values that are no tensors; `from_stored` makes the same detector of both.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, TypeVar, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from anchorscope.detectors.features import Features, Needs, StateKey
from anchorscope.errors import UserError


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
    def from_stored(cls, tensors: Mapping[str, Tensor], values: Mapping[str, Any]) -> "LinearProbe":
        """The probe of what was stored."""
        run, site, layer = values["key"]
        return cls((str(run), str(site), int(layer)), tensors["weight"], float(values["bias"]))
