"""A model's configuration, looked at before any class of transformers reads it, and again once one has.

Numbers that make parts (layers, heads, experts) are bounded under whatever name they come, because a loop over ten
million layers begins as soon as a class is given them. Names of attention kernels are compared with a list, because
transformers would fetch and run a kernel that a configuration names. What a configuration says of kernels is not
followed anyway: attention is this package's own.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from anchorscope.models.limits import JSON_DEPTH, LAYERS, PARTS, POSITIONS, STOPS, VOCABULARY, WIDTH
from anchorscope.models.plain_files import Unfit

NAME = "config.json"
_LAYERS = re.compile(r"^(num|n)_\w*(layers?|blocks?|stages?)$|^n?(layers?|depths?|blocks?)$|_layers$|block_count$")
_PARTS = re.compile(r"(heads?|experts?|groups?|labels|classes|codebooks|quantizers|cycles)$|(head|expert)\w*_count")
_KERNEL_KEYS = ("attn_implementation", "experts_implementation")
_KERNELS = ("eager", "sdpa", "flex_attention", "flash_attention_2", "flash_attention_3", "flash_attention_4")
_EXPERTS = ("eager", "batched_mm", "grouped_mm")
_OTHER_FILES = ("transformers_weights", "configuration_files")
_LARGEST = 1 << 63


def check_raw(config: Mapping[str, Any]) -> None:
    """Refuses what must not reach transformers: endless loops, other files, kernels from elsewhere."""
    kind, classes = config.get("model_type"), config.get("architectures")
    if kind is not None and not (isinstance(kind, str) and len(kind) <= 100 and kind.isprintable()):
        raise Unfit(f"{NAME} says model_type = {_shown(kind)}; allowed: the name of an architecture")
    if classes is not None and not (isinstance(classes, list) and all(isinstance(one, str) for one in classes)):
        raise Unfit(f"{NAME} says architectures = {_shown(classes)}; allowed: a list of names")
    for key in _OTHER_FILES:
        if config.get(key) is not None:
            raise Unfit(f"{NAME} names another file to be read ({key} = {_shown(config[key])}), which is not done")
    for key, value in _entries(config):
        if key.strip("_").removesuffix("_internal") in _KERNEL_KEYS:
            _check_kernel(key, value)
        elif key.endswith("_token_id") and isinstance(value, list) and len(value) > STOPS:
            raise Unfit(f"{NAME} says {key[:100]} = {_shown(value)}; allowed: at most {STOPS} tokens")
        elif isinstance(value, int | float) and not isinstance(value, bool):
            check_number(key, value)


def check_number(key: str, value: float, where: str = NAME) -> None:
    """Refuses a number of layers or parts that no model has; others only where no tensor could have such a side."""
    name = key.lower()
    most = LAYERS if _LAYERS.search(name) else PARTS if _PARTS.search(name) else _LARGEST
    if abs(value) > most and (most < _LARGEST or isinstance(value, int)):  # some limits are infinite
        raise Unfit(f"{where} says {key[:100]} = {_shown(value)}; allowed: at most {most:,}")


def check_read(config: Any) -> None:
    """Refuses a configuration, as transformers has read it, whose sizes cannot be those of a model."""
    text = config.get_text_config()
    for name, most in (
        ("num_hidden_layers", LAYERS),
        ("hidden_size", WIDTH),
        ("num_attention_heads", PARTS),
        ("vocab_size", VOCABULARY),
    ):
        _check_size(text, name, most)
    for name, most in (("num_key_value_heads", PARTS), ("head_dim", WIDTH), ("max_position_embeddings", POSITIONS)):
        if getattr(text, name, None) is not None:
            _check_size(text, name, most)
    heads, shared = text.num_attention_heads, getattr(text, "num_key_value_heads", None)
    if isinstance(heads, int) and isinstance(shared, int) and heads % shared:
        raise Unfit(f"{NAME} says {heads} heads that share {shared} key-value heads; the one must divide the other")


def forget_kernels(config: Any) -> None:
    """What a configuration says of attention kernels is not followed: transformers chooses among its own."""
    config._attn_implementation = None
    config._experts_implementation = None


def _check_size(text: Any, name: str, most: int) -> None:
    value = getattr(text, name, None)
    sizes = value if isinstance(value, list) and value else [value]  # some models have a number for every layer
    if not all(isinstance(one, int) and not isinstance(one, bool) and 1 <= one <= most for one in sizes):
        raise Unfit(f"{NAME} says {name} = {_shown(value)}; allowed: a whole number from 1 to {most:,}")


def _entries(config: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Every value with the name that it, or the list around it, has; kernels' names come as they are."""
    waiting: list[tuple[str, Any, int]] = [("", config, 1)]
    while waiting:
        name, value, depth = waiting.pop()
        if depth > JSON_DEPTH:
            raise Unfit(f"{NAME} is nested more than {JSON_DEPTH} deep")
        inside = value.items() if isinstance(value, dict) else ((name, one) for one in value)
        for key, one in inside:
            if isinstance(one, dict | list) and not key.endswith(("_token_id", "_implementation")):
                waiting.append((key, one, depth + 1))
            else:
                yield key, one


def _check_kernel(key: str, value: Any) -> None:
    named = list(value.values()) if isinstance(value, dict) else [value]
    allowed = _EXPERTS if "experts" in key else _KERNELS
    for one in named:
        if one is not None and one not in allowed:
            raise Unfit(
                f"{NAME} names a kernel from elsewhere ({key} = {_shown(one)}), which is not fetched; "
                f"allowed: {', '.join(allowed)}"
            )


def _shown(value: Any) -> str:
    text = f"{value!r}"
    return text if len(text) <= 60 else f"{text[:60]}…"
