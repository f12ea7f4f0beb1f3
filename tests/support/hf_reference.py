"""Transformers itself as the reference: its own forward pass read with hooks, and its eager attention.

Masks are written out by hand, edge by edge; weights after the softmax are changed, or kept for their gradient, in each
family's own eager function.
"""

import copy
import math
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from anchorscope.engine.sequences import SITES, Cut, TokenSequence
from engine_cases import ATTENTION, MLP, RESIDUAL, loses

ADDS = {  # where the model's own forward pass shows what a block adds: attention's part, the feed-forward part
    "gemma2": ("post_attention_layernorm", "post_feedforward_layernorm"),
    "gemma3_text": ("post_attention_layernorm", "post_feedforward_layernorm"),
    "olmo2": ("post_attention_layernorm", "post_feedforward_layernorm"),
    "olmo3": ("post_attention_layernorm", "post_feedforward_layernorm"),
    "gpt_neox": ("attention", "mlp"),
    "gpt2": ("attn", "mlp"),
}
ATTENTIONS = {"gpt_neox": "attention", "gpt2": "attn"}
WINDOWS = {
    "mistral": (8, 8, 8, 8),
    "phi3": (8, 8, 8, 8),
    "gemma2": (8, None, 8, None),
    "gemma3_text": (8, None, 8, None),
    "olmo3": (8, None, 8, None),
}
"""Written by hand, not read from the tables under test."""


def blocks(model: Any) -> Any:
    return (
        model.base_model.h
        if model.config.model_type == "gpt2"
        else model.base_model.layers
    )


def windows(model: Any) -> list[int | None]:
    return list(WINDOWS.get(model.config.model_type, (None,) * 4))


def watch(
    model: Any,
    ids: tuple[int, ...],
    masks: list[Tensor] | None = None,
    gradients: bool = False,
) -> Tensor:
    """States [pos, site, layer, d_model] of one sequence by the model's own forward pass, read with hooks.

    `masks` takes the place of the mask that each layer's attention would be given.
    """
    layers, kind = blocks(model), model.config.model_type
    found: dict[tuple[int, int], Tensor] = {}
    hooks = []

    def keep(site: int, index: int) -> Any:
        def note(module: Any, given: Any, output: Any) -> None:
            found[site, index] = (
                output[0][0] if isinstance(output, tuple) else output[0]
            )

        return note

    attends, feeds = ADDS.get(kind, ("self_attn", "mlp"))
    for index, layer in enumerate(layers):
        hooks.append(
            getattr(layer, attends).register_forward_hook(keep(ATTENTION, index))
        )
        hooks.append(getattr(layer, feeds).register_forward_hook(keep(MLP, index)))
        hooks.append(layer.register_forward_hook(keep(RESIDUAL, index)))
    try:
        with torch.set_grad_enabled(gradients), masked(model, masks):
            model.base_model(torch.tensor([ids]), use_cache=False)
    finally:
        for hook in hooks:
            hook.remove()
    sites = [
        torch.stack([found[site, index] for index in range(len(layers))], 1)
        for site in range(len(SITES))
    ]
    return torch.stack(sites, 1)


@contextmanager
def masked(model: Any, masks: list[Tensor] | None) -> Iterator[None]:
    """While it lasts, each layer's attention is given its own of these masks; None for those of the model."""

    def put(mask: Tensor) -> Any:
        return lambda module, given, named: (given, {**named, "attention_mask": mask})

    name = ATTENTIONS.get(model.config.model_type, "self_attn")
    layers = zip(blocks(model), masks, strict=True) if masks is not None else ()
    hooks = [
        getattr(layer, name).register_forward_pre_hook(put(mask), with_kwargs=True)
        for layer, mask in layers
    ]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


@cache  # the same for every family with this window
def reference_mask(item: TokenSequence, cut: Cut, window: int | None) -> Tensor:
    """Minus infinity on every edge that causality, the window or the cut forbids, edge by edge; all heads or some.

    On edges that a cut weakens or strengthens, what is to be added.
    """
    n = len(item.ids)
    mask = np.zeros((1, 1 if cut.heads is None else 4, n, n), dtype=np.float32)
    for query in range(n):
        for key in range(n):
            if key > query or (window is not None and query - key >= window):
                mask[0, :, query, key] = float("-inf")
            elif loses(item, cut, query, key):
                added = math.log(1 + cut.alpha) if cut.alpha > -1 else float("-inf")
                mask[
                    0, slice(None) if cut.heads is None else list(cut.heads), query, key
                ] = added
    return torch.from_numpy(mask)


def reference(
    model: Any,
    item: TokenSequence,
    cut: Cut,
    seen: list[int | None],
    layers: range = range(4),
) -> Tensor:
    """States at the wanted positions by eager attention with the masks written out, cut in some layers."""
    if cut.how == "zero":
        return zeroed_reference(model, item, cut, layers)
    masks = [
        reference_mask(item, cut if layer in layers else Cut(()), window)
        for layer, window in enumerate(seen)
    ]
    return watch(eager(model), item.ids, masks)[list(item.read_at)]


def reference_logits(
    model: Any, item: TokenSequence, cut: Cut, seen: list[int | None]
) -> Tensor:
    """Logits [pos, vocab] of the whole model by eager attention with the masks written out."""
    other = eager(model)
    with (
        torch.no_grad(),
        masked(other, [reference_mask(item, cut, window) for window in seen]),
    ):
        return other(torch.tensor([item.ids]), use_cache=False).logits[0]


@lru_cache(maxsize=1)
def eager(model: Any) -> Any:
    """A copy with eager attention; read only, and of the last model the same one again."""
    other = copy.deepcopy(model)
    other.set_attn_implementation("eager")
    assert other.config._attn_implementation == "eager"
    return other


Weigh = Callable[[int, Tensor], Tensor]
"""Given a layer and its weights after the softmax, [1, head, pos, key_pos]: those that are used."""


@contextmanager
def weighed(model: Any, weigh: Weigh) -> Iterator[None]:
    """While it lasts, the weights of the family's own eager attention go through `weigh` before they are used."""
    home = sys.modules[type(blocks(model)[0]).__module__]
    own = home.eager_attention_forward

    def attention(
        module: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        *given: Any,
        **named: Any,
    ) -> Any:
        weights = weigh(
            module.layer_idx, own(module, query, key, value, *given, **named)[1]
        )
        values = value.repeat_interleave(query.shape[1] // value.shape[1], dim=1)
        return (weights @ values).transpose(1, 2), weights

    home.eager_attention_forward = attention
    try:
        yield
    finally:
        home.eager_attention_forward = own


def zeroed_reference(
    model: Any, item: TokenSequence, cut: Cut, layers: range = range(4)
) -> Tensor:
    """States at the wanted positions with the weights of the cut edges set to 0, one after the other."""

    def weigh(layer: int, weights: Tensor) -> Tensor:
        weights = weights.clone()
        for query in range(len(item.ids)):
            for key in cut.keys:
                if layer in layers and loses(item, cut, query, key):
                    weights[
                        0,
                        slice(None) if cut.heads is None else list(cut.heads),
                        query,
                        key,
                    ] = 0
        return weights

    with weighed(model, weigh):
        return watch(eager(model), item.ids)[list(item.read_at)]
