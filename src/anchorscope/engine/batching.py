"""Which items run together: sorted by length, within a token budget, so that attention pads little.

Budget and compilation follow from sizes known beforehand, never from timing.
"""

import importlib.util
import math
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from anchorscope.engine.sequences import SITES
from anchorscope.errors import UserError
from anchorscope.models.language_model import LanguageModel

MOST_AT_ONCE = 2**16
"""Tokens of one pass at most: products gain nothing beyond."""


def plan_batches(
    lengths: Sequence[int], batch_tokens: int, order: Sequence[int] | None = None
) -> list[list[int]]:
    """Indices of each batch, longest first; longest item × number of items stays within `batch_tokens`.

    `order` says which items run and breaks ties between equal lengths; without it all run.
    """
    ties = range(len(lengths)) if order is None else order
    by_length = sorted(ties, key=lambda index: -lengths[index])
    batches: list[list[int]] = []
    for index in by_length:
        longest = lengths[batches[-1][0]] if batches else 0
        if batches and longest * (len(batches[-1]) + 1) <= batch_tokens:
            batches[-1].append(index)
        else:
            batches.append([index])
    return batches


def too_long_for_memory(tokens: int) -> UserError:
    return UserError(
        f"Memory does not suffice for a single item of {tokens} tokens; choose a smaller --dtype or model, another "
        f"--device, or leave out the longest questions."
    )


_SHARE = 0.4  # of the free memory; the rest is for kernels' own needs and what the formula below leaves out
_MOST = {"cpu": 2048, "cuda": 2**18}  # matrix products gain nothing beyond it
_LEAST = 64
_TOKENS_PER_READING = 16  # tokens per state that is read, about
_COMPILES_FROM = 2e16  # operations: 40 s of a large GPU, of which compiled blocks save a quarter and cost about as much


@dataclass(frozen=True)
class MemoryFacts:
    """Memory sizes of a model: plain numbers, so that passes are planned without the model."""

    device: str
    free: float
    itemsize: int
    n_layers: int
    d_model: int
    n_heads: int
    key_heads: int
    d_head: int
    d_mlp: int

    @property
    def tokens(self) -> int:
        """How many tokens run together: a power of two, so that a little more free memory changes nothing."""
        fits = _SHARE * self.free / self.bytes_per_token
        return int(
            min(
                _MOST[self.device],
                max(_LEAST, 2 ** math.floor(math.log2(max(1.0, fits)))),
            )
        )

    @property
    def bytes_per_token(self) -> float:
        """Bytes per token: inside a block, as keys and values of a growing answer, and as states."""
        block = (
            10 * self.d_model
            + 4 * self.d_mlp
            + 4 * (self.n_heads + 2 * self.key_heads) * self.d_head
        )
        keys_values = 2 * self.n_layers * self.key_heads * self.d_head
        read = 2 * len(SITES) * self.n_layers * self.d_model / _TOKENS_PER_READING
        return self.itemsize * (block + keys_values + read)

    def tokens_with_gradients(self, layers: int, n_own: int, n_keys: int) -> int:
        """How many tokens run together when torch goes back through that many layers; rows as below."""
        fits = (
            _SHARE
            * self.free
            / (self.bytes_per_token + layers * self.bytes_kept_per_token(n_own, n_keys))
        )
        return int(min(_MOST[self.device], 2 ** math.floor(math.log2(max(1.0, fits)))))

    def bytes_kept_per_token(self, n_own: int, n_keys: int) -> float:
        """Bytes that a token, in a row of `n_own` tokens seeing `n_keys`, keeps in a layer for the backward pass."""
        own = (self.n_heads + 2 * self.key_heads) * self.d_head
        parts = 3 * self.d_mlp + own + 2 * self.key_heads * self.d_head * n_keys / n_own
        return (
            4 * 4 * self.d_model
            + self.itemsize * parts
            + self.n_heads * n_keys * (4 + self.itemsize)
        )


def memory_facts(lm: LanguageModel) -> MemoryFacts:
    width = getattr(
        lm.config, "intermediate_size", None
    )  # some have a list, with a width for every layer
    return MemoryFacts(
        device=lm.device.type,
        free=_free_bytes(lm),
        itemsize=lm.dtype.itemsize,
        n_layers=lm.n_layers,
        d_model=lm.d_model,
        n_heads=lm.n_heads,
        key_heads=int(getattr(lm.config, "num_key_value_heads", None) or lm.n_heads),
        d_head=int(getattr(lm.config, "head_dim", None) or lm.d_model // lm.n_heads),
        d_mlp=int(width)
        if isinstance(width, int | float) and width
        else 4 * lm.d_model,
    )


def compile_threshold(lm: LanguageModel) -> int | None:
    """Tokens from which compiled blocks repay their compilation: large models on a GPU; else None."""
    if any(lm.layer_device(layer).type != "cuda" for layer in range(lm.n_layers)):
        return None
    if (
        getattr(lm.config, "num_experts", None)
        or importlib.util.find_spec("triton") is None
    ):
        return None  # routing sends every batch another way, and each would be compiled again
    if not any(shutil.which(name) for name in ("cc", "gcc", "clang")):
        return None  # triton needs a compiler of the system
    return math.ceil(_COMPILES_FROM / (2 * block_parameters(lm)))


def block_parameters(lm: LanguageModel) -> int:
    return sum(parameter.numel() for parameter in lm.layers.parameters())


def _free_bytes(lm: LanguageModel) -> float:
    devices = {lm.layer_device(layer) for layer in range(lm.n_layers)}
    if all(device.type == "cuda" for device in devices):
        # Not what is free at the moment: the same recipe has to give the same batches tomorrow.
        return min(
            float(torch.cuda.mem_get_info(gpu)[1] - torch.cuda.memory_allocated(gpu))
            for gpu in devices
        )
    return float(os.sysconf("SC_PHYS_PAGES")) * os.sysconf("SC_PAGE_SIZE") / 2
