"""How much runs together, and whether blocks are compiled: from sizes that are known before, never by timing."""

import importlib.util
import math
import os
import shutil

import torch

from anchorscope.engine.sequences import SITES
from anchorscope.models.language_model import LanguageModel

_SHARE = 0.4  # of the free memory; the rest is for kernels' own needs and what the formula below leaves out
_MOST = {"cpu": 2048, "cuda": 2**18}  # matrix products gain nothing beyond it
_LEAST = 64
_TOKENS_PER_READING = 16  # a state is read at about every so many tokens
_COMPILES_FROM = 2e16  # operations: 40 s of a large GPU, of which compiled blocks save a quarter and cost about as much


def automatic_tokens(lm: LanguageModel) -> int:
    """How many tokens run together: a power of two, so that a little more or less free memory changes nothing."""
    fits = _SHARE * _free_bytes(lm) / bytes_per_token(lm)
    return int(min(_MOST[lm.device.type], max(_LEAST, 2 ** math.floor(math.log2(max(1.0, fits))))))


def bytes_per_token(lm: LanguageModel) -> float:
    """What a token takes: inside one block, as keys and values of an answer that grows, and as states that are read."""
    config, size = lm.config, lm.dtype.itemsize
    heads = int(config.num_attention_heads)
    key_heads = int(getattr(config, "num_key_value_heads", None) or heads)
    d_head = int(getattr(config, "head_dim", None) or lm.d_model // heads)
    d_mlp = int(getattr(config, "intermediate_size", None) or 4 * lm.d_model)
    block = 10 * lm.d_model + 4 * d_mlp + 4 * (heads + 2 * key_heads) * d_head
    keys_values = 2 * lm.n_layers * key_heads * d_head
    read = 2 * len(SITES) * lm.n_layers * lm.d_model / _TOKENS_PER_READING
    return size * (block + keys_values + read)


def worth_compiling(lm: LanguageModel, tokens: int) -> bool:
    """Whether compiled blocks repay the time that compiling takes: large models, much work, on a GPU."""
    if any(lm.layer_device(layer).type != "cuda" for layer in range(lm.n_layers)):
        return False
    if getattr(lm.config, "num_experts", None) or importlib.util.find_spec("triton") is None:
        return False  # routing sends every batch another way, and each would be compiled anew
    if not any(shutil.which(name) for name in ("cc", "gcc", "clang")):
        return False  # triton needs a compiler of the system
    return 2 * block_parameters(lm) * tokens >= _COMPILES_FROM


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
