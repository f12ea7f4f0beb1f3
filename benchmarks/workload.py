"""What the ways of `peers.py` work on, and how their time and memory are measured.

Items are random tokens with a common beginning, and keys to cut from all later queries; states are read at the last
token. The last token is one of 16, every other of which means "true": probes can learn that.
"""

import gc
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch

from anchorscope.engine.sequences import Cut, TokenSequence, shared_prefix_length
from anchorscope.errors import UserError
from anchorscope.models.language_model import LanguageModel

CUT_FIRST = 4
CUT_LAST = 9
"""Which of an item's own tokens are cut."""
LEAST_OWN = CUT_LAST + 3
"""Own tokens that an item needs: some follow the last cut one."""
_LAST_TOKENS = 16


@dataclass(frozen=True)
class Item:
    ids: tuple[int, ...]
    keys: tuple[int, ...]
    """Positions that later ones may not attend to, in every layer or in one."""
    label: bool

    @property
    def length(self) -> int:
        return len(self.ids)


@dataclass(frozen=True)
class Workload:
    items: tuple[Item, ...]
    new_tokens: int = 16
    """Length of a generated answer."""

    def first(self, n: int) -> "Workload":
        return replace(self, items=self.items[:n])

    @property
    def prompts(self) -> tuple[tuple[int, ...], ...]:
        """What `generation` continues."""
        return tuple(item.ids for item in self.items)

    @cached_property
    def shared(self) -> int:
        """Leading tokens that all items share, none of them cut."""
        limits = [min(item.keys) for item in self.items]
        return shared_prefix_length([item.ids for item in self.items], limits)

    @property
    def sequences(self) -> list[TokenSequence]:
        return [
            TokenSequence(item.ids, item.length - 1, (item.length - 1,))
            for item in self.items
        ]

    @property
    def cuts(self) -> list[Cut]:
        return [Cut(item.keys, "all") for item in self.items]


def made_items(
    n: int, shared: int, own: int, vocabulary: int, seed: int
) -> tuple[Item, ...]:
    """Items of equal length."""
    rng = np.random.default_rng(seed)
    head = tuple(rng.integers(0, vocabulary, shared).tolist())
    ending = rng.choice(vocabulary, size=_LAST_TOKENS, replace=False)
    keys = tuple(range(shared + CUT_FIRST, shared + CUT_LAST + 1))
    items = []
    for _ in range(n):
        last = int(rng.integers(len(ending)))
        middle = rng.integers(0, vocabulary, own - 1).tolist()
        ids = (*head, *middle, int(ending[last]))
        items.append(Item(ids, keys, label=last % 2 == 0))
    return tuple(items)


def refuse_windows(lm: LanguageModel, length: int) -> None:
    """Other ways are given one mask for all layers, which would erase a sliding window."""
    windows = [lm.sliding_window(layer) for layer in range(lm.n_layers)]
    shortest = min((window for window in windows if window), default=length)
    if shortest < length:
        raise UserError(
            f"Items have {length} tokens, and layers of {lm.name!r} see only {shortest}; the ways could not be "
            f"compared. Choose shorter items (--shared and --own) or another model."
        )


@dataclass(frozen=True)
class Measured:
    seconds: float
    peak_gpu_mb: float | None
    """Memory of the GPU at its peak, weights included."""


def measure(run: Callable[[], Any], device: torch.device) -> Measured:
    """Runs once and waits for the device."""
    gc.collect()
    if device.type != "cuda":
        began = time.perf_counter()
        run()
        return Measured(time.perf_counter() - began, None)
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats(device)
    torch.cuda.synchronize(device)
    began = time.perf_counter()
    run()
    torch.cuda.synchronize(device)
    seconds = time.perf_counter() - began
    return Measured(seconds, torch.cuda.max_memory_allocated(device) / 2**20)
