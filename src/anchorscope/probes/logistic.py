"""L2-regularised logistic regression for many layers, training sets and strengths at once.

The objective is scikit-learn's: C · Σ loss + ½‖w‖², intercept unpenalised, features standardised on the training set.
A problem is the states of one layer; its columns (training set × strength) share them. `standardise` prepares the
states, `conjugate_gradient` finds the minimum, `chunks` says how much is done at once.
"""

from dataclasses import dataclass, fields

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor
from torch.nn.functional import one_hot, pad

from anchorscope.models.process_settings import true_float32
from anchorscope.probes.chunks import ChunkPlan, in_chunks, plan_chunks
from anchorscope.probes.conjugate_gradient import TOLERANCE as TOLERANCE
from anchorscope.probes.conjugate_gradient import Columns, Solution, minimise
from anchorscope.probes.standardise import Standardised, standardise


@dataclass(frozen=True)
class TrainingSets:
    """Which items each column learns from."""

    labels: Shaped[Tensor, " item"] | Shaped[Tensor, "column item"]
    """1 for true, 0 for false; for all columns, or for each its own."""
    members: Shaped[Tensor, "column item"]
    """1 where a column learns from an item, or the item's weight."""
    scaled_on: Bool[Tensor, "scaling item"]
    """1 where an item belongs to the training set that the features are standardised on."""
    scaling: Int[Tensor, " column"]
    """The scaling that each column uses."""
    strengths: Float[Tensor, "*problem column"] | Float[Tensor, "0"]
    """C of each column; empty where it has yet to be chosen."""

    def to(self, device: torch.device) -> "TrainingSets":
        """The same on a device."""
        return TrainingSets(*(getattr(self, field.name).to(device) for field in fields(self)))


@dataclass(frozen=True)
class Fit:
    """Fitted probes, acting on the raw states."""

    weight: Float[Tensor, "problem column d_model"]
    bias: Float[Tensor, "problem column"]
    logits: Float[Tensor, "problem column item"]
    """Log-odds of "true" for every item, learned from or not."""
    converged: Bool[Tensor, "problem column"]
    iterations: Int[Tensor, "problem column"]
    """Steps that each column took."""
    notes: tuple[str, ...] = ()
    """Where memory ran out and chunks became smaller than planned."""


def fit_layers(
    states: Shaped[Tensor, "problem item d_model"],
    sets: TrainingSets,
    device: str | torch.device = "cpu",
    memory: int | None = None,
) -> Fit:
    """Fits every column on the states of every problem; the result is in host memory.

    Strengths are [column]. `memory` limits what one chunk of problems takes on the device, in bytes.
    """
    device = torch.device(device)
    sets = sets.to(device)
    n_problems, n_items, width = states.shape
    plan = plan_chunks((n_problems, n_items, width), len(sets.members), device, memory, states.element_size())

    @torch.no_grad()
    def fit(chunk: Tensor, plan: ChunkPlan) -> list[Tensor]:
        data = standardise(chunk, sets.scaled_on, plan.items)
        found = solve(data, sets, plan.columns)
        raw = data.to_raw(found.weight, found.intercept, sets.scaling)
        return [part.cpu() for part in (*raw, found.logits, found.converged, found.iterations)]

    notes: list[str] = []
    with true_float32():
        fits = list(in_chunks(states, plan, device, fit, notes))
    weight, bias, logits, converged, iterations = (torch.cat(parts) for parts in zip(*fits, strict=True))
    return Fit(weight, bias, logits, converged, iterations, tuple(notes))


def solve(data: Standardised, sets: TrainingSets, columns_at_once: int) -> Solution:
    """Fits every column on standardised states, so many columns of every problem at once."""
    parts = [
        minimise(data, _columns(data, sets, part))
        for part in torch.arange(len(sets.members), device=sets.members.device).split(columns_at_once)
    ]
    if len(parts) == 1:
        return parts[0]
    return Solution(*(torch.cat([getattr(one, field.name) for one in parts], dim=1) for field in fields(Solution)))


def _columns(data: Standardised, sets: TrainingSets, places: Tensor) -> Columns:
    n_scalings = len(sets.scaled_on)
    members = pad(sets.members[places].float(), (0, n_scalings))  # the scalings' means are rows, and teach nothing
    n_samples = members.sum(-1).clamp(min=1e-6)
    labels = sets.labels[None] if sets.labels.dim() == 1 else sets.labels[places]
    scaling = sets.scaling[places]
    penalty = 1 / (sets.strengths[..., places].float() * n_samples)
    return Columns(
        sample_weight=(members / n_samples[:, None])[None],
        labels=pad(labels.float(), (0, n_scalings))[None],
        scaling_one_hot=one_hot(scaling, n_scalings).float()[None],
        inverse_deviation=(1 / data.deviation).float()[:, scaling],
        penalty=penalty.expand(len(data.eigenvalues), -1).contiguous(),
        n_samples=n_samples[None],
    )
