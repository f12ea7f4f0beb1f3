"""Attention of rows: the fused kernel and the weights written out are the same thing, head by head."""

import pytest
import torch
from torch import Tensor

from anchorscope.models.families import masked_attention, per_group


def parts(heads: int, key_heads: int) -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(0)
    return torch.randn(3, 5, heads, 8), torch.randn(3, 16, key_heads, 8), torch.randn(3, 16, key_heads, 8)


def hidden(*shape: int) -> Tensor:
    """Minus infinity on a third of the edges, never on the first key."""
    mask = torch.zeros(shape).masked_fill_(torch.rand(shape) < 0.3, float("-inf"))
    mask[..., 0] = 0
    return mask


@pytest.mark.parametrize(("heads", "key_heads"), [(4, 4), (6, 2), (4, 1)])
@pytest.mark.parametrize("by_head", [False, True])
@pytest.mark.parametrize("softcap", [None, 2.0])
def test_rows_with_shared_keys_equal_one_head_at_a_time(
    heads: int, key_heads: int, by_head: bool, softcap: float | None
) -> None:
    query, key, value = parts(heads, key_heads)
    mask = hidden(3, heads, 5, 16) if by_head else hidden(3, 5, 16)
    grouped, seen = per_group(mask, heads // key_heads), []
    found = {
        "fused": masked_attention(query, key, value, grouped, 0.4, softcap),
        "written out": masked_attention(query, key, value, grouped, 0.4, softcap, lambda one: seen.append(one) or one),
        "doubled": masked_attention(query, key, value, grouped, 0.4, softcap, lambda one: one * 2) / 2,
    }
    for head in range(heads):
        shared = head // (heads // key_heads)
        scores = torch.einsum("rqd,rkd->rqk", query[:, :, head], key[:, :, shared]) * 0.4
        scores = scores if softcap is None else softcap * torch.tanh(scores / softcap)
        weights = torch.softmax(scores + (mask[:, head] if by_head else mask), dim=-1)
        torch.testing.assert_close(seen[0].view(3, heads, 5, 16)[:, head], weights)
        for way in found.values():
            torch.testing.assert_close(way[:, :, head], weights @ value[:, :, shared], rtol=1e-5, atol=1e-5)


def test_weights_are_written_out_in_float32() -> None:
    query, key, value = (part.to(torch.bfloat16) for part in parts(4, 2))
    mask, kinds = per_group(hidden(3, 5, 16).to(torch.bfloat16), 2), []
    found = masked_attention(query, key, value, mask, 0.4, None, lambda one: kinds.append(one.dtype) or one)
    assert kinds == [torch.float32]
    assert found.dtype == torch.bfloat16
