"""Tiny models of every family, built from configuration: no downloads.

Large libraries are imported where they are used: tests that need no model do not wait for them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerFast

    from anchorscope.models.language_model import LanguageModel

SIZES = {
    "vocab_size": 260,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 2048,
    "bos_token_id": 256,
    "eos_token_id": 257,
    "pad_token_id": 258,
}
TINY: dict[str, dict[str, Any]] = {
    "llama": {},
    "mistral": {"sliding_window": 8},
    "qwen2": {},
    "qwen3": {"head_dim": 16},
    "qwen3_moe": {
        "head_dim": 16,
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 24,
        "decoder_sparse_step": 1,
    },
    "phi3": {"sliding_window": 8},
    "gemma2": {
        "head_dim": 16,
        "sliding_window": 8,
        "query_pre_attn_scalar": 16,
        "attn_logit_softcapping": 5.0,
        "final_logit_softcapping": 3.0,
    },
    "gemma3_text": {
        "head_dim": 16,
        "sliding_window": 8,
        "query_pre_attn_scalar": 16,
        "layer_types": ["sliding_attention", "full_attention"] * 2,
    },
    "gemma": {"head_dim": 16, "tie_word_embeddings": False},
    "olmo2": {},
    "olmo3": {
        "sliding_window": 8,
        "layer_types": ["sliding_attention", "full_attention"] * 2,
    },
    "gpt_neox": {},
    "gpt2": {"n_inner": 48, "tie_word_embeddings": False},
}
"""What each architecture's tiny model has beside `SIZES`; sliding windows are shorter than the tests' sequences, and
soft caps low enough to bend the scores."""

REPRESENTATIVES = ("gemma2", "gpt2", "gpt_neox", "olmo3", "qwen3_moe")
"""The architectures that stand for all in laws of rows, masks, variants and batches.

What a family changes is a block: its norms, its projections, its scores. What these laws are about is the engine around
it, which asks a family only for what is listed here, and between them the five have all of it: soft caps and heads of
their own width (Gemma 2); a learned embedding of positions, no rotary one, ungrouped heads (GPT-2); both parts of a
block reading the same stream (GPT-NeoX); two rotary embeddings by the kind of layer, and norms only after a part
(OLMo 3); experts that divide the tokens of a batch among them (Qwen 3 MoE). Heads that share keys, sliding windows, and
layers that slide in turn with layers that do not are in several.

Laws about a family itself (the same numbers as transformers', the proof at loading, decoding) are marked `every_family`
and run over all of `TINY`."""


def tiny_model(kind: str, **changes: Any) -> PreTrainedModel:
    """A tiny random model of an architecture, the same at every call."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(
        AutoConfig.for_model(kind, **{**SIZES, **TINY[kind], **changes})
    ).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                # initial weights are so small that attention would hardly look at anything
                parameter.mul_(6)
    return model


def byte_tokenizer() -> PreTrainedTokenizerFast:
    """A tokenizer with one token per byte: every text is possible, no training needed."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {symbol: index for index, symbol in enumerate(alphabet)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<s>", "</s>", "<pad>"])
    names = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"}
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, clean_up_tokenization_spaces=False, **names
    )


def build_tiny(family: str) -> LanguageModel:
    from anchorscope.models.wrapping import wrap

    return wrap(tiny_model(family), byte_tokenizer(), name=f"tiny {family}")


def speaker(
    tokenizer: PreTrainedTokenizerFast, *script: str, after: str = "~"
) -> LanguageModel:
    """A model that says the script after this character; no token may be in it twice."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    from anchorscope.models.wrapping import wrap

    size = 264
    changes = {
        "vocab_size": size,
        "hidden_size": size,
        "num_hidden_layers": 2,
        "max_position_embeddings": 4096,
    }
    torch.manual_seed(0)
    model = LlamaForCausalLM(LlamaConfig(**{**SIZES, **changes}))
    path = [
        int(token)
        for text in (after, *script)
        for token in tokenizer(text)["input_ids"]
    ]
    assert len(path) == len(set(path)), "every token must have one successor"
    with torch.no_grad():
        model.model.embed_tokens.weight.copy_(torch.eye(size))
        for layer in model.model.layers:
            layer.self_attn.o_proj.weight.mul_(0.1)
            layer.mlp.down_proj.weight.mul_(0.1)
        model.lm_head.weight.zero_()
        for token, following in zip(path, [*path[1:], path[-1]], strict=True):
            model.lm_head.weight[following, token] = 1.0
    return wrap(model, tokenizer)
