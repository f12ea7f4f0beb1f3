"""Principal directions: states reduced to the directions along which items differ most, before anything is explained.

With fewer items than directions a ridge regression cannot even explain a state by itself, and what it leaves
unexplained would pass for evidence that was lost. Labels play no part in the reduction, so it may see all items. Clean
and cut states have directions of their own: what the cut state holds is not measured by what the clean one looks like.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar

import torch
from jaxtyping import Float, Float64, Shaped
from torch import Tensor

from anchorscope.models.process_settings import true_float32
from anchorscope.probes.chunks import ChunkPlan, in_chunks, plan_chunks
from anchorscope.probes.standardise import Standardised, standardise
from anchorscope.progress import Progress, Silent

T = TypeVar("T")
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
        self, states: Iterable[Shaped[Tensor, "item d_model"]], device: torch.device
    ) -> Float[Tensor, "problem item direction"]:
        """States of the first problems along the directions, on the device; one at a time, in double precision."""
        parts = zip(
            states, self.weight.to(device), self.offset.to(device), strict=False
        )
        return torch.stack(
            [
                (part.to(device).double() @ weight.T + offset).float()
                for part, weight, offset in parts
            ]
        )

    def to_raw(
        self, problem: int, weight: Float[Tensor, " direction"], bias: float
    ) -> tuple[Float64[Tensor, " d_model"], float]:
        """Weights along the directions as weights of raw states."""
        along = weight.double().cpu()
        return along @ self.weight[problem], bias + float(along @ self.offset[problem])


def principal_directions(
    states: Shaped[Tensor, "problem item d_model"],
    directions: int,
    device: str | torch.device = "cpu",
    rescale: bool = True,
) -> Directions:
    """The leading principal directions of the standardised states, in host memory; `rescale` as in `standardise`."""

    def as_map(data: Standardised) -> tuple[Tensor, Tensor]:
        scaled = data.eigenvectors.double() / data.deviation
        weight = scaled / data.scale.scale
        offset = -(data.mean * scaled).sum(-1) - (data.scale.center * weight).sum(-1)
        return weight.flip(1).cpu(), offset.flip(1).cpu()

    maps = _decomposed(states, directions, torch.device(device), as_map, rescale)
    return Directions(*(torch.cat(parts) for parts in zip(*maps, strict=True)))


def principal_states(
    states: Shaped[Tensor, "problem item d_model"],
    directions: int,
    device: str | torch.device = "cpu",
    progress: Progress | None = None,
    title: str = "principal directions",
) -> Float[Tensor, "problem item direction"]:
    """The items along the leading principal directions of their standardised states, in host memory."""
    n_items = states.shape[1]

    def project(data: Standardised) -> Tensor:
        # the last row is the mean
        along = data.design.matmat(data.eigenvectors / data.deviation.float())
        return (
            (along[..., :n_items] - along[..., n_items:]).transpose(1, 2).flip(-1).cpu()
        )

    listener = progress or Silent()
    listener.start(title, len(states))
    chunks = []
    for chunk in _decomposed(states, directions, torch.device(device), project):
        chunks.append(chunk)
        listener.advance(len(chunk))
    listener.finish()
    return torch.cat(chunks)


def displacement(
    clean: Float[Tensor, "layer item d_model"], cut: Float[Tensor, "layer item d_model"]
) -> Float[Tensor, " layer"]:
    """How far a cut moves states: |cut − clean| / |clean − mean|, the median over items."""
    moved = [
        (
            (after - before).norm(dim=-1) / (before - before.mean(0)).norm(dim=-1)
        ).median()
        for before, after in zip(clean.float(), cut.float(), strict=True)
    ]
    return torch.stack(moved)


def _decomposed(
    states: Tensor,
    directions: int,
    device: torch.device,
    take: Callable[[Standardised], T],
    rescale: bool = True,
) -> Iterator[T]:
    """What is taken from each chunk of standardised states, with their leading directions."""
    n_problems, n_items, width = states.shape
    everyone = torch.ones(1, n_items, dtype=torch.bool, device=device)
    rank = min(directions, n_items - 1, width)
    plan = plan_chunks(
        (n_problems, n_items, width), 2 * rank, device, None, states.element_size()
    )

    @torch.no_grad()
    def of_chunk(chunk: Tensor, plan: ChunkPlan) -> T:
        return take(standardise(chunk, everyone, rank, _ITERATIONS, rescale))

    with true_float32():
        yield from in_chunks(states, plan, device, of_chunk)
