"""Attention masks: causal, within a layer's window, without the cut edges; as numbers to add before the softmax.

Masks are floats (a boolean mask is silently added as 0 and 1 under eager attention), and minus infinity where an edge
is cut, so that the rest renormalises exactly. The diagonal always stays: no row is ever empty. Edges whose weight is to
be set to 0 after the softmax are told apart, and a mask has a dimension for heads only where some heads are cut and
others are not. An edge that is weakened or strengthened has a finite number in the mask, added where minus infinity
would be: after the soft cap of scores that have one, and nothing where causality or a window hides the key anyway.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from torch import Tensor

from anchorscope.engine.sequences import EDGES, Cut
from anchorscope.errors import InterventionNotApplied
from anchorscope.models.devices import to_device

MASK_WIDTH = 8
"""Keys are padded to a multiple of this: kernels that take a mask want its rows aligned."""


@dataclass(frozen=True)
class CutRows:
    """The cuts of a batch's rows, as tensors on the device."""

    keys: Bool[Tensor, "row key_pos"]
    """Which positions are cut keys."""
    edges: Int[Tensor, " row"]
    """Index into `EDGES`."""
    answer_start: Int[Tensor, " row"]
    zeroing: Bool[Tensor, " row"]
    """Whether weights are set to 0 after the softmax, instead of a mask before it."""
    bias: Float[Tensor, " row"]
    """What is added to the scores of the edges; minus infinity where they are cut."""
    heads: Bool[Tensor, "row head"] | None
    """The query heads that lose edges; None where all do, in every row."""
    kinds: "CutKinds"
    """The same in the host's memory, where it is asked before anything is computed; of all rows of the batch."""

    @classmethod
    def of(
        cls, cuts: Sequence[Cut], answer_starts: Sequence[int], n_keys: int, n_heads: int, device: torch.device
    ) -> "CutRows":
        """Tensors from the records."""
        keys = np.zeros((len(cuts), n_keys), dtype=bool)
        cut_keys = np.fromiter(chain.from_iterable(cut.keys for cut in cuts), dtype=np.int64)
        keys[np.repeat(np.arange(len(cuts)), [len(cut.keys) for cut in cuts]), cut_keys] = True
        kinds = CutKinds.of(cuts)
        keys_, edges_, starts_, zeroing_, bias_ = (
            to_device(part, device) for part in (keys, kinds.edges, np.array(answer_starts), kinds.zeroing, kinds.bias)
        )
        heads = _heads(cuts, n_heads, device) if kinds.by_head.any() else None
        return cls(keys_, edges_, starts_, zeroing_, bias_, heads, kinds)

    def first(self, rows: int) -> "CutRows":
        """The cuts of the first rows."""
        heads = None if self.heads is None else self.heads[:rows]
        keys, edges, starts = self.keys[:rows], self.edges[:rows], self.answer_start[:rows]
        return CutRows(keys, edges, starts, self.zeroing[:rows], self.bias[:rows], heads, self.kinds)

    def removed(self, queries: Int[Tensor, "row pos"]) -> Bool[Tensor, "row pos key_pos"]:
        """The edges that are lost, weakened or strengthened, for queries at these positions."""
        key = torch.arange(self.keys.shape[1], device=queries.device)
        later = queries[:, :, None] > key
        kinds = self.edges[:, None, None]
        among_keys = self.keys.gather(1, queries.clamp(max=self.keys.shape[1] - 1))
        later &= ~((kinds == EDGES.index("outside")) & among_keys[:, :, None])
        later &= ~((kinds == EDGES.index("direct")) & (queries < self.answer_start[:, None])[:, :, None])
        return later & self.keys[:, None, :]


@dataclass(frozen=True)
class CutKinds:
    """How the cuts of all rows are made, whatever their keys: few kinds, so that each is looked at once."""

    edges: Int[np.ndarray, " row"]
    """Index into `EDGES`."""
    zeroing: Bool[np.ndarray, " row"]
    """Whether weights are set to 0 after the softmax."""
    bias: Float[np.ndarray, " row"]
    """What is added to scores."""
    biasing: Bool[np.ndarray, " row"]
    """Whether edges are weakened or strengthened."""
    by_head: Bool[np.ndarray, " row"]
    """Whether only some heads lose edges."""

    @classmethod
    def of(cls, cuts: Sequence[Cut]) -> "CutKinds":
        """From the records."""
        places: dict[tuple[object, ...], int] = {}
        first: list[Cut] = []  # one cut of each kind

        def kind(cut: Cut) -> int:
            place = places.setdefault((cut.edges, cut.how, cut.alpha, cut.heads is None, cut.changes), len(first))
            if place == len(first):
                first.append(cut)
            return place

        of_row: NDArray[np.int64] = np.fromiter(map(kind, cuts), dtype=np.int64, count=len(cuts))
        found = (
            np.array([EDGES.index(one.edges) for one in first]),
            np.array([one.how == "zero" for one in first]),
            np.array([one.bias for one in first], dtype=np.float32),
            np.array([one.changes and one.alpha != -1 for one in first]),
            np.array([one.heads is not None for one in first]),
        )
        return cls(*(of_kind[of_row] for of_kind in found))


def _heads(cuts: Sequence[Cut], n_heads: int, device: torch.device) -> Tensor:
    chosen = np.zeros((len(cuts), n_heads), dtype=bool)
    for row, cut in enumerate(cuts):
        if cut.heads is not None and max(cut.heads) >= n_heads:
            raise InterventionNotApplied(f"a cut names heads {cut.heads}, and there are 0 to {n_heads - 1}")
        chosen[row, slice(None) if cut.heads is None else list(cut.heads)] = True
    return to_device(chosen, device)


def visible(queries: Int[Tensor, "row pos"], n_keys: int, window: int | None) -> Bool[Tensor, "row pos key_pos"]:
    """Which keys queries at these positions may see."""
    key = torch.arange(n_keys, device=queries.device)
    query = queries[:, :, None]
    allowed = key <= query
    return allowed if window is None else allowed & (key > query - window)


def add_biases(
    mask: Float[Tensor, "row ... key_pos"], biased: Bool[Tensor, "row ... key_pos"], bias: Float[Tensor, " row"]
) -> None:
    """Adds each row's bias to the scores of these edges, in place."""
    mask += torch.where(biased, bias.to(mask.dtype).view(-1, *[1] * (mask.dim() - 1)), 0)


def additive(allowed: Bool[Tensor, "*edge"], dtype: torch.dtype) -> Float[Tensor, "*edge"]:
    """0 where attention is allowed and minus infinity elsewhere."""
    mask = torch.zeros(allowed.shape, dtype=dtype, device=allowed.device)
    return mask.masked_fill_(~allowed, float("-inf"))
