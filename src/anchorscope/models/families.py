"""Where the parts of a decoder are, one small table per family.

The engine runs the decoder layers itself (a model's own loop would choose masks and rotary embeddings by a layer's
place in it, and offers no per-item masks). All it needs to know of an architecture is written here: the names of the
parts, and in which order a block applies them. What a block adds to the residual stream is then at hand without hooks.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from anchorscope.errors import UserError


@dataclass(frozen=True)
class Family:
    """Names of the parts, as attributes of the model and of its layers."""

    model_types: tuple[str, ...]
    """`config.model_type` of the architectures that are laid out so."""
    stack: str = "model"
    """The decoder stack inside the causal language model."""
    embedding: str = "embed_tokens"
    """Token embedding, inside the stack."""
    layers: str = "layers"
    """The list of blocks, inside the stack."""
    rotary: str = "rotary_emb"
    """Rotary embedding, inside the stack."""
    final_norm: str = "norm"
    """The norm after the last block, inside the stack."""
    attention: str = "self_attn"
    """Attention, inside a block."""
    mlp: str = "mlp"
    """Feed-forward part, inside a block."""
    norm_before_attention: str = "input_layernorm"
    """Norm of what attention reads, inside a block."""
    norm_before_mlp: str = "post_attention_layernorm"
    """Norm of what the feed-forward part reads, inside a block."""


FAMILIES: tuple[Family, ...] = (Family(model_types=("llama", "mistral", "qwen2", "qwen3")),)


def family_of(model: nn.Module, name: str) -> Family:
    """The table of a model's family, proven against the model: every named part is there."""
    model_type = model.config.model_type  # type: ignore[union-attr]
    for family in FAMILIES:
        if model_type in family.model_types:
            _prove(model, family, name)
            return family
    listed = ", ".join(sorted(kind for family in FAMILIES for kind in family.model_types))
    raise UserError(
        f"Model {name!r} is of the architecture {model_type!r}, whose layout is not known here; known: {listed}. "
        f"Choose a model of one of these."
    )


def _prove(model: nn.Module, family: Family, name: str) -> None:
    try:
        stack = getattr(model, family.stack)
        for part in (family.embedding, family.rotary, family.final_norm):
            getattr(stack, part)
        for part in (family.attention, family.mlp, family.norm_before_attention, family.norm_before_mlp):
            getattr(getattr(stack, family.layers)[0], part)
    except (AttributeError, IndexError) as error:
        raise UserError(
            f"Model {name!r} does not have the parts of its architecture ({error}); "
            f"give the plain causal language model, without a wrapper around it."
        ) from error


@dataclass(frozen=True)
class BlockOutput:
    """What one block did to the residual stream."""

    attention: Tensor
    """What attention added, [batch, pos, d_model]."""
    mlp: Tensor
    """What the feed-forward part added, [batch, pos, d_model]."""
    residual: Tensor
    """The stream after the block, [batch, pos, d_model]."""


Attend = Callable[[nn.Module, Tensor], Tensor]
"""Calls an attention module on its normed input with the engine's mask, rotary embedding and keys."""


def run_block(family: Family, layer: Any, stream: Tensor, attend: Attend) -> BlockOutput:
    """One decoder block on the residual stream."""
    attended = attend(getattr(layer, family.attention), getattr(layer, family.norm_before_attention)(stream))
    stream = stream + attended
    fed = getattr(layer, family.mlp)(getattr(layer, family.norm_before_mlp)(stream))
    return BlockOutput(attention=attended, mlp=fed, residual=stream + fed)
