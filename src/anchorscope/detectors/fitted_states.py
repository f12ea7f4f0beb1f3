"""Fitted detectors that read states beyond one linear probe: a network, and how far a cut moves a state."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from anchorscope.detectors.features import CLEAN, Features, Needs, StateKey
from anchorscope.detectors.fitted import Stored, registered


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
