"""`plain`: as papers' scripts do it. One item at a time, eager attention, an explicit mask, the whole forward pass.

All hidden states are asked for, hooks keep what attention adds, and the language-model head runs too. For single layers
a pre-hook gives one layer the cut mask: a full pass per layer.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from anchorscope.bench.ways.batches import attention_kernel, causal_mask, cut_mask, last_states, padded
from anchorscope.bench.workload import Item, Workload
from anchorscope.models.language_model import LanguageModel


class Plain:
    """A plain transformers loop."""

    name = "plain"

    def __init__(self, lm: LanguageModel) -> None:
        self.lm = lm
        self.size = 1

    def tune(self, workload: Workload) -> str:
        """There is nothing to choose."""
        self.knockout(workload.first(1))
        return "one item at a time"

    @torch.inference_mode()
    def knockout(self, workload: Workload) -> Tensor:
        """Two passes per item."""
        lm, items = self.lm, workload.items
        states = torch.zeros(2, lm.n_layers, len(items), lm.d_model, dtype=lm.dtype)
        with attention_kernel(lm.model, "eager"):
            for place, item in enumerate(items):
                states[0, :, place] = self._run(item, causal_mask(item.length, lm.dtype, lm.device))
                states[1, :, place] = self._run(item, cut_mask([item], lm.dtype, lm.device))
        return states

    @torch.inference_mode()
    def single_layer(self, workload: Workload) -> Tensor:
        """As many passes per item as there are layers."""
        lm, items = self.lm, workload.items
        states = torch.zeros(lm.n_layers, lm.n_layers, len(items), lm.d_model, dtype=lm.dtype)
        with attention_kernel(lm.model, "eager"):
            for place, item in enumerate(items):
                clean = causal_mask(item.length, lm.dtype, lm.device)
                cut = cut_mask([item], lm.dtype, lm.device)
                for layer in range(lm.n_layers):
                    with mask_of_layer(lm, layer, cut):
                        states[layer, layer:, place] = self._run(item, clean)[layer:]
        return states

    def tokens(self, work: str, workload: Workload) -> float:
        """Every pass runs all tokens through all layers."""
        return workload.tokens * (2 if work == "knockout" else self.lm.n_layers)

    def close(self) -> None:
        """It holds nothing."""

    def _run(self, item: Item, mask: Tensor) -> Tensor:
        lm = self.lm
        ids, last = padded([item], lm.device)
        kept: list[Tensor] = []
        with last_states(lm, kept, torch.zeros_like(last), last):
            lm.model(input_ids=ids, attention_mask=mask, output_hidden_states=True, use_cache=False)
        return torch.stack([state[0] for state in kept]).cpu()


@contextmanager
def mask_of_layer(lm: LanguageModel, layer: int, mask: Tensor) -> Iterator[None]:
    """While it holds, one layer's attention is given another mask."""

    def give(module: Any, args: Any, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        return args, {**kwargs, "attention_mask": mask}

    handle = getattr(lm.layers[layer], lm.family.attention).register_forward_pre_hook(give, with_kwargs=True)
    try:
        yield
    finally:
        handle.remove()
