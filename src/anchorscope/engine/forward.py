"""One batch through the decoder layers, with the engine's own masks and keys.

Everything that runs a model here (prefix, capture, interventions, decoding) goes through `run_layers`: it embeds, walks
the blocks and hands each block's output to a visitor. The language-model head is not part of it.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from anchorscope.engine.keys_values import Prefix, Recorder
from anchorscope.engine.masks import additive, causal
from anchorscope.errors import UserError
from anchorscope.models.families import BlockOutput
from anchorscope.models.language_model import LanguageModel

Visit = Callable[[int, BlockOutput], None]
"""Called after every block with its index and output."""


class LayerMasks:
    """The additive mask of each layer of one batch: layers with the same window share one tensor.

    It counts the edges that each layer was really given without, so that a cut that never happened can be told.
    """

    def __init__(self, lm: LanguageModel, n_queries: int, n_keys: int, removed: Tensor | None = None) -> None:
        self.lm = lm
        self.shape = (n_queries, n_keys)
        self.removed = None if removed is None else removed.to(lm.device)
        self.made: dict[tuple[int | None, torch.device], tuple[Tensor, int]] = {}
        self.edges_cut = [0] * lm.n_layers
        """How many attention edges the cut took from each layer that ran."""

    def has_edges_to_cut(self, layer: int) -> bool:
        """Whether the cut names any edge that the layer's window lets it see."""
        allowed = causal(*self.shape, self.lm.sliding_window(layer), self.lm.device)[None]
        return self.removed is not None and bool((allowed & self.removed).any())

    def of(self, layer: int) -> Tensor:
        """The mask for a layer, [batch or 1, 1, query_pos, key_pos]."""
        window, device = self.lm.sliding_window(layer), self.lm.layer_device(layer)
        if (window, device) not in self.made:
            allowed = causal(*self.shape, window, self.lm.device)[None]
            n_cut = 0
            if self.removed is not None:
                n_cut = int((allowed & self.removed).sum())
                allowed = allowed & ~self.removed
            self.made[window, device] = (additive(allowed, self.lm.dtype).to(device), n_cut)
        mask, n_cut = self.made[window, device]
        self.edges_cut[layer] += n_cut
        return mask


@torch.inference_mode()
def run_layers(
    lm: LanguageModel, ids: Tensor, positions: Tensor, masks: Callable[[int], Tensor], keys_values: Any, visit: Visit
) -> Tensor:
    """Runs token ids [batch, pos] through all blocks and returns the stream after the last one.

    `positions` is [batch or 1, pos]; `masks(layer)` gives the mask to add; `keys_values` gives the keys before.
    """
    stream = lm.embed(ids, positions)
    rotary: dict[str, tuple[Tensor, Tensor] | None] = {}
    for index in range(lm.n_layers):
        kind = lm.rotary_kind(index)
        if kind not in rotary:
            rotary[kind] = lm.rotary(index, stream, positions)
        output = lm.run_block(index, stream, rotary[kind], masks(index), keys_values)
        visit(index, output)
        stream = output.residual
    return stream


def refuse_not_finite(values: Tensor, lm: LanguageModel) -> None:
    """NaN and infinity are told at once: they would spread into every later number."""
    if not bool(torch.isfinite(values).all()):
        raise UserError(
            f"The states of model {lm.name!r} contain NaN or infinity in {str(lm.dtype).removeprefix('torch.')}; "
            f"try --dtype float32 or bfloat16, or check the weights."
        )


def compute_prefix(lm: LanguageModel, ids: tuple[int, ...]) -> Prefix:
    """Keys and values of the shared leading tokens, once for all items."""
    if not ids:
        return Prefix(ids=(), keys=(), values=())
    recorder = Recorder()
    tokens = torch.tensor([ids], device=lm.device)
    positions = torch.arange(len(ids), device=lm.device)[None]
    masks = LayerMasks(lm, len(ids), len(ids))
    run_layers(lm, tokens, positions, masks.of, recorder, lambda index, output: None)
    return Prefix(ids=ids, keys=tuple(recorder.keys), values=tuple(recorder.values))
