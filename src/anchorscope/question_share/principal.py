"""Principal directions: states reduced to the directions along which items differ most, before anything is explained.

With fewer items than directions a ridge regression cannot even explain a state by itself, and what it leaves
unexplained would pass for evidence that was lost. Labels play no part in the reduction, so it may see all items. Clean
and cut states have directions of their own: what the cut state holds is not measured by what the clean one looks like.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Float64, Shaped
from torch import Tensor

from anchorscope.models.process_settings import true_float32
from anchorscope.probes.chunks import ChunkPlan, in_chunks, plan_chunks
from anchorscope.probes.standardise import standardise
from anchorscope.progress import Progress, Silent

MOST_DIRECTIONS = 192
"""More directions change no result at several thousand items, and cost their square."""
ITEMS_PER_DIRECTION = 4
"""A fold of a half learns from 0.4 of all items: with one direction for every fourth item it has 1.6 for each."""
_ITERATIONS = 6  # of the subspace iteration: directions of nearly equal variance need some to settle


def default_directions(n_items: int, width: int) -> int:
    """How many directions are kept where none are asked for."""
    return max(1, min(MOST_DIRECTIONS, n_items // ITEMS_PER_DIRECTION, width))


@dataclass(frozen=True)
class Directions:
    """The leading principal directions of states, as a map that can be applied to other states."""

    weight: Float64[Tensor, "problem direction d_model"]
    offset: Float64[Tensor, "problem direction"]

    def reduce(
        self, states: Shaped[Tensor, "problem item d_model"], device: torch.device
    ) -> Float[Tensor, "problem item direction"]:
        """States along the directions, on the device; one problem at a time, in double precision."""
        found = [
            (one.to(device).double() @ weight.to(device).T + offset.to(device)).float()
            for one, weight, offset in zip(states, self.weight, self.offset, strict=True)
        ]
        return torch.stack(found)

    def to_raw(
        self, problem: int, weight: Float[Tensor, " direction"], bias: float
    ) -> tuple[Float64[Tensor, " d_model"], float]:
        """Weights along the directions as weights of raw states."""
        along = weight.double().cpu()
        return along @ self.weight[problem], bias + float(along @ self.offset[problem])


def principal_directions(
    states: Shaped[Tensor, "problem item d_model"], directions: int, device: str | torch.device = "cpu"
) -> Directions:
    """The leading principal directions of the standardised states, in host memory."""
    device = torch.device(device)
    n_problems, n_items, width = states.shape
    everyone = torch.ones(1, n_items, dtype=torch.bool, device=device)
    rank = min(directions, n_items - 1, width)
    plan = plan_chunks((n_problems, n_items, width), 2 * rank, device, None, states.element_size())

    @torch.no_grad()
    def find(chunk: Tensor, plan: ChunkPlan) -> tuple[Tensor, Tensor]:
        data = standardise(chunk, everyone, plan.items, rank, _ITERATIONS)
        scaled = data.eigenvectors.double() / data.deviation
        weight = scaled / data.scale.scale
        offset = -(data.mean * scaled).sum(-1) - (data.scale.center * weight).sum(-1)
        return weight.flip(1).cpu(), offset.flip(1).cpu()

    with true_float32():
        found = list(in_chunks(states, plan, device, find))
    return Directions(*(torch.cat(parts) for parts in zip(*found, strict=True)))


def principal_states(
    states: Shaped[Tensor, "problem item d_model"],
    directions: int,
    device: str | torch.device = "cpu",
    progress: Progress | None = None,
) -> Float[Tensor, "problem item direction"]:
    """The items along the leading principal directions of their standardised states, in host memory."""
    device = torch.device(device)
    n_problems, n_items, width = states.shape
    everyone = torch.ones(1, n_items, dtype=torch.bool, device=device)
    rank = min(directions, n_items - 1, width)
    plan = plan_chunks((n_problems, n_items, width), 2 * rank, device, None, states.element_size())

    @torch.no_grad()
    def project(chunk: Tensor, plan: ChunkPlan) -> Tensor:
        data = standardise(chunk, everyone, plan.items, rank, _ITERATIONS)
        along = data.eigenvectors / data.deviation.float()
        found = data.design.matmat(along)  # the last row is the mean
        return (found[..., :n_items] - found[..., n_items:]).transpose(1, 2).flip(-1).cpu()

    listener = progress or Silent()
    listener.start("principal directions", n_problems)
    found = []
    with true_float32():
        for chunk in in_chunks(states, plan, device, project):
            found.append(chunk)
            listener.advance(len(chunk))
    listener.finish()
    return torch.cat(found)
