"""The ways of `peers.py`: each does all of the work in its own manner, and all give the same states.

`anchorscope` uses the engine, as a run does. `plain` does what papers' scripts do: one item at a time, eager attention,
an explicit mask, the whole forward pass; a single layer costs a full pass. `plain-batched`, the baseline that counts,
does it well: batches sorted by length, SDPA, no head; for single layers each cut restarts at its own layer from the
stream of one clean pass. `transformer-lens` uses TransformerLens 4 through its bridge, with hooks on eager attention
scores and full passes. `nnsight` uses traces with SDPA, stopped before the head, and skips the layers below a cut.
"""

import copy
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from anchorscope.engine.batching import MOST_AT_ONCE, memory_facts, plan_batches
from anchorscope.engine.capture import capture, refuse_idle_cuts
from anchorscope.engine.decode import decode, decoded_lengths
from anchorscope.engine.forward import compute_prefix
from anchorscope.engine.rows import tokens_of
from anchorscope.engine.sequences import CLEAN, SITES, Variant, shared_prefix_length
from anchorscope.models.devices import (
    ToHost,
    empty_on_host,
    free_memory,
    is_out_of_memory,
)
from anchorscope.models.families import part_at
from anchorscope.models.language_model import LanguageModel
from workload import Item, Workload

SIZES = {"cpu": (4, 8, 16, 32), "cuda": (32, 128, 512, 1024)}
"""Batch sizes that are tried."""
_ATTENTION = SITES.index("attention")


class CannotDo(Exception):
    """An implementation can't do something; the text says why and what would help."""


class Implementation:
    """One way to do the work: subclasses run one batch. States are in host memory, in the model's precision."""

    size = 1
    """Items that run together."""
    kernel: str | None = None
    """The attention kernel; None for the fastest."""

    def __init__(self, lm: LanguageModel) -> None:
        self.lm = lm

    def run(self, items: list[Item], mask: Tensor | None) -> Tensor:
        """States [layer, item, d_model]; without a mask attention is causal, and padding on the right is not seen."""
        raise NotImplementedError

    def run_single_layers(self, items: list[Item], mask: Tensor) -> Iterator[Tensor]:
        """The same with the mask in one layer, for each in turn: states from that layer on."""
        raise NotImplementedError

    @torch.inference_mode()
    def knockout(self, workload: Workload) -> Tensor:
        """What attention adds at the last token, clean and with the cut in every layer, [2, layer, item, d_model]."""
        lm = self.lm
        states = torch.zeros(
            2, lm.n_layers, len(workload.items), lm.d_model, dtype=lm.dtype
        )
        with attention_kernel(lm, self.kernel):
            for batch, items in by_length(workload, self.size):
                states[0, :, batch] = self.run(items, None)
                states[1, :, batch] = self.run(
                    items, cut_mask(items, lm.dtype, lm.device)
                )
        return states

    @torch.inference_mode()
    def single_layer(self, workload: Workload) -> Tensor:
        """The same with the cut in one layer, [cut layer, layer, item, d_model]; layers below the cut stay zero."""
        lm = self.lm
        states = torch.zeros(
            lm.n_layers, lm.n_layers, len(workload.items), lm.d_model, dtype=lm.dtype
        )
        with attention_kernel(lm, self.kernel):
            for batch, items in by_length(workload, self.size):
                cut = cut_mask(items, lm.dtype, lm.device)
                for layer, from_there in enumerate(self.run_single_layers(items, cut)):
                    states[layer, layer:, batch] = from_there
        return states

    def tune(self, workload: Workload) -> str:
        """Finds the fastest setting (the batch size) before anything is measured, and describes it."""
        return self.tune_size(
            len(workload.items), lambda size: self.knockout(workload.first(size))
        )

    def tune_size(self, n: int, run: Callable[[int], object]) -> str:
        """Sets the best batch size for up to n items; `run(size)` runs one batch."""

        def run_batch(size: int) -> None:
            self.size = size
            run(size)

        self.size, description = best_size(self.lm.device, n, run_batch)
        return description


class Own(Implementation):
    size = sys.maxsize  # it makes its own batches from all items

    def __init__(self, lm: LanguageModel) -> None:
        super().__init__(lm)
        self.batch_tokens = memory_facts(lm).tokens
        # As in a run that is large enough to repay it.
        self.compiled = lm.device.type == "cuda"

    def tune(self, workload: Workload) -> str:
        """A run doesn't choose by timing, so neither does this; blocks are compiled here."""
        self.knockout(workload)
        compiled = ", compiled blocks" if self.compiled else ""
        return f"batches of {self.batch_tokens} tokens{compiled}"

    def knockout(self, workload: Workload) -> Tensor:
        return self._states(workload, [CLEAN, Variant(dict(enumerate(workload.cuts)))])

    def clean(self, workload: Workload) -> Tensor:
        """What attention adds in the clean run, [layer, item, d_model]."""
        return self._states(workload, [CLEAN])[0]

    def single_layer(self, workload: Workload) -> Tensor:
        cuts = dict(enumerate(workload.cuts))
        layers = range(self.lm.n_layers)
        states = self._states(
            workload, [Variant(cuts, range(layer, layer + 1)) for layer in layers]
        )
        # What lies below the cut is the clean run's, and not part of the work.
        for layer in layers:
            states[layer, :layer] = 0
        return states

    def generate(self, workload: Workload) -> list[tuple[int, ...]]:
        lm = self.lm
        prompts = workload.prompts
        room = [len(ids) - 1 for ids in prompts]
        prefix = compute_prefix(lm, prompts[0][: shared_prefix_length(prompts, room)])
        lengths = decoded_lengths(prompts, prefix.length, workload.new_tokens)
        answers = decode(
            lm,
            prompts,
            prefix,
            plan_batches(lengths, self.batch_tokens),
            workload.new_tokens,
            lambda token, before: False,
        )
        return [answer.ids for answer in answers]

    def _states(self, workload: Workload, variants: list[Variant]) -> Tensor:
        lm = self.lm
        shape = (len(variants), lm.n_layers, len(workload.items), lm.d_model)
        states_by_variant = empty_on_host(shape, lm.dtype)

        def keep(key: tuple[int, list[int]], states: Tensor) -> None:
            variant, batch = key
            states_by_variant[variant].index_copy_(1, torch.tensor(batch), states)

        def put(variant: int, batch: list[int], states: Tensor) -> None:
            # Turned by the device, which does it faster.
            turned = states[:, 0, _ATTENTION].transpose(0, 1).contiguous()
            to_host.put((variant, batch), turned)

        to_host = ToHost(keep)
        sequences = workload.sequences
        prefix = compute_prefix(lm, workload.items[0].ids[: workload.shared])
        lengths = [
            tokens_of(item, at, variants, prefix.length, lm.n_layers)
            for at, item in enumerate(sequences)
        ]
        batches = plan_batches(lengths, min(self.batch_tokens, MOST_AT_ONCE))
        run = capture(
            lm, sequences, prefix, batches, put, variants, compiled=self.compiled
        )
        refuse_idle_cuts(run())
        to_host.finish()
        return states_by_variant


class Plain(Implementation):
    kernel = "eager"

    def tune(self, workload: Workload) -> str:
        self.knockout(workload.first(1))
        return "one item at a time"

    def run(self, items: list[Item], mask: Tensor | None) -> Tensor:
        lm = self.lm
        ids, last = _pad_ids(items, lm.device)
        seen = _causal_mask(ids.shape[1], lm.dtype, lm.device) if mask is None else mask
        states: list[Tensor] = []
        with _last_states(lm, states, torch.zeros_like(last), last):
            lm.model(
                input_ids=ids,
                attention_mask=seen,
                output_hidden_states=True,
                use_cache=False,
            )
        return torch.stack(states).cpu()

    def run_single_layers(self, items: list[Item], mask: Tensor) -> Iterator[Tensor]:
        for layer in range(self.lm.n_layers):
            with _mask_of_layer(self.lm, layer, mask):
                yield self.run(items, None)[layer:]


class PlainBatched(Implementation):
    def run(self, items: list[Item], mask: Tensor | None) -> Tensor:
        ids, last = _pad_ids(items, self.lm.device)
        states: list[Tensor] = []
        with _last_states(
            self.lm, states, torch.arange(len(items), device=self.lm.device), last
        ):
            _stack(self.lm)(input_ids=ids, attention_mask=mask, use_cache=False)
        return torch.stack(states).cpu()

    def run_single_layers(self, items: list[Item], mask: Tensor) -> Iterator[Tensor]:
        lm = self.lm
        if lm.family.rotary is None:
            raise CannotDo(
                f"the restart by hand is written for rotary models, and {lm.name} has none"
            )
        ids, last = _pad_ids(items, lm.device)
        rows = torch.arange(len(items), device=lm.device)
        positions = torch.arange(ids.shape[1], device=lm.device)[None]
        output: Any = _stack(lm)(
            input_ids=ids, output_hidden_states=True, use_cache=False
        )
        # The last one is normed, and not needed.
        for layer, stream in enumerate(output.hidden_states[:-1]):
            states: list[Tensor] = []
            with _last_states(lm, states, rows, last):
                for later in range(layer, lm.n_layers):
                    block = _model_layers(lm)[later]
                    output = block(
                        stream,
                        attention_mask=mask if later == layer else None,
                        position_embeddings=lm.rotary(later, stream, positions),
                    )
                    stream = _first(output)
            yield torch.stack(states).cpu()

    def generate(self, workload: Workload) -> list[tuple[int, ...]]:
        """transformers' own `generate`, padded on the left: greedy answers of one length."""
        prompts = workload.prompts
        order = sorted(range(len(prompts)), key=lambda index: len(prompts[index]))
        answers: dict[int, tuple[int, ...]] = {}
        with attention_kernel(self.lm):
            for start in range(0, len(order), self.size):
                batch = order[start : start + self.size]
                answers.update(zip(batch, self._generate(workload, batch), strict=True))
        return [answers[index] for index in range(len(order))]

    @torch.inference_mode()
    def _generate(self, workload: Workload, batch: list[int]) -> list[tuple[int, ...]]:
        prompts = [workload.prompts[index] for index in batch]
        longest = max(len(prompt) for prompt in prompts)
        ids = [[0] * (longest - len(prompt)) + list(prompt) for prompt in prompts]
        seen = [[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt in prompts]
        no_end: dict[str, Any] = {"eos_token_id": None, "pad_token_id": 0}
        output = self.lm.model.generate(
            input_ids=torch.tensor(ids, device=self.lm.device),
            attention_mask=torch.tensor(seen, device=self.lm.device),
            max_new_tokens=workload.new_tokens,
            do_sample=False,
            **no_end,
        )
        return [tuple(row) for row in output[:, longest:].tolist()]


class WithTransformerLens(Implementation):
    """TransformerLens as its own examples use it."""

    def __init__(self, lm: LanguageModel) -> None:
        from transformer_lens.model_bridge import TransformerBridge

        if lm.family.norm_after_attention is not None:
            raise CannotDo(
                f"written for blocks without a norm after attention, and {lm.name} has one"
            )
        if lm.tokenizer is None:
            raise CannotDo(
                "its bridge needs a tokenizer; install one with: anchorscope models --install smollm2-135m"
            )
        self.lm = lm
        # A copy: the bridge puts its own parts in place of the model's.
        self.bridge: Any = TransformerBridge.boot_transformers(
            lm.name,
            hf_model=copy.deepcopy(lm.model),
            tokenizer=lm.tokenizer,
            device=lm.device,
            dtype=lm.dtype,
        )

    def run(self, items: list[Item], mask: Tensor | None) -> Tensor:
        return self._run(items, mask, range(self.lm.n_layers))

    def run_single_layers(self, items: list[Item], mask: Tensor) -> Iterator[Tensor]:
        for layer in range(self.lm.n_layers):
            yield self._run(items, mask, range(layer, layer + 1))[layer:]

    def _run(self, items: list[Item], mask: Tensor | None, cut_in: range) -> Tensor:
        ids, last = _pad_ids(items, self.lm.device)
        rows = torch.arange(len(items), device=self.lm.device)
        states: list[Tensor] = []

        def keep(output: Tensor, hook: Any) -> None:
            states.append(output[rows, last])

        hooks: list[Any] = [
            (f"blocks.{layer}.hook_attn_out", keep) for layer in range(self.lm.n_layers)
        ]
        if mask is not None:
            hooks += [
                (
                    f"blocks.{layer}.attn.hook_attn_scores",
                    lambda scores, hook: scores + mask,
                )
                for layer in cut_in
            ]
        self.bridge.run_with_hooks(
            ids, return_type=None, fwd_hooks=hooks, logits_to_keep=1
        )
        return torch.stack(states).cpu()


class WithNnsight(Implementation):
    """nnsight as its own guides use it, on a model that is loaded already."""

    def __init__(self, lm: LanguageModel) -> None:
        import nnsight

        self.lm = lm
        self.save: Any = nnsight.save
        model = copy.deepcopy(lm.model)  # tracing stays in a model's modules
        model.set_attn_implementation(kernel_of(lm))
        self.traced: Any = nnsight.NNsight(model)
        self.layers: Any = getattr(
            part_at(self.traced, lm.family.stack), lm.family.layers
        )

    def run(self, items: list[Item], mask: Tensor | None) -> Tensor:
        ids, last = _pad_ids(items, self.lm.device)
        rows = torch.arange(len(items), device=self.lm.device)
        with self.traced.trace(
            input_ids=ids, attention_mask=mask, use_cache=False
        ) as tracer:
            attention = [
                _first(self._attention(layer).output)[rows, last]
                for layer in self.layers
            ]
            states = self.save(torch.stack(attention))
            tracer.stop()
        return states.cpu()

    def run_single_layers(self, items: list[Item], mask: Tensor) -> Iterator[Tensor]:
        """One clean trace, then one per layer that skips what is below."""
        ids, last = _pad_ids(items, self.lm.device)
        for layer, stream in enumerate(self._streams(ids)):
            yield self._restart(ids, last, mask, layer, stream)

    def _streams(self, ids: Tensor) -> list[Tensor]:
        with self.traced.trace(input_ids=ids, use_cache=False) as tracer:
            streams = self.save([layer.input for layer in self.layers])
            tracer.stop()
        return streams

    def _restart(
        self, ids: Tensor, last: Tensor, mask: Tensor, cut_in: int, stream: Tensor
    ) -> Tensor:
        rows = torch.arange(len(ids), device=self.lm.device)
        with self.traced.trace(input_ids=ids, use_cache=False) as tracer:
            attention = []
            for index, layer in enumerate(self.layers):
                if index < cut_in:
                    layer.skip(stream)
                    continue
                if index == cut_in:
                    part = getattr(layer, self.lm.family.attention)
                    args, kwargs = part.inputs
                    part.inputs = (args, {**kwargs, "attention_mask": mask})
                attention.append(_first(self._attention(layer).output)[rows, last])
            states = self.save(torch.stack(attention))
            tracer.stop()
        return states.cpu()

    def _attention(self, layer: Any) -> Any:
        """The part of a traced layer whose output attention adds to the stream."""
        return getattr(
            layer, self.lm.family.norm_after_attention or self.lm.family.attention
        )


KINDS: dict[str, tuple[Callable[[LanguageModel], Implementation], str | None]] = {
    "anchorscope": (Own, None),
    "plain": (Plain, None),
    "plain-batched": (PlainBatched, None),
    "transformer-lens": (WithTransformerLens, "transformer_lens"),
    "nnsight": (WithNnsight, "nnsight"),
}
"""By name, each with the package that it needs."""


def make(name: str, lm: LanguageModel) -> Implementation:
    kind, needs = KINDS[name]
    if needs is not None and find_spec(needs) is None:
        raise CannotDo(
            f"{needs} is not installed; get it with: pip install -r benchmarks/requirements.txt"
        )
    try:
        return kind(lm)
    except ImportError as error:
        raise CannotDo(
            f"{needs or name} cannot be imported here ({str(error).splitlines()[0]})"
        ) from error


def by_length(workload: Workload, size: int) -> Iterator[tuple[list[int], list[Item]]]:
    """Items of about the same length with their indices, `size` at a time."""
    order = sorted(
        range(len(workload.items)), key=lambda index: workload.items[index].length
    )
    for start in range(0, len(order), size):
        batch = order[start : start + size]
        yield batch, [workload.items[index] for index in batch]


def _pad_ids(items: Sequence[Item], device: torch.device) -> tuple[Tensor, Tensor]:
    """Token ids [batch, pos], padded on the right, and the position of each row's last token."""
    longest = max(item.length for item in items)
    ids = torch.tensor(
        [[*item.ids, *[0] * (longest - item.length)] for item in items], device=device
    )
    return ids, torch.tensor([item.length - 1 for item in items], device=device)


def _causal_mask(length: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Minus infinity for what is later, [1, 1, query_pos, key_pos]."""
    return torch.full((length, length), float("-inf"), dtype=dtype, device=device).triu(
        1
    )[None, None]


def cut_mask(items: Sequence[Item], dtype: torch.dtype, device: torch.device) -> Tensor:
    """The same without the cut edges, [batch, 1, query_pos, key_pos]."""
    longest = max(item.length for item in items)
    is_key = torch.zeros(len(items), longest, dtype=torch.bool)
    for row, item in enumerate(items):
        is_key[row, list(item.keys)] = True
    position = torch.arange(longest, device=device)
    lost = is_key.to(device)[:, None, :] & (position[:, None] > position[None, :])
    return _causal_mask(longest, dtype, device).masked_fill(
        lost[:, None], float("-inf")
    )


@contextmanager
def attention_kernel(lm: LanguageModel, name: str | None = None) -> Iterator[None]:
    """Temporarily uses another attention kernel (the fastest, unless named)."""
    before = lm.model.config._attn_implementation
    lm.model.set_attn_implementation(name or kernel_of(lm))
    try:
        yield
    finally:
        lm.model.set_attn_implementation(before)


def kernel_of(lm: LanguageModel) -> str:
    """The fastest kernel of a model that takes a mask: SDPA can't cap scores."""
    return (
        "eager"
        if getattr(lm.config, "attn_logit_softcapping", None) is not None
        else "sdpa"
    )


def _stack(lm: LanguageModel) -> Any:
    """The decoder of the model itself, not of the engine's twin."""
    return part_at(lm.model, lm.family.stack)


def _model_layers(lm: LanguageModel) -> Any:
    return getattr(_stack(lm), lm.family.layers)


@contextmanager
def _last_states(
    lm: LanguageModel, states: list[Tensor], rows: Tensor, last: Tensor
) -> Iterator[None]:
    """While it holds, every block appends what attention added at the last tokens, [batch, d_model]."""

    def keep(module: Any, args: Any, output: Any) -> None:
        states.append(_first(output)[rows, last])

    name = lm.family.norm_after_attention or lm.family.attention
    handles = [
        getattr(block, name).register_forward_hook(keep) for block in _model_layers(lm)
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


@contextmanager
def _mask_of_layer(lm: LanguageModel, layer: int, mask: Tensor) -> Iterator[None]:
    """While it holds, one layer's attention is given another mask."""

    def give(
        module: Any, args: Any, kwargs: dict[str, Any]
    ) -> tuple[Any, dict[str, Any]]:
        return args, {**kwargs, "attention_mask": mask}

    handle = getattr(
        _model_layers(lm)[layer], lm.family.attention
    ).register_forward_pre_hook(give, with_kwargs=True)
    try:
        yield
    finally:
        handle.remove()


def _first(output: Any) -> Tensor:
    return output[0] if isinstance(output, tuple) else output


def best_size(
    device: torch.device, n: int, run: Callable[[int], object]
) -> tuple[int, str]:
    """The batch size with the best rate, and the rates in words; `run(size)` runs one batch.

    Sizes grow until one doesn't fit or is slower than the best by a tenth.
    """
    rates: dict[int, float] = {}
    for size in sorted({min(size, n) for size in SIZES[device.type]}):
        seconds = []
        try:
            for _ in range(2):
                began = time.perf_counter()
                run(size)
                if device.type == "cuda":
                    torch.cuda.synchronize(device)
                seconds.append(time.perf_counter() - began)
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            free_memory()
            break
        rates[size] = size / min(seconds)
        if rates[size] < 0.9 * max(rates.values()):
            break
    if not rates:
        return 1, "batch 1 (more does not fit)"
    best = max(rates, key=lambda size: rates[size])
    listed = ", ".join(f"{size}: {rate:.3g}" for size, rate in rates.items())
    return best, f"batch {best} (items/s by batch size {listed})"
