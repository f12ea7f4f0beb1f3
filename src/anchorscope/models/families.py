"""A decoder block: the names of its parts, one table per family, and the attention that runs in it.

The engine runs the decoder layers itself: a model's own loop offers no per-item masks. All it needs to know of an
architecture is written here: the names of the parts, and the order in which a block applies them.

transformers looks up a model's attention function by a name in its configuration. Ours gets queries, keys and values of
all tokens of a batch in one line, and passes them to the object given as the mask. Only the engine's own twin of a
model (`make_twin`) names it.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor, nn

from anchorscope.plugins import load_all


@dataclass(frozen=True)
class GgufLayout:
    """What llama.cpp changes in the weights of an architecture; `gguf` knows how it names them."""

    architecture: str
    """As GGUF files name it."""
    woven: tuple[tuple[str, str], ...] = ()
    """Tensors in which the two halves of each head are woven together, with the option that counts the heads."""
    norms_plus_one: bool = False
    transposed: bool = False


@dataclass(frozen=True)
class Family:
    """Names of the parts, down to `final_norm` inside the stack, then inside a block; None where there is none."""

    name: str
    model_types: tuple[str, ...]
    stack: str = "model"
    """The decoder stack inside the causal language model; a path with dots where it lies deeper."""
    embedding: str = "embed_tokens"
    position_embedding: str | None = None
    """Learned embedding of positions, inside the stack, added to the tokens'."""
    layers: str = "layers"
    rotary: str | None = "rotary_emb"
    rotary_per_layer_type: bool = False
    """Whether sliding and full layers have their own rotary embeddings."""
    final_norm: str = "norm"
    attention: str = "self_attn"
    mlp: str = "mlp"
    norm_before_attention: str | None = "input_layernorm"
    norm_after_attention: str | None = None
    """Norm of what attention gives, before it is added to the stream."""
    norm_before_mlp: str | None = "post_attention_layernorm"
    norm_after_mlp: str | None = None
    parallel: str | None = None
    """The block's attribute that says whether both parts read the stream before the block."""
    needs_bos: bool = False
    """Whether the model needs the beginning-of-text token, which some tokenizers don't add."""
    gguf: tuple[GgufLayout, ...] = ()
    """The GGUF files that models of this family can be read from."""


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
    gguf=(GgufLayout("gemma3", norms_plus_one=True),),
)
_HEADS = (("attn_q", "num_attention_heads"), ("attn_k", "num_key_value_heads"))

FAMILIES: tuple[Family, ...] = (
    Family(
        name="Llama",
        model_types=("llama", "mistral", "qwen2", "qwen3", "qwen3_moe", "phi3"),
        gguf=(
            GgufLayout("llama", woven=_HEADS),
            GgufLayout("qwen2"),
            GgufLayout("qwen3"),
            GgufLayout("qwen3moe"),
            GgufLayout("phi3"),
        ),
    ),
    Family(name="Gemma", model_types=("gemma",), needs_bos=True),
    replace(
        _GEMMA,
        name="Gemma 2",
        model_types=("gemma2",),
        rotary_per_layer_type=False,
        gguf=(GgufLayout("gemma2", norms_plus_one=True),),
    ),
    _GEMMA,
    replace(
        _GEMMA,
        name="Gemma 3 with images",
        model_types=("gemma3",),
        stack="model.language_model",
        gguf=(),
    ),
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
        gguf=(GgufLayout("gpt2", transposed=True),),
    ),
)


def all_families() -> tuple[Family, ...]:
    """With those of plug-ins; an unlisted model is tried with each, see `wrapping`."""
    return (*FAMILIES, *load_all("families"))


def listed_family(model_type: str) -> Family | None:
    return next(
        (family for family in all_families() if model_type in family.model_types), None
    )


def missing_part(model: nn.Module, family: Family) -> str | None:
    """The first part that a family names and the model lacks; None if it has all."""
    try:
        stack = part_at(model, family.stack)
        for name in (
            family.embedding,
            family.position_embedding,
            family.rotary,
            family.final_norm,
        ):
            if name is not None:
                getattr(stack, name)
        block = getattr(stack, family.layers)[0]
        around_attention = (
            family.norm_before_attention,
            family.attention,
            family.norm_after_attention,
        )
        for name in (
            *around_attention,
            family.norm_before_mlp,
            family.mlp,
            family.norm_after_mlp,
        ):
            if name is not None:
                getattr(block, name)
    except (AttributeError, IndexError) as error:
        return str(error)
    return None


def part_at(module: Any, path: str) -> Any:
    for name in path.split("."):
        module = getattr(module, name)
    return module


ATTENTION = "anchorscope"
_NOT_COMPUTED = ("s_aux", "position_bias")  # attention sinks and learned biases

Queries = Float[Tensor, "token head d_head"]
Keys = Float[Tensor, "token key_head d_head"]
"""Keys or values of all tokens of a batch, in one line."""


@runtime_checkable
class Attends(Protocol):
    """Knows which tokens of a batch see which."""

    def attend(
        self,
        query: Queries,
        key: Keys,
        value: Keys,
        scaling: float,
        softcap: float | None,
    ) -> Float[Tensor, "token head d_value"]:
        """Attention of all tokens; several query heads may share the keys and values of one head."""


def _attention(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Any,
    scaling: float | None = None,
    softcap: float | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    if not hasattr(attention_mask, "attend"):
        raise ValueError(
            "attention does not obey the mask: it was not handed what the block was given"
        )
    for name in _NOT_COMPUTED:
        if others.get(name) is not None:
            raise ValueError(
                f"its attention has a part that is not computed here ({name})"
            )
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    # [token, head, d_head]
    queries, keys, values = (part[0].transpose(0, 1) for part in (query, key, value))
    return attention_mask.attend(queries, keys, values, scale, softcap)[None], None


@cache
def register_attention() -> None:
    """Tells transformers the engine's attention function by its name.

    It is never compiled: it is index work and one kernel, and what is worth compiling lies around it.
    """
    from transformers import AttentionInterface

    AttentionInterface.register(ATTENTION, torch.compiler.disable(_attention))


Weights = Float[Tensor, "row key_head group_pos key_pos"]
"""Attention weights after the softmax, float32; heads that share their keys stand one after the other."""
Edit = Callable[[Weights], Weights]


def masked_attention(
    query: Float[Tensor, "row pos head d_head"],
    key: Float[Tensor, "row key_pos key_head d_head"],
    value: Float[Tensor, "row key_pos key_head d_value"],
    mask: Float[Tensor, "#row #key_head group_pos key_pos"],
    scaling: float,
    softcap: float | None,
    edit: Edit | None = None,
) -> Float[Tensor, "row pos head d_value"]:
    """Attention of rows; `mask` is added to the scores, see `per_group`.

    Query heads that share keys stand one after the other along the positions, so that keys are never copied per head.
    With `edit` the weights are materialised, which a fused kernel never does.
    """
    rows, n, heads, d_head = query.shape
    key_heads, value = key.shape[2], value.transpose(1, 2)
    if softcap is None and edit is None:
        grouped = _group_heads(query, key_heads)
        attended = torch.nn.functional.scaled_dot_product_attention(
            grouped, key.transpose(1, 2), value, attn_mask=mask, scale=scaling
        )
    else:
        weights = attention_weights(query, key, mask, scaling, softcap)
        attended = (weights if edit is None else edit(weights)).to(value.dtype) @ value
    attended = attended.view(rows, key_heads, heads // key_heads, n, d_head)
    return attended.permute(0, 3, 1, 2, 4).reshape(rows, n, heads, d_head)


def attention_weights(
    query: Float[Tensor, "row pos head d_head"],
    key: Float[Tensor, "row key_pos key_head d_head"],
    mask: Float[Tensor, "#row #key_head group_pos key_pos"],
    scaling: float,
    softcap: float | None,
) -> Weights:
    scores = _group_heads(query, key.shape[2]) @ key.transpose(1, 2).transpose(2, 3)
    scores = (
        scores * scaling
        if softcap is None
        else torch.tanh(scores * (scaling / softcap)) * softcap
    )
    return torch.softmax(scores + mask, dim=-1, dtype=torch.float32)


def _group_heads(query: Tensor, key_heads: int) -> Tensor:
    """Query heads that share their keys, one after the other along the positions."""
    rows, n, heads, d_head = query.shape
    grouped = query.view(rows, n, key_heads, heads // key_heads, d_head).permute(
        0, 2, 3, 1, 4
    )
    return grouped.reshape(rows, key_heads, -1, d_head)


def per_group(
    mask: Shaped[Tensor, "row pos key_pos"] | Shaped[Tensor, "row head pos key_pos"],
    groups: int,
) -> Shaped[Tensor, "row mask_head group_pos key_pos"]:
    """A mask of rows, or of rows and heads, for query heads that share their keys, `groups` of them each."""
    if mask.dim() == 3:
        return mask.repeat(1, groups, 1)[:, None]
    rows, heads, n, n_keys = mask.shape
    return mask.reshape(rows, heads // groups, groups * n, n_keys)


class OneSequence:
    def __init__(self, mask: Float[Tensor, "pos key_pos"]) -> None:
        self.mask = mask

    def attend(
        self,
        query: Queries,
        key: Keys,
        value: Keys,
        scaling: float,
        softcap: float | None,
    ) -> Float[Tensor, "token head d_value"]:
        mask = per_group(self.mask[None], query.shape[1] // key.shape[1]).to(
            query.device
        )
        return masked_attention(
            query[None], key[None], value[None], mask, scaling, softcap
        )[0]


@dataclass(frozen=True)
class BlockOutput:
    attention: Float[Tensor, "1 token d_model"]
    mlp: Float[Tensor, "1 token d_model"]
    residual: Float[Tensor, "1 token d_model"]


def run_block(
    family: Family,
    block: Any,
    stream: Float[Tensor, "1 token d_model"],
    rotary: tuple[Tensor, Tensor] | None,
    attends: Attends,
    read: Int[Tensor, " read"] | None = None,
) -> BlockOutput:
    """One decoder block; with `read`, only the tokens at these indices continue after attention."""
    given: dict[str, Any] = {"attention_mask": attends}
    if rotary is not None:
        given["position_embeddings"] = rotary
    seen = _apply_norm(block, family.norm_before_attention, stream)
    attended = _first(getattr(block, family.attention)(hidden_states=seen, **given))
    attended = _apply_norm(block, family.norm_after_attention, attended)
    if read is not None:
        attended, stream = attended[:, read], stream[:, read]
    after_attention = stream + attended
    parallel = family.parallel is not None and getattr(block, family.parallel)
    fed = getattr(block, family.mlp)(
        _apply_norm(
            block, family.norm_before_mlp, stream if parallel else after_attention
        )
    )
    fed = _apply_norm(block, family.norm_after_mlp, _first(fed))
    return BlockOutput(attention=attended, mlp=fed, residual=after_attention + fed)


def _apply_norm(block: Any, norm: str | None, stream: Tensor) -> Tensor:
    return stream if norm is None else getattr(block, norm)(stream)


def _first(given: Any) -> Tensor:
    """Attention hands back its weights too, and some mixtures of experts their routing."""
    return given[0] if isinstance(given, tuple) else given
