"""Attention as the engine wants it, in the place of a model's own kernel.

transformers lets every model look up its attention function by the name in its configuration. Ours is given queries,
keys and values of all tokens of a batch in one line, and hands them to whoever was passed as the mask: only the engine
knows which tokens belong together, what they share and what is cut. Only the engine's own twin of a model
(`make_twin`) names it; nothing is ever switched over.
"""

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Float, Shaped
from torch import Tensor
from transformers import AttentionInterface

NAME = "anchorscope"
_PARTS_NOT_KNOWN = ("s_aux", "position_bias")  # attention sinks and learned biases: not computed here, so refused


Queries = Float[Tensor, "token head d_head"]
Keys = Float[Tensor, "token key_head d_head"]
"""Keys or values of all tokens of a batch, in one line."""


@runtime_checkable
class Attends(Protocol):
    """Knows which tokens of a batch see which."""

    def attend(
        self, query: Queries, key: Keys, value: Keys, scaling: float, softcap: float | None
    ) -> Float[Tensor, "token head d_value"]:
        """Attention of all tokens; several query heads may share the keys and values of one head."""


def _attention(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Any,
    scaling: float | None = None,
    softcap: float | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    if not hasattr(attention_mask, "attend"):
        raise ValueError("attention does not obey the mask: it was not handed what the block was given")
    found = [name for name in _PARTS_NOT_KNOWN if others.get(name) is not None]
    if found:
        raise ValueError(f"its attention has a part that is not computed here ({found[0]})")
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    return _attend(attention_mask, query, key, value, scale, softcap), None


@torch.compiler.disable  # type: ignore[untyped-decorator]  # it is index work and one kernel; what is worth compiling lies around it
def _attend(
    attends: Attends, query: Tensor, key: Tensor, value: Tensor, scaling: float, softcap: float | None
) -> Tensor:
    queries, keys, values = (part[0].transpose(0, 1) for part in (query, key, value))  # [token, head, d_head]
    return attends.attend(queries, keys, values, scaling, softcap)[None]


AttentionInterface.register(NAME, _attention)


Weights = Float[Tensor, "row key_head group_pos key_pos"]
"""Attention weights after the softmax, float32; heads that share their keys stand one after the other."""
Edit = Callable[[Weights], Weights]
"""Given attention weights: those that are used."""


def masked_attention(
    query: Float[Tensor, "row pos head d_head"],
    key: Float[Tensor, "row key_pos key_head d_head"],
    value: Float[Tensor, "row key_pos key_head d_value"],
    mask: Float[Tensor, "#row #key_head group_pos key_pos"],
    scaling: float,
    softcap: float | None,
    edit: Edit | None = None,
) -> Float[Tensor, "row pos head d_value"]:
    """Attention of rows.

    `mask` is added to the scores; its third axis runs over all positions of each head of a group, see `per_group`.
    Query heads that share their keys stand one after the other along the positions, so that keys are never copied per
    head. With `edit` the weights are written out, which a fused kernel never does.
    """
    rows, n, heads, d_head = query.shape
    key_heads, value = key.shape[2], value.transpose(1, 2)
    if softcap is None and edit is None:
        grouped = _grouped(query, key_heads)
        found = torch.nn.functional.scaled_dot_product_attention(
            grouped, key.transpose(1, 2), value, attn_mask=mask, scale=scaling
        )
    else:
        weights = attention_weights(query, key, mask, scaling, softcap)
        found = (weights if edit is None else edit(weights)).to(value.dtype) @ value
    found = found.view(rows, key_heads, heads // key_heads, n, d_head)
    return found.permute(0, 3, 1, 2, 4).reshape(rows, n, heads, d_head)


def attention_weights(
    query: Float[Tensor, "row pos head d_head"],
    key: Float[Tensor, "row key_pos key_head d_head"],
    mask: Float[Tensor, "#row #key_head group_pos key_pos"],
    scaling: float,
    softcap: float | None,
) -> Weights:
    """The weights of `masked_attention`, written out."""
    scores = _grouped(query, key.shape[2]) @ key.transpose(1, 2).transpose(2, 3)
    scores = scores * scaling if softcap is None else torch.tanh(scores * (scaling / softcap)) * softcap
    return torch.softmax(scores + mask, dim=-1, dtype=torch.float32)


def _grouped(query: Tensor, key_heads: int) -> Tensor:
    """Query heads that share their keys, one after the other along the positions."""
    rows, n, heads, d_head = query.shape
    grouped = query.view(rows, n, key_heads, heads // key_heads, d_head).permute(0, 2, 3, 1, 4)
    return grouped.reshape(rows, key_heads, -1, d_head)


def per_group(
    mask: Shaped[Tensor, "row pos key_pos"] | Shaped[Tensor, "row head pos key_pos"], groups: int
) -> Shaped[Tensor, "row mask_head group_pos key_pos"]:
    """A mask of rows, or of rows and heads, for query heads that share their keys, `groups` of them each."""
    if mask.dim() == 3:
        return mask.repeat(1, groups, 1)[:, None]
    rows, heads, n, n_keys = mask.shape
    return mask.reshape(rows, heads // groups, groups * n, n_keys)


class OneSequence:
    """One sequence under one mask."""

    def __init__(self, mask: Float[Tensor, "pos key_pos"]) -> None:
        self.mask = mask

    def attend(
        self, query: Queries, key: Keys, value: Keys, scaling: float, softcap: float | None
    ) -> Float[Tensor, "token head d_value"]:
        """All tokens are one row."""
        mask = per_group(self.mask[None], query.shape[1] // key.shape[1]).to(query.device)
        return masked_attention(query[None], key[None], value[None], mask, scaling, softcap)[0]
