"""Which items run together: sorted by length, as many as a token budget allows, so that attention pads little.

The budget, and whether blocks are compiled, follow from sizes that are known before, never from timing. Where memory
does not suffice, the budget is halved and the work continues with what is left; the lower budget stays.
"""

import importlib.util
import math
import os
import shutil
import sys
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch

from anchorscope.engine.sequences import SITES
from anchorscope.errors import MemoryRanOut as MemoryRanOut
from anchorscope.errors import UserError
from anchorscope.models.devices import free_memory, is_out_of_memory
from anchorscope.models.language_model import LanguageModel

MOST_AT_ONCE = 2**16
"""Tokens of one pass, however much memory there is: products gain nothing beyond, and the host prepares the next batch
while the device runs this one."""


@dataclass
class Budget:
    """How many tokens may run together; shared by all passes of a run."""

    tokens: int
    lowered: Callable[[int], None] = field(default=lambda tokens: None)
    """Told whenever memory ran out, with the new number."""
    is_planned: bool = False
    """Whether the batches are part of a plan, so that none may be divided: `MemoryRanOut` is raised instead."""

    @property
    def at_once(self) -> int:
        """Tokens of one pass through the blocks."""
        return min(self.tokens, MOST_AT_ONCE)

    def lower(self, tokens: int) -> None:
        """From now on no more than this."""
        self.tokens = max(1, min(tokens, self.tokens))
        self.lowered(self.tokens)


def plan_batches(lengths: Sequence[int], batch_tokens: int, order: Sequence[int] | None = None) -> list[list[int]]:
    """Indices of each batch; the longest item times the number of items stays within `batch_tokens`.

    Longest first, so that memory that does not suffice is noticed at once. `order` says which items run and breaks ties
    between equal lengths; without it all do and keep their place.
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


def run_in_batches(
    batches: Sequence[Sequence[int]],
    lengths: Callable[[], Sequence[int]],
    budget: Budget | None,
    run: Callable[[list[int]], None],
) -> None:
    """Runs every batch; one that does not fit is halved, and all that follow with it: only then lengths are asked."""
    budget = budget or Budget(sys.maxsize)
    waiting = deque(list(batch) for batch in batches)
    while waiting:
        batch = waiting.popleft()
        if _fits(run, batch):
            continue
        of_all = lengths()
        longest = max(of_all[index] for index in batch)
        if len(batch) == 1:
            raise too_long_for_memory(longest)
        if budget.is_planned:
            raise MemoryRanOut(longest * len(batch))
        budget.lower(longest * (len(batch) // 2))
        left = [*batch, *(index for later in waiting for index in later)]
        waiting = deque(plan_batches(of_all, budget.tokens, left))


def too_long_for_memory(tokens: int) -> UserError:
    """Nothing smaller can be tried."""
    return UserError(
        f"Memory does not suffice for a single item of {tokens} tokens; choose a smaller --dtype or model, another "
        f"--device, or leave out the longest questions."
    )


def _fits(run: Callable[[list[int]], None], batch: list[int]) -> bool:
    """Whether a batch could be run; what it had taken is free again if not."""
    try:
        run(batch)
        return True
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
    free_memory()  # outside the handler: the exception held on to every tensor of the pass
    return False


_SHARE = 0.4  # of the free memory; the rest is for kernels' own needs and what the formula below leaves out
_HELD = 0.15  # of the free memory, for keys and values of answers that come and go
_MOST = {"cpu": 2048, "cuda": 2**18}  # matrix products gain nothing beyond it
_LEAST = 64
_TOKENS_PER_READING = 16  # a state is read at about every so many tokens
_COMPILES_FROM = 2e16  # operations: 40 s of a large GPU, of which compiled blocks save a quarter and cost about as much


@dataclass(frozen=True)
class MemoryFacts:
    """What a model's memory holds, from sizes alone: plain numbers, so that passes are planned without the model."""

    device: str
    """`cpu` or `cuda`."""
    free: float
    """Bytes beside the weights."""
    itemsize: int
    n_layers: int
    d_model: int
    n_heads: int
    key_heads: int
    d_head: int
    d_mlp: int

    @property
    def tokens(self) -> int:
        """How many tokens run together: a power of two, so that a little more or less free memory changes nothing."""
        fits = _SHARE * self.free / self.bytes_per_token
        return int(min(_MOST[self.device], max(_LEAST, 2 ** math.floor(math.log2(max(1.0, fits))))))

    @property
    def bytes_per_token(self) -> float:
        """What a token takes: inside a block, as keys and values of an answer that grows, and as states that are
        read."""
        block = 10 * self.d_model + 4 * self.d_mlp + 4 * (self.n_heads + 2 * self.key_heads) * self.d_head
        keys_values = 2 * self.n_layers * self.key_heads * self.d_head
        read = 2 * len(SITES) * self.n_layers * self.d_model / _TOKENS_PER_READING
        return self.itemsize * (block + keys_values + read)

    @property
    def slots(self) -> int:
        """How many tokens' keys and values answers that come and go may hold; twice as many are, while they grow."""
        return int(_HELD * self.free / (self.itemsize * 2 * self.n_layers * self.key_heads * self.d_head))

    def tokens_with_gradients(self, layers: int, n_own: int, n_keys: int) -> int:
        """How many tokens run together where torch is to go back through so many layers; rows as long as below."""
        fits = _SHARE * self.free / (self.bytes_per_token + layers * self.bytes_kept_per_token(n_own, n_keys))
        return int(min(_MOST[self.device], 2 ** math.floor(math.log2(max(1.0, fits)))))

    def bytes_kept_per_token(self, n_own: int, n_keys: int) -> float:
        """What a token of a row of `n_own` tokens that see `n_keys` leaves behind in a layer, to go back through it.

        The inputs of up to four norms in float32, three of the feed-forward part, queries, the row's keys and values,
        and attention weights, once in float32 and once in the model's precision.
        """
        own = (self.n_heads + 2 * self.key_heads) * self.d_head
        parts = 3 * self.d_mlp + own + 2 * self.key_heads * self.d_head * n_keys / n_own
        return 4 * 4 * self.d_model + self.itemsize * parts + self.n_heads * n_keys * (4 + self.itemsize)


def memory_facts(lm: LanguageModel) -> MemoryFacts:
    """Those of a loaded model."""
    key_heads, d_head, d_mlp = _widths(lm)
    return MemoryFacts(
        lm.device.type,
        _free_bytes(lm),
        lm.dtype.itemsize,
        lm.n_layers,
        lm.d_model,
        lm.n_heads,
        key_heads,
        d_head,
        d_mlp,
    )


def automatic_tokens(lm: LanguageModel) -> int:
    """How many tokens run together, where nobody says."""
    return memory_facts(lm).tokens


def _widths(lm: LanguageModel) -> tuple[int, int, int]:
    """Heads of keys, width of a head, and of the feed-forward part."""
    key_heads = int(getattr(lm.config, "num_key_value_heads", None) or lm.n_heads)
    d_head = int(getattr(lm.config, "head_dim", None) or lm.d_model // lm.n_heads)
    stated = getattr(lm.config, "intermediate_size", None)  # some have a list, with a width for every layer
    return key_heads, d_head, int(stated) if isinstance(stated, int | float) and stated else 4 * lm.d_model


def compile_threshold(lm: LanguageModel) -> int | None:
    """Tokens from which on compiled blocks repay the time that compiling takes: large models, on a GPU; else None."""
    if any(lm.layer_device(layer).type != "cuda" for layer in range(lm.n_layers)):
        return None
    if getattr(lm.config, "num_experts", None) or importlib.util.find_spec("triton") is None:
        return None  # routing sends every batch another way, and each would be compiled anew
    if not any(shutil.which(name) for name in ("cc", "gcc", "clang")):
        return None  # triton needs a compiler of the system
    return math.ceil(_COMPILES_FROM / (2 * block_parameters(lm)))


def block_parameters(lm: LanguageModel) -> int:
    """Parameters that every token runs through: those of the blocks, without embedding and head."""
    return sum(parameter.numel() for parameter in lm.layers.parameters())


def _free_bytes(lm: LanguageModel) -> float:
    devices = {lm.layer_device(layer) for layer in range(lm.n_layers)}
    if all(device.type == "cuda" for device in devices):
        # What others hold just now is not looked at: the same recipe is to give the same batches tomorrow, and where
        # memory does run out, batches are halved.
        return min(float(torch.cuda.mem_get_info(one)[1] - torch.cuda.memory_allocated(one)) for one in devices)
    try:
        return float(os.sysconf("SC_PHYS_PAGES")) * os.sysconf("SC_PAGE_SIZE") / 2
    except (ValueError, OSError, AttributeError):  # a system that does not tell
        return 4e9
