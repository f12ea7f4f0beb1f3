"""Two libraries: `transformer-lens` and `nnsight`, as their own guides use them, in batches.

TransformerLens 4 runs through its bridge, with hooks on attention scores. Its bridge always computes eager attention,
which is what makes scores hookable. The language-model head runs on the last position only. `start_at_layer` still runs
the layers below, so that a single layer costs a full pass.

nnsight runs traces with SDPA and float masks, stopped before the language-model head. For single layers those below the
cut are skipped: their output is replaced by the clean stream of an earlier trace.
"""

import copy
from functools import partial
from typing import Any

import torch
from torch import Tensor

from anchorscope.bench.implementations import CannotDo
from anchorscope.bench.implementations.batches import TunedBatches, by_length, cut_mask, kernel_of, padded
from anchorscope.bench.workload import Item, Workload
from anchorscope.models.families import part_at
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


class WithNnsight(TunedBatches):
    """nnsight as its own guides use it, on a model that is loaded already."""

    name = "nnsight"

    def __init__(self, lm: LanguageModel) -> None:
        import nnsight

        self.lm = lm
        self.save: Any = nnsight.save
        model = copy.deepcopy(lm.model)  # tracing stays in a model's modules
        model.set_attn_implementation(kernel_of(lm))
        self.traced: Any = nnsight.NNsight(model)
        self.layers: Any = getattr(part_at(self.traced, lm.family.stack), lm.family.layers)

    @torch.inference_mode()
    def knockout(self, workload: Workload) -> Tensor:
        """Two traces per batch."""
        lm = self.lm
        states = torch.zeros(2, lm.n_layers, len(workload.items), lm.d_model, dtype=lm.dtype)
        for batch in by_length(workload, self.size):
            items = [workload.items[index] for index in batch]
            states[0, :, batch] = self._run(items, None)
            states[1, :, batch] = self._run(items, cut_mask(items, lm.dtype, lm.device))
        return states

    @torch.inference_mode()
    def single_layer(self, workload: Workload) -> Tensor:
        """One clean trace per batch, then one per layer that skips what is below."""
        lm = self.lm
        states = torch.zeros(lm.n_layers, lm.n_layers, len(workload.items), lm.d_model, dtype=lm.dtype)
        for batch in by_length(workload, self.size):
            items = [workload.items[index] for index in batch]
            cut = cut_mask(items, lm.dtype, lm.device)
            streams = self._streams(items)
            for layer in range(lm.n_layers):
                states[layer, layer:, batch] = self._restart(items, cut, layer, streams[layer])
        return states

    def tokens(self, work: str, workload: Workload) -> float:
        """A trace that skips k layers runs those from k on."""
        return workload.tokens * (2 if work == "knockout" else 1 + (self.lm.n_layers + 1) / 2)

    def close(self) -> None:
        """Lets the copy of the model go."""
        self.traced = self.layers = None

    def _attention(self, layer: Any) -> Any:
        """The part of a traced layer whose output attention adds to the stream."""
        return getattr(layer, self.lm.family.norm_after_attention or self.lm.family.attention)

    def _run(self, items: list[Item], mask: Tensor | None) -> Tensor:
        ids, last = padded(items, self.lm.device)
        rows = torch.arange(len(items), device=self.lm.device)
        with self.traced.trace(input_ids=ids, attention_mask=mask, use_cache=False) as tracer:
            kept = [_at(self._attention(layer).output, rows, last) for layer in self.layers]
            states = self.save(torch.stack(kept))
            tracer.stop()
        return states.cpu()

    def _streams(self, items: list[Item]) -> list[Tensor]:
        """The clean stream before every block."""
        ids, _ = padded(items, self.lm.device)
        with self.traced.trace(input_ids=ids, use_cache=False) as tracer:
            streams = self.save([layer.input for layer in self.layers])
            tracer.stop()
        return streams

    def _restart(self, items: list[Item], mask: Tensor, cut_in: int, stream: Tensor) -> Tensor:
        ids, last = padded(items, self.lm.device)
        rows = torch.arange(len(items), device=self.lm.device)
        with self.traced.trace(input_ids=ids, use_cache=False) as tracer:
            kept = []
            for index, layer in enumerate(self.layers):
                if index < cut_in:
                    layer.skip(stream)
                    continue
                if index == cut_in:
                    part = getattr(layer, self.lm.family.attention)
                    args, kwargs = part.inputs
                    part.inputs = (args, {**kwargs, "attention_mask": mask})
                kept.append(_at(self._attention(layer).output, rows, last))
            states = self.save(torch.stack(kept))
            tracer.stop()
        return states.cpu()


def _at(output: Any, rows: Tensor, last: Tensor) -> Tensor:
    """A module's output at each row's last token."""
    return (output[0] if isinstance(output, tuple) else output)[rows, last]
