"""Which weights and which tokenizer gave the numbers: fingerprints that see every bit.

A sha256 over all bytes of a large model takes minutes and has to bring them to the host. So every tensor is read where
it lies, as a row of 64-bit words, and 65,536 words at a time become two sums that wrap around: Σ xᵢ·(2i + 1) and
Σ xᵢ·mᵢ, with mᵢ odd and well mixed. A word that changes by δ changes them by δ times an odd number, which is never 0
modulo 2⁶⁴: no single word can change unseen, and two that outweigh each other in one sum do not in the other. Sums of
integers do not depend on their order, so neither threads nor devices change them. sha256 is taken over the sums.
"""

import hashlib
import json
from collections.abc import Mapping
from functools import cache
from typing import Any

import torch
from jaxtyping import Int, UInt8
from torch import Tensor

_WORDS = 2**16  # words of one pair of sums
_ROWS_AT_ONCE = {"cpu": 1}  # a row of words and its products fit the cache of a core
_ROWS_ELSEWHERE = 64  # 32 MB of products
_BYTES = 8  # of a word
_MULTIPLIER, _INCREMENT = 6364136223846793005, 1442695040888963407  # Knuth's MMIX generator


def model_fingerprint(model: Any, dtype: torch.dtype | None = None) -> str:
    """sha256 over the configuration and over name, shape, precision and every bit of all tensors.

    With `dtype`, that of the same model in another precision: weights that were widened when they were loaded, or are
    rounded as a loader would round them, are the same model.
    """
    settings, own = model.config.to_dict(), model.dtype
    for name in ("_name_or_path", "transformers_version"):
        settings.pop(name, None)  # where a model lies and who saved it changes no number
    if dtype is not None:
        settings = _in_precision(settings, own, dtype)
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True, default=str).encode())
    known: dict[tuple[Any, ...], bytes] = {}
    for name, tensor in sorted(model.state_dict().items()):
        is_cast = dtype not in (None, own) and isinstance(tensor, Tensor) and tensor.dtype == own
        # A copy's memory may be given to the next one: what is known by its place is no copy.
        _add(digest, name, tensor.to(dtype) if is_cast else tensor, {} if is_cast else known)
    return digest.hexdigest()


def _in_precision(settings: dict[str, Any], own: torch.dtype, wanted: torch.dtype) -> dict[str, Any]:
    """A configuration that names another precision, wherever it names one."""
    old, new = (str(one).removeprefix("torch.") for one in (own, wanted))
    changed: dict[str, Any] = {}
    for name, value in settings.items():
        if isinstance(value, dict):
            changed[name] = _in_precision(value, own, wanted)
        else:
            is_named = name in ("dtype", "torch_dtype") and str(value).removeprefix("torch.") == old
            changed[name] = new if is_named else value
    return changed


def tokenizer_fingerprint(tokenizer: Any) -> str:
    """sha256 over what a tokenizer does: its kind, rules, vocabulary, special tokens and chat template."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    rules = json.loads(backend.to_str()) if backend is not None else {}
    for name in ("truncation", "padding"):
        rules.pop(name, None)  # left over from the last call
    told = {
        "kind": type(tokenizer).__name__,
        "rules": rules,
        "vocabulary": tokenizer.get_vocab(),
        "special": getattr(tokenizer, "special_tokens_map", {}),
        "template": getattr(tokenizer, "chat_template", None),
    }
    return hashlib.sha256(json.dumps(told, sort_keys=True, default=str).encode()).hexdigest()


def tensor_sums(tensor: Tensor) -> Int[Tensor, "row 2"]:
    """The two sums of every 65,536 words of a tensor's bytes, the last ones filled up with zeros, on its device."""
    if tensor.numel() == 0:
        return torch.zeros(0, 2, dtype=torch.int64, device=tensor.device)
    flat = tensor.detach().reshape(-1)
    if flat.data_ptr() % _BYTES:
        flat = flat.clone()  # a part of another tensor that begins in the middle of a word
    data: UInt8[Tensor, " byte"] = flat.view(torch.uint8)
    whole = data.numel() // (_WORDS * _BYTES)
    rows = data[: whole * _WORDS * _BYTES].view(torch.int64).view(whole, _WORDS)
    weights = _weights(tensor.device)
    at_once = _ROWS_AT_ONCE.get(tensor.device.type, _ROWS_ELSEWHERE)
    found = [_sums(part, weights) for part in rows.split(at_once)] if whole else []
    rest = data[whole * _WORDS * _BYTES :]
    if rest.numel():
        last = torch.zeros(-(-rest.numel() // _BYTES) * _BYTES, dtype=torch.uint8, device=tensor.device)
        last[: rest.numel()] = rest
        words = last.view(torch.int64)
        found.append(_sums(words[None], weights[:, : len(words)]))
    return torch.cat(found)


def _add(digest: Any, name: str, value: Any, known: dict[tuple[Any, ...], bytes]) -> None:
    """One entry of a state: mostly a tensor; quantised layers also keep tensors with scales, tuples and settings."""
    if isinstance(value, list | tuple):
        for index, one in enumerate(value):
            _add(digest, f"{name}.{index}", one, known)
    elif isinstance(value, Mapping):
        for key, one in sorted(value.items()):
            _add(digest, f"{name}.{key}", one, known)
    elif not isinstance(value, Tensor):
        digest.update(f"{name} {value!r}".encode())
    elif value.is_quantized:
        scales = value.q_per_channel_scales() if "channel" in str(value.qscheme()) else value.q_scale()
        digest.update(f"{name} {value.qscheme()}".encode())
        _add(digest, f"{name}.values", value.int_repr(), known)
        _add(digest, f"{name}.scales", scales, known)
    else:
        digest.update(f"{name} {tuple(value.shape)} {value.dtype}".encode())
        place = (value.data_ptr(), value.shape, value.stride(), value.dtype, value.device)
        if place not in known:  # a tied head is the embedding
            known[place] = tensor_sums(value).cpu().numpy().tobytes()
        digest.update(known[place])


@cache
def _weights(device: torch.device) -> Int[Tensor, "2 word"]:
    index = torch.arange(_WORDS, dtype=torch.int64, device=device)
    mixed = index * _MULTIPLIER + _INCREMENT
    mixed = (mixed ^ (mixed >> 29)) * _MULTIPLIER
    return torch.stack((2 * index + 1, (mixed ^ (mixed >> 32)) | 1))


def _sums(words: Int[Tensor, "row word"], weights: Int[Tensor, "2 word"]) -> Int[Tensor, "row 2"]:
    return torch.stack([(words * weights[way]).sum(dim=1) for way in range(2)], dim=1)
