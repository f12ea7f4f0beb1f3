"""`plain-batched`: the same done well, the baseline that counts.

Batches sorted by length, SDPA, float masks, no language-model head; the clean pass needs no mask at all. For single
layers the stream before every block is kept from one clean pass, and each cut restarts at its own layer.
"""

from typing import Any

import torch
from torch import Tensor

from anchorscope.bench.ways.batches import (
    TunedBatches,
    attention_kernel,
    by_length,
    cut_mask,
    kernel_of,
    last_states,
    padded,
)
from anchorscope.bench.ways.way import CannotDo
from anchorscope.bench.workload import Item, Workload
from anchorscope.models.language_model import LanguageModel


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
