"""Attention masks: causal, within a layer's window, without the cut edges; as numbers to add before the softmax.

Masks are floats (a boolean mask is silently added as 0 and 1 under eager attention), and minus infinity where an edge
is cut, so that the rest renormalises exactly. The diagonal always stays: no row is ever empty.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
import torch
from torch import Tensor

from anchorscope.engine.sequences import EDGES, Cut

MASK_WIDTH = 8
"""Keys are padded to a multiple of this: kernels that take a mask want its rows aligned."""


@dataclass(frozen=True)
class CutRows:
    """The cuts of a batch's rows, as tensors on the device."""

    keys: Tensor
    """Which positions are cut keys, bool, [row, key_pos]."""
    edges: Tensor
    """Index into `EDGES`, [row]."""
    answer_start: Tensor
    """[row]."""

    @classmethod
    def of(cls, cuts: Sequence[Cut], answer_starts: Sequence[int], n_keys: int, device: torch.device) -> "CutRows":
        """Tensors from the records."""
        keys = np.zeros((len(cuts), n_keys), dtype=bool)
        cut_keys = np.fromiter(chain.from_iterable(cut.keys for cut in cuts), dtype=np.int64)
        keys[np.repeat(np.arange(len(cuts)), [len(cut.keys) for cut in cuts]), cut_keys] = True
        edges = np.array([EDGES.index(cut.edges) for cut in cuts])
        return cls(*(torch.from_numpy(part).to(device) for part in (keys, edges, np.array(answer_starts))))

    def removed(self, queries: Tensor) -> Tensor:
        """The edges that are lost, [row, pos, key_pos], for queries at these positions, [row, pos]."""
        key = torch.arange(self.keys.shape[1], device=queries.device)
        later = queries[:, :, None] > key
        kinds = self.edges[:, None, None]
        among_keys = self.keys.gather(1, queries.clamp(max=self.keys.shape[1] - 1))
        later &= ~((kinds == EDGES.index("outside")) & among_keys[:, :, None])
        later &= ~((kinds == EDGES.index("direct")) & (queries < self.answer_start[:, None])[:, :, None])
        return later & self.keys[:, None, :]


def visible(queries: Tensor, n_keys: int, window: int | None) -> Tensor:
    """Which keys queries at these positions [row, pos] may see, [row, pos, key_pos]."""
    key = torch.arange(n_keys, device=queries.device)
    query = queries[:, :, None]
    allowed = key <= query
    return allowed if window is None else allowed & (key > query - window)


def additive(allowed: Tensor, dtype: torch.dtype) -> Tensor:
    """0 where attention is allowed and minus infinity elsewhere."""
    mask = torch.zeros(allowed.shape, dtype=dtype, device=allowed.device)
    return mask.masked_fill_(~allowed, float("-inf"))
