"""`transformer-lens`: TransformerLens 4 through its bridge, with hooks on attention scores, in batches.

Its bridge always computes eager attention, which is what makes scores hookable. The language-model head runs on the
last position only. `start_at_layer` still runs the layers below, so that a single layer costs a full pass.
"""

import copy
from functools import partial
from typing import Any

import torch
from torch import Tensor

from anchorscope.bench.ways.batches import TunedBatches, by_length, cut_mask, padded
from anchorscope.bench.ways.way import CannotDo
from anchorscope.bench.workload import Item, Workload
from anchorscope.models.language_model import LanguageModel


class WithTransformerLens(TunedBatches):
    """TransformerLens as its own examples use it."""

    name = "transformer-lens"

    def __init__(self, lm: LanguageModel) -> None:
        from transformer_lens.model_bridge import TransformerBridge

        if lm.family.norm_after_attention is not None:
            raise CannotDo(f"written for blocks without a norm after attention, and {lm.name} has one")
        if lm.tokenizer is None:
            raise CannotDo("its bridge needs a tokenizer; install one with: anchorscope models --install smollm2-135m")
        self.lm = lm
        # A copy: the bridge puts its own parts in place of the model's.
        self.bridge: Any = TransformerBridge.boot_transformers(
            lm.name, hf_model=copy.deepcopy(lm.model), tokenizer=lm.tokenizer, device=lm.device, dtype=lm.dtype
        )

    @torch.inference_mode()
    def knockout(self, workload: Workload) -> Tensor:
        """Two passes per batch."""
        lm = self.lm
        states = torch.zeros(2, lm.n_layers, len(workload.items), lm.d_model, dtype=lm.dtype)
        for batch in by_length(workload, self.size):
            items = [workload.items[index] for index in batch]
            cut = cut_mask(items, lm.dtype, lm.device)
            states[0, :, batch] = self._run(items, cut, range(0))
            states[1, :, batch] = self._run(items, cut, range(lm.n_layers))
        return states

    @torch.inference_mode()
    def single_layer(self, workload: Workload) -> Tensor:
        """As many passes per batch as there are layers."""
        lm = self.lm
        states = torch.zeros(lm.n_layers, lm.n_layers, len(workload.items), lm.d_model, dtype=lm.dtype)
        for batch in by_length(workload, self.size):
            items = [workload.items[index] for index in batch]
            cut = cut_mask(items, lm.dtype, lm.device)
            for layer in range(lm.n_layers):
                states[layer, layer:, batch] = self._run(items, cut, range(layer, layer + 1))[layer:]
        return states

    def tokens(self, work: str, workload: Workload) -> float:
        """Every pass runs all tokens through all layers."""
        return workload.tokens * (2 if work == "knockout" else self.lm.n_layers)

    def close(self) -> None:
        """Lets the copy of the model go."""
        self.bridge = None

    def _run(self, items: list[Item], mask: Tensor, cut_in: range) -> Tensor:
        ids, last = padded(items, self.lm.device)
        rows = torch.arange(len(items), device=self.lm.device)
        kept: list[Tensor] = []

        def keep(output: Tensor, hook: Any) -> None:
            kept.append(output[rows, last])

        hooks: list[Any] = [(f"blocks.{layer}.hook_attn_out", keep) for layer in range(self.lm.n_layers)]
        hooks += [(f"blocks.{layer}.attn.hook_attn_scores", partial(_add, mask=mask)) for layer in cut_in]
        self.bridge.run_with_hooks(ids, return_type=None, fwd_hooks=hooks, logits_to_keep=1)
        return torch.stack(kept).cpu()


def _add(scores: Tensor, hook: Any, mask: Tensor) -> Tensor:
    return scores + mask
