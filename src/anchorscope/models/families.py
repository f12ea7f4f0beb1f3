"""Where the parts of a decoder are, one small table per family.

The engine runs the decoder layers itself (a model's own loop would choose masks and rotary embeddings by a layer's
place in it, and offers no per-item masks). All it needs to know of an architecture is written here: the names of the
parts, and in which order a block applies them. What a block adds to the residual stream is then at hand without hooks.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from jaxtyping import Float, Int
from torch import Tensor, nn

from anchorscope.models.attention import Attends
from anchorscope.plugins import load_all


@dataclass(frozen=True)
class Family:
    """Names of the parts, as attributes of the model and of its layers; None where a family has no such part."""

    name: str
    """What people call the layout."""
    model_types: tuple[str, ...]
    """`config.model_type` of the architectures that are laid out so."""
    stack: str = "model"
    """The decoder stack inside the causal language model; a path with dots where it lies deeper."""
    embedding: str = "embed_tokens"
    """Token embedding, inside the stack."""
    position_embedding: str | None = None
    """Learned embedding of positions, inside the stack, added to the tokens'."""
    layers: str = "layers"
    """The list of blocks, inside the stack."""
    rotary: str | None = "rotary_emb"
    """Rotary embedding, inside the stack."""
    rotary_per_layer_type: bool = False
    """Whether sliding and full layers have rotary embeddings of their own."""
    final_norm: str = "norm"
    """The norm after the last block, inside the stack."""
    attention: str = "self_attn"
    """Attention, inside a block."""
    mlp: str = "mlp"
    """Feed-forward part, inside a block."""
    norm_before_attention: str | None = "input_layernorm"
    """Norm of what attention reads, inside a block."""
    norm_after_attention: str | None = None
    """Norm of what attention gives, before it is added to the stream."""
    norm_before_mlp: str | None = "post_attention_layernorm"
    """Norm of what the feed-forward part reads, inside a block."""
    norm_after_mlp: str | None = None
    """Norm of what the feed-forward part gives, before it is added to the stream."""
    parallel: str | None = None
    """The block's switch that lets both parts read the stream before the block, instead of one after the other."""
    needs_bos: bool = False
    """Whether the model babbles without the beginning-of-text token, which some tokenizers do not add by themselves."""


_OLMO = Family(
    name="OLMo 2",
    model_types=("olmo2",),
    norm_before_attention=None,
    norm_after_attention="post_attention_layernorm",
    norm_before_mlp=None,
    norm_after_mlp="post_feedforward_layernorm",
)
_GEMMA = Family(
    name="Gemma 3",
    model_types=("gemma3_text",),
    rotary_per_layer_type=True,
    norm_after_attention="post_attention_layernorm",
    norm_before_mlp="pre_feedforward_layernorm",
    norm_after_mlp="post_feedforward_layernorm",
    needs_bos=True,
)

FAMILIES: tuple[Family, ...] = (
    Family(name="Llama", model_types=("llama", "mistral", "qwen2", "qwen3", "qwen3_moe", "phi3")),
    Family(name="Gemma", model_types=("gemma",), needs_bos=True),
    replace(_GEMMA, name="Gemma 2", model_types=("gemma2",), rotary_per_layer_type=False),
    _GEMMA,
    replace(_GEMMA, name="Gemma 3 with images", model_types=("gemma3",), stack="model.language_model"),
    _OLMO,
    replace(_OLMO, name="OLMo 3", model_types=("olmo3",), rotary_per_layer_type=True),
    Family(
        name="GPT-NeoX",
        model_types=("gpt_neox",),
        stack="gpt_neox",
        embedding="embed_in",
        final_norm="final_layer_norm",
        attention="attention",
        parallel="use_parallel_residual",
    ),
    Family(
        name="GPT-2",
        model_types=("gpt2",),
        stack="transformer",
        embedding="wte",
        position_embedding="wpe",
        layers="h",
        rotary=None,
        final_norm="ln_f",
        attention="attn",
        norm_before_attention="ln_1",
        norm_before_mlp="ln_2",
    ),
)
"""All layouts of our own."""


def all_families() -> tuple[Family, ...]:
    """With those of plug-ins; a model that is listed nowhere is tried with each of them, see `wrapping`."""
    return (*FAMILIES, *load_all("families"))


def listed_family(model_type: str) -> Family | None:
    """The table that names this architecture; None if none does."""
    return next((family for family in all_families() if model_type in family.model_types), None)


def missing_part(model: nn.Module, family: Family) -> str | None:
    """What a family's table names and the model does not have, in words; None if every part is there."""
    try:
        stack = part_at(model, family.stack)
        for name in (family.embedding, family.position_embedding, family.rotary, family.final_norm):
            if name is not None:
                getattr(stack, name)
        block = getattr(stack, family.layers)[0]
        for name in (family.attention, family.mlp, *_norms(family)):
            getattr(block, name)
    except (AttributeError, IndexError) as error:
        return str(error)
    return None


def part_at(module: Any, path: str) -> Any:
    """The part that a path with dots names."""
    for name in path.split("."):
        module = getattr(module, name)
    return module


def _norms(family: Family) -> Iterator[str]:
    before_and_after = (
        family.norm_before_attention,
        family.norm_after_attention,
        family.norm_before_mlp,
        family.norm_after_mlp,
    )
    return (name for name in before_and_after if name is not None)


@dataclass(frozen=True)
class BlockOutput:
    """What one block did to the residual stream."""

    attention: Float[Tensor, "1 token d_model"]
    """What attention added."""
    mlp: Float[Tensor, "1 token d_model"]
    """What the feed-forward part added."""
    residual: Float[Tensor, "1 token d_model"]
    """The stream after the block."""


def run_block(
    family: Family,
    block: Any,
    stream: Float[Tensor, "1 token d_model"],
    rotary: tuple[Tensor, Tensor] | None,
    attends: Attends,
    read: Int[Tensor, " read"] | None = None,
) -> BlockOutput:
    """One decoder block on the residual stream; `attends` says which tokens see which.

    With `read`, the places of some tokens, only these go on after attention: all that is wanted of a last block.
    """
    given: dict[str, Any] = {"attention_mask": attends}
    if rotary is not None:
        given["position_embeddings"] = rotary
    seen = _normed(block, family.norm_before_attention, stream)
    attended = _first(getattr(block, family.attention)(hidden_states=seen, **given))
    attended = _normed(block, family.norm_after_attention, attended)
    if read is not None:
        attended, stream = attended[:, read], stream[:, read]
    after_attention = stream + attended
    parallel = family.parallel is not None and getattr(block, family.parallel)
    fed = getattr(block, family.mlp)(_normed(block, family.norm_before_mlp, stream if parallel else after_attention))
    fed = _normed(block, family.norm_after_mlp, _first(fed))
    return BlockOutput(attention=attended, mlp=fed, residual=after_attention + fed)


def _normed(block: Any, norm: str | None, stream: Tensor) -> Tensor:
    return stream if norm is None else getattr(block, norm)(stream)


def _first(given: Any) -> Tensor:
    """Attention hands back its weights too, and some mixtures of experts their routing."""
    return given[0] if isinstance(given, tuple) else given
