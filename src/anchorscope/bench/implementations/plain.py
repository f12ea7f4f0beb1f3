"""Plain transformers: `plain`, as papers' scripts do it, and `plain-batched`, the same done well.

`plain`: one item at a time, eager attention, an explicit mask, the whole forward pass. All hidden states are asked for,
hooks keep what attention adds, and the language-model head runs too. For single layers a pre-hook gives one layer the
cut mask: a full pass per layer.

`plain-batched`, the baseline that counts: batches sorted by length, SDPA, float masks, no language-model head; the
clean pass needs no mask at all. For single layers the stream before every block is kept from one clean pass, and each
cut restarts at its own layer.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from anchorscope.bench.implementations import CannotDo
from anchorscope.bench.implementations.batches import (
    TunedBatches,
    attention_kernel,
    by_length,
    causal_mask,
    cut_mask,
    kernel_of,
    last_states,
    padded,
)
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


class PlainBatched(TunedBatches):
    """A careful transformers script."""

    name = "plain-batched"

    def __init__(self, lm: LanguageModel) -> None:
        self.lm = lm

    @torch.inference_mode()
    def knockout(self, workload: Workload) -> Tensor:
        """Two passes per batch."""
        lm = self.lm
        states = torch.zeros(2, lm.n_layers, len(workload.items), lm.d_model, dtype=lm.dtype)
        with attention_kernel(lm.model, kernel_of(lm)):
            for batch in by_length(workload, self.size):
                items = [workload.items[index] for index in batch]
                states[0, :, batch] = self._run(items, None)
                states[1, :, batch] = self._run(items, cut_mask(items, lm.dtype, lm.device))
        return states

    @torch.inference_mode()
    def single_layer(self, workload: Workload) -> Tensor:
        """One clean pass per batch, then a restart at every layer."""
        lm = self.lm
        if lm.family.rotary is None:
            raise CannotDo(f"the restart by hand is written for rotary models, and {lm.name} has none")
        states = torch.zeros(lm.n_layers, lm.n_layers, len(workload.items), lm.d_model, dtype=lm.dtype)
        with attention_kernel(lm.model, kernel_of(lm)):
            for batch in by_length(workload, self.size):
                self._restarts([workload.items[index] for index in batch], batch, states)
        return states

    def tokens(self, work: str, workload: Workload) -> float:
        """A restart at layer k runs the layers from k on."""
        n = self.lm.n_layers
        return workload.tokens * (2 if work == "knockout" else 1 + (n + 1) / 2)

    def close(self) -> None:
        """It holds nothing."""

    def _run(self, items: list[Item], mask: Tensor | None) -> Tensor:
        """States [layer, batch, d_model]; without a mask attention is causal, and padding on the right is not seen."""
        ids, last = padded(items, self.lm.device)
        kept: list[Tensor] = []
        with last_states(self.lm, kept, torch.arange(len(items), device=self.lm.device), last):
            self.lm.stack(input_ids=ids, attention_mask=mask, use_cache=False)
        return torch.stack(kept).cpu()

    def _restarts(self, items: list[Item], batch: list[int], states: Tensor) -> None:
        lm = self.lm
        ids, last = padded(items, lm.device)
        rows = torch.arange(len(items), device=lm.device)
        positions = torch.arange(ids.shape[1], device=lm.device)[None]
        cut = cut_mask(items, lm.dtype, lm.device)
        streams = self._streams(ids)
        for layer in range(lm.n_layers):
            kept: list[Tensor] = []
            stream = streams[layer]
            with last_states(lm, kept, rows, last):
                for later in range(layer, lm.n_layers):
                    mask = cut if later == layer else None
                    rotary = lm.rotary(later, stream, positions)
                    stream = _first(lm.layers[later](stream, attention_mask=mask, position_embeddings=rotary))
            states[layer, layer:, batch] = torch.stack(kept).cpu()

    def _streams(self, ids: Tensor) -> list[Tensor]:
        """The stream before every block; the last hidden state is normed and not needed."""
        given: Any = self.lm.stack(input_ids=ids, output_hidden_states=True, use_cache=False)
        return list(given.hidden_states[:-1])


def _first(given: Any) -> Tensor:
    return given[0] if isinstance(given, tuple) else given
