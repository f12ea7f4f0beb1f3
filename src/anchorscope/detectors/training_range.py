"""Is a state like those that a detector was trained on? Probabilities of a state that is not mean nothing.

The states are described by their mean, their first principal directions, each scaled to variance one, and by how much
lies outside these. A state's distance is the root mean square of its scaled coordinates, the part outside counted as
one more. The limit is a high quantile of the distances of states that took no part in the description (two halves
describe each other), so that about one in so many of the same kind lies beyond it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from anchorscope.detectors.features import Features, StateKey

DIRECTIONS = 32
"""Principal directions at most; one for every tenth item."""
BEYOND = 0.005
"""The share of states of the same kind that lies beyond the limit."""


@dataclass(frozen=True)
class TrainingRange:
    """What the states of one run, site and layer looked like in training."""

    key: StateKey
    mean: Float[Tensor, " d_model"]
    directions: Float[Tensor, "direction d_model"]
    """Orthonormal."""
    scale: Float[Tensor, " direction_and_rest"]
    """Standard deviation along each direction, and of the part outside all of them."""
    limit: float
    """The largest distance that is still like training."""
    longest: int | None = None
    """Tokens of the longest prompt with its answer in training; None where nobody counted."""

    @classmethod
    def fit(
        cls, key: StateKey, states: Float[Tensor, "item d_model"], longest: int | None = None,
        directions: int = DIRECTIONS, beyond: float = BEYOND,
    ) -> "TrainingRange":  # fmt: skip
        """The range of training states."""
        if len(states) < 4:
            raise ValueError(f"{len(states)} states have no range; at least 4 are needed")
        number = max(1, min(directions, len(states) // 10, states.shape[1] - 1))
        halves = states[0::2], states[1::2]
        held_out = [_described(key, one, number).distance_of(other) for one, other in (halves, halves[::-1])]
        limit = float(np.quantile(np.concatenate(held_out), 1 - beyond))
        whole = _described(key, states, number)
        return cls(key, whole.mean, whole.directions, whole.scale, limit, longest)

    def distance_of(self, states: Float[Tensor, "item d_model"]) -> Float[np.ndarray, " item"]:
        """How far states lie from the mean, in standard deviations."""
        device = states.device
        off = states.double() - self.mean.double().to(device)
        along = off @ self.directions.double().to(device).T
        outside = (off.square().sum(dim=1) - along.square().sum(dim=1)).clamp_min(0).sqrt()
        coordinates = torch.cat((along, outside[:, None]), dim=1) / self.scale.double().to(device)
        return coordinates.square().mean(dim=1).sqrt().cpu().numpy()

    def is_outside(self, features: Features) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Which items lie beyond the limit; a state that is no number always does."""
        return ~(self.distance_of(features.states[self.key]) <= self.limit)

    def stored(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Its tensors, and plain values beside them."""
        tensors = {"mean": self.mean, "directions": self.directions, "scale": self.scale}
        return tensors, {"key": list(self.key), "limit": self.limit, "longest": self.longest}

    @classmethod
    def from_stored(cls, tensors: Mapping[str, Tensor], values: Mapping[str, Any]) -> "TrainingRange":
        """The range of what was stored."""
        run, site, layer = values["key"]
        longest = None if values["longest"] is None else int(values["longest"])
        return cls(
            (str(run), str(site), int(layer)), tensors["mean"], tensors["directions"], tensors["scale"],
            float(values["limit"]), longest,
        )  # fmt: skip


def _described(key: StateKey, states: Tensor, number: int) -> TrainingRange:
    """Mean, directions and scales of states."""
    exact = states.double()
    mean = exact.mean(dim=0)
    off = exact - mean
    directions = _principal(off, number)
    along = off @ directions.T
    outside = (off.square().sum(dim=1) - along.square().sum(dim=1)).clamp_min(0)
    scale = torch.cat((along.square().mean(dim=0), outside.mean()[None])).sqrt()
    scale = scale.clamp_min(1e-6 * float(scale.max()) + 1e-30)  # states that never differ in a direction
    found = (mean.float().cpu(), directions.float().cpu().contiguous(), scale.float().cpu())
    return TrainingRange(key, *found, limit=float("inf"))


def _principal(off: Float[Tensor, "item d_model"], number: int) -> Float[Tensor, "direction d_model"]:
    """The first principal directions, from whichever of the two squared matrices is smaller."""
    if off.shape[1] <= off.shape[0]:
        return torch.linalg.eigh(off.T @ off).eigenvectors.flip(1)[:, :number].T
    of_items = torch.linalg.eigh(off @ off.T).eigenvectors.flip(1)[:, :number]
    return torch.linalg.qr(off.T @ of_items).Q.T
