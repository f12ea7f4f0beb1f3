"""`shape:NAME`: the exact architecture of a known model with random weights, for tests and for speed.

Such a model knows nothing: its answers and labels have to be supplied, and every output says RANDOM WEIGHTS. The
embedded model's tokenizer serves them all. `shape:NAME/N` is N times narrower, with as many layers.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from anchorscope.errors import UserError, unknown

if TYPE_CHECKING:  # the list of shapes is shown by commands that must come at once
    import torch

PREFIX = "shape:"
MARK = "RANDOM WEIGHTS"
"""What every output of such a model says."""


@dataclass(frozen=True)
class Shape:
    """Sizes of a published model, as its configuration states them."""

    architecture: str
    d_model: int
    d_mlp: int
    layers: int
    heads: int
    key_value_heads: int
    d_head: int
    vocabulary: int
    tied: bool
    """Whether the head is the embedding."""
    positions: int
    rope: dict[str, Any]
    norm_epsilon: float


_LLAMA_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 500000.0,
    "factor": 32.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
_QWEN_ROPE = {"rope_type": "default", "rope_theta": 1000000.0}
SHAPES: dict[str, Shape] = {
    "smollm2-135m": Shape(
        "llama", 576, 1536, 30, 9, 3, 64, 49152, True, 8192, {"rope_type": "default", "rope_theta": 100000.0}, 1e-5
    ),
    "llama-3.2-1b": Shape("llama", 2048, 8192, 16, 32, 8, 64, 128256, True, 131072, _LLAMA_ROPE, 1e-5),
    "llama-3.2-3b": Shape("llama", 3072, 8192, 28, 24, 8, 128, 128256, True, 131072, _LLAMA_ROPE, 1e-5),
    "qwen3-8b": Shape("qwen3", 4096, 12288, 36, 32, 8, 128, 151936, False, 40960, _QWEN_ROPE, 1e-6),
    "qwen3-32b": Shape("qwen3", 5120, 25600, 64, 64, 8, 128, 151936, False, 40960, _QWEN_ROPE, 1e-6),
}


def is_shape(source: str) -> bool:
    """Whether the user named a shape."""
    return source.startswith(PREFIX)


def title(source: str) -> str:
    """The name on charts and in tables."""
    return f"{source.removeprefix(PREFIX)} ({MARK})"


def config_of(source: str, tokens: int) -> Any:
    """The configuration of `shape:NAME` or `shape:NAME/N`; `tokens` is the size of the tokenizer's vocabulary."""
    name, _, divisor_text = source.removeprefix(PREFIX).partition("/")
    if name not in SHAPES:
        raise unknown("shape", name, SHAPES, "A shape N times narrower is shape:NAME/N.")
    if divisor_text and not (divisor_text.isdecimal() and 1 <= int(divisor_text) <= 64):
        raise UserError(f"Shape {source!r} cannot be scaled by {divisor_text!r}; allowed: shape:NAME/1 to /64.")
    from transformers import AutoConfig

    shape, by = SHAPES[name], int(divisor_text or 1)
    key_value_heads = max(1, shape.key_value_heads // by)
    heads = max(1, shape.heads // by // key_value_heads) * key_value_heads
    return AutoConfig.for_model(
        shape.architecture,
        hidden_size=max(16, shape.d_model // by),
        intermediate_size=max(16, shape.d_mlp // by),
        num_hidden_layers=shape.layers,
        num_attention_heads=heads,
        num_key_value_heads=key_value_heads,
        head_dim=max(8, shape.d_head // by // 2 * 2),  # even, for the rotary embedding
        vocab_size=shape.vocabulary if by == 1 else tokens,
        tie_word_embeddings=shape.tied,
        max_position_embeddings=shape.positions,
        rope_parameters=dict(shape.rope),
        rms_norm_eps=shape.norm_epsilon,
    )


def build(config: Any, dtype: "torch.dtype", device: "torch.device") -> Any:
    """The model with random weights, the same at every call on one kind of device, made where it will run."""
    import torch
    from transformers import AutoModelForCausalLM

    with torch.random.fork_rng(), torch.device(device):
        torch.manual_seed(0)
        return AutoModelForCausalLM.from_config(config, dtype=dtype, attn_implementation="sdpa")
