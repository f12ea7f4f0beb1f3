"""Attention masks: causal, within a layer's window, without the cut edges; as numbers to add before the softmax.

Masks are floats (a boolean mask is silently added as 0 and 1 under eager attention), and minus infinity where an edge
is cut, so that the rest renormalises exactly. The diagonal always stays: no row is ever empty.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from anchorscope.engine.sequences import Cut, TokenSequence


def causal(n_queries: int, n_keys: int, window: int | None, device: torch.device) -> Tensor:
    """Which keys each query may see, [query_pos, key_pos]; queries are the last `n_queries` of the keys' positions."""
    query = torch.arange(n_keys - n_queries, n_keys, device=device)[:, None]
    key = torch.arange(n_keys, device=device)[None, :]
    allowed = key <= query
    return allowed if window is None else allowed & (key > query - window)


def cut_edges(sequences: Sequence[TokenSequence], cuts: Sequence[Cut], n_prefix: int, n_keys: int) -> Tensor:
    """The edges that each item's cut removes, [batch, query_pos, key_pos]; queries start after the prefix."""
    n_queries = n_keys - n_prefix
    removed = torch.zeros(len(cuts), n_queries, n_keys, dtype=torch.bool)
    for row, (sequence, cut) in enumerate(zip(sequences, cuts, strict=True)):
        keys = torch.tensor(cut.keys, dtype=torch.long)
        if len(keys) == 0:
            continue
        query = torch.arange(n_prefix, n_keys)[:, None]
        later = query > keys[None, :]
        if cut.edges == "outside":
            later &= ~torch.isin(query, keys)
        elif cut.edges == "direct":
            later &= query >= sequence.answer_start
        later &= query < len(sequence.ids)  # padding is nobody's query
        removed[row, :, keys] = later
    return removed


def additive(allowed: Tensor, dtype: torch.dtype) -> Tensor:
    """0 where attention is allowed and minus infinity elsewhere, with an axis for the heads."""
    mask = torch.zeros(allowed.shape, dtype=dtype, device=allowed.device)
    return mask.masked_fill_(~allowed, float("-inf")).unsqueeze(-3)
