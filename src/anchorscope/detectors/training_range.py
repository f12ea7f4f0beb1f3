"""Is a state like those that a detector was trained on? Probabilities of a state that is not mean nothing.

A state's distance is the mean distance to its nearest training states, along their leading principal directions, each
scaled to variance one. Training states often lie in clusters (one for each kind of question): a state between them is
far from all of them, though not far from their mean. The limit is a high quantile of the distances of training states
to those of other groups.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from anchorscope.detectors.features import Features, Needs, StateKey
from anchorscope.detectors.fitted import Stored, registered
from anchorscope.evidence_parts.principal import principal_directions

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
        """Above zero beyond the limit."""
        distance = self.distance_of(features.states[self.key])
        return (distance - self.limit) / (SOFT * max(self.limit, 1e-12))

    def is_outside(self, features: Features) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Which items lie beyond the limit; a state that is no number always does."""
        return ~(self.distance_of(features.states[self.key]) <= self.limit)

    def stored(self) -> Stored:
        """Its tensors, and plain values beside them."""
        tensors = {"weight": self.weight, "offset": self.offset, "known": self.known}
        return tensors, {"key": list(self.key), "limit": self.limit, "longest": self.longest}

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
