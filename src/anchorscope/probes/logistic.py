"""Logistic regression for many layers, training sets and strengths at once.

The objective is scikit-learn's: C · Σ loss + ½‖w‖², intercept unpenalised, features standardised on the training set.
A problem is the states of one layer; its columns (training set × strength) share them. `coordinates` knows the states,
`descent` finds the minimum, `room` says how much is done at once.
"""

from dataclasses import dataclass, fields

import torch
from torch import Tensor
from torch.nn.functional import one_hot, pad

from anchorscope.models.process_settings import true_float32
from anchorscope.probes.coordinates import Coordinates, prepare
from anchorscope.probes.descent import TOLERANCE as TOLERANCE
from anchorscope.probes.descent import Columns, Solution, minimise
from anchorscope.probes.room import find_room, in_chunks


@dataclass(frozen=True)
class TrainingSets:
    """Which items each column learns from."""

    labels: Tensor
    """1 for true, 0 for false, [item]."""
    members: Tensor
    """1 where a column learns from an item, [column, item]."""
    scaled_on: Tensor
    """1 where an item belongs to the training set that the features are standardised on, [scaling, item]."""
    scaling: Tensor
    """The scaling that each column uses, [column]."""
    strengths: Tensor
    """C of each column, [column] or [problem, column]."""

    def to(self, device: torch.device) -> "TrainingSets":
        """The same on a device."""
        return TrainingSets(*(getattr(self, field.name).to(device) for field in fields(self)))


@dataclass(frozen=True)
class Fit:
    """Fitted probes, acting on the raw states."""

    weight: Tensor
    """[problem, column, d_model]."""
    bias: Tensor
    """[problem, column]."""
    logits: Tensor
    """Log-odds of "true" for every item, learned from or not, [problem, column, item]."""
    converged: Tensor
    """[problem, column], bool."""
    iterations: Tensor
    """Steps that each column took, [problem, column]."""


def fit_layers(
    states: Tensor, sets: TrainingSets, device: str | torch.device = "cpu", memory: int | None = None
) -> Fit:
    """Fits every column on the states [problem, item, d_model] of every problem; the result is in host memory.

    Strengths are [column]. `memory` limits what is used of the device, in bytes; by default what is free there.
    """
    device = torch.device(device)
    sets = sets.to(device)
    room = find_room(states, len(sets.members), device, memory)

    @torch.no_grad()
    def fit(chunk: Tensor) -> Fit:
        known = prepare(chunk, sets.scaled_on, room.items)
        found = solve(known, sets, room.columns)
        raw = known.to_raw(found.weight, found.intercept, sets.scaling)
        return Fit(*(part.cpu() for part in (*raw, found.logits, found.converged, found.iterations)))

    with true_float32():
        fits = [fitted for _, fitted in in_chunks(states, room, device, fit)]
    return Fit(*(torch.cat([getattr(one, field.name) for one in fits]) for field in fields(Fit)))


def solve(known: Coordinates, sets: TrainingSets, columns_at_once: int) -> Solution:
    """Fits every column in prepared coordinates, so many columns of every problem at once."""
    parts = [
        minimise(known, _columns(known, sets, part))
        for part in torch.arange(len(sets.members), device=sets.members.device).split(columns_at_once)
    ]
    if len(parts) == 1:
        return parts[0]
    return Solution(*(torch.cat([getattr(one, field.name) for one in parts], dim=1) for field in fields(Solution)))


def _columns(known: Coordinates, sets: TrainingSets, places: Tensor) -> Columns:
    n_scalings = len(sets.scaled_on)
    members = pad(sets.members[places].float(), (0, n_scalings))  # the scalings' means are rows, and teach nothing
    count = members.sum(-1).clamp(min=1)
    scaling = sets.scaling[places]
    return Columns(
        share=(members / count[:, None])[None],
        labels=pad(sets.labels.float(), (0, n_scalings)),
        own=one_hot(scaling, n_scalings).float()[None],
        gain=(1 / known.deviation).float()[:, scaling],
        penalty=(1 / (sets.strengths[..., places].float() * count)).expand(len(known.variances), -1).contiguous(),
        count=count[None],
    )
