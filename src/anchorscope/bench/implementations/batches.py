"""Shared by all implementations but ours: batches by length, float masks, and a search for the best batch size."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from anchorscope.bench.workload import Item, Workload
from anchorscope.models.devices import free_memory, is_out_of_memory
from anchorscope.models.language_model import LanguageModel

SIZES = {"cpu": (4, 8, 16, 32), "cuda": (32, 128, 512, 1024)}
"""Batch sizes that are tried."""


def by_length(workload: Workload, size: int) -> Iterator[list[int]]:
    """Indices of items of about the same length, `size` at a time."""
    order = sorted(range(len(workload.items)), key=lambda index: workload.items[index].length)
    for start in range(0, len(order), size):
        yield order[start : start + size]


def padded(items: Sequence[Item], device: torch.device) -> tuple[Tensor, Tensor]:
    """Token ids [batch, pos], padded on the right, and the place of each row's last token."""
    longest = max(item.length for item in items)
    ids = torch.tensor([[*item.ids, *[0] * (longest - item.length)] for item in items], device=device)
    return ids, torch.tensor([item.length - 1 for item in items], device=device)


def causal_mask(length: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Minus infinity for what is later, [1, 1, query_pos, key_pos]."""
    return torch.full((length, length), float("-inf"), dtype=dtype, device=device).triu(1)[None, None]


def cut_mask(items: Sequence[Item], dtype: torch.dtype, device: torch.device) -> Tensor:
    """The same without the cut edges, [batch, 1, query_pos, key_pos]."""
    longest = max(item.length for item in items)
    is_key = torch.zeros(len(items), longest, dtype=torch.bool)
    for row, item in enumerate(items):
        is_key[row, list(item.keys)] = True
    place = torch.arange(longest, device=device)
    lost = is_key.to(device)[:, None, :] & (place[:, None] > place[None, :])
    return causal_mask(longest, dtype, device).masked_fill(lost[:, None], float("-inf"))


@contextmanager
def attention_kernel(model: Any, name: str) -> Iterator[None]:
    """The model's attention computed by another kernel for a while; all implementations share one model."""
    before = model.config._attn_implementation
    model.set_attn_implementation(name)
    try:
        yield
    finally:
        model.set_attn_implementation(before)


def attention_parts(lm: LanguageModel) -> list[Any]:
    """The module of each block whose output attention adds to the stream."""
    name = lm.family.norm_after_attention or lm.family.attention
    return [getattr(block, name) for block in model_layers(lm)]


def model_layers(lm: LanguageModel) -> Any:
    """The blocks of the model itself: those of the engine's twin ask the engine what their tokens see."""
    return getattr(lm.model_stack, lm.family.layers)


@contextmanager
def last_states(lm: LanguageModel, kept: list[Tensor], rows: Tensor, last: Tensor) -> Iterator[None]:
    """While it holds, every block appends what attention added at the last tokens, [batch, d_model]."""

    def keep(module: Any, given: Any, output: Any) -> None:
        kept.append((output[0] if isinstance(output, tuple) else output)[rows, last])

    handles = [part.register_forward_hook(keep) for part in attention_parts(lm)]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


class TunedBatches:
    """An implementation that runs at its best batch size: for a clean and a cut pass, and for single layers too."""

    lm: LanguageModel
    size = 1

    def knockout(self, workload: Workload) -> Tensor:
        """As in `Way`."""
        raise NotImplementedError

    def tune(self, workload: Workload) -> str:
        """Finds the best batch size."""

        def run(size: int) -> int:
            self.size = size
            return self.knockout(workload.first(size)).shape[2]

        self.size, told = best_size(self.lm.device, len(workload.items), run)
        return told


def kernel_of(lm: LanguageModel) -> str:
    """The fastest of a model's own attention kernels that takes a mask: SDPA cannot cap scores."""
    return "eager" if getattr(lm.config, "attn_logit_softcapping", None) is not None else "sdpa"


def best_size(device: torch.device, n: int, run: Callable[[int], int]) -> tuple[int, str]:
    """The batch size with the best rate, and the rates in words; `run(size)` runs one batch, returns its items.

    Sizes grow until one does not fit or is slower than the one before by a tenth.
    """
    rates: dict[int, float] = {}
    for size in SIZES[device.type]:
        if size > n and rates:
            break
        rate = _rate(device, min(size, n), run)
        if rate is None:
            break
        rates[min(size, n)] = rate
        if rate < 0.9 * max(rates.values()):
            break
    if not rates:
        return 1, "batch 1 (more does not fit)"
    best = max(rates, key=lambda size: rates[size])
    told = ", ".join(f"{size}: {rate:.3g}" for size, rate in rates.items())
    return best, f"batch {best} (items/s by batch size {told})"


def _rate(device: torch.device, size: int, run: Callable[[int], int]) -> float | None:
    """Items per second of the faster of two batches; None if it does not fit."""
    seconds = []
    try:
        for _ in range(2):
            began = time.perf_counter()
            done = run(size)
            if device.type == "cuda":
                torch.cuda.synchronize(device)
            seconds.append(time.perf_counter() - began)
        return done / min(seconds)
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
    free_memory()
    return None
