"""A tiny Llama as a GGUF file."""

from pathlib import Path
from typing import Any


def small_llama() -> Any:
    """Two layers, grouped heads and tied embeddings, as in the real embedded model."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(5)
    config = LlamaConfig(
        vocab_size=260,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
        tie_word_embeddings=True,
        bos_token_id=1,
        eos_token_id=2,
    )
    return LlamaForCausalLM(config).eval()


def interleaved(weight: Any, heads: int) -> Any:
    """GGUF keeps the two halves of each query and key head woven together."""
    rows, width = weight.shape
    return (
        weight.reshape(heads, 2, rows // heads // 2, width)
        .swapaxes(1, 2)
        .reshape(rows, width)
    )


PARTS = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
"""A layer's tensors: GGUF's name and transformers'."""


def write_gguf(model: Any, file: Path) -> None:
    """A float32 GGUF of a tiny Llama with a byte-level tokenizer: three special tokens, 256 bytes, one merge."""
    from gguf import GGUFWriter
    from transformers.convert_slow_tokenizer import bytes_to_unicode

    config, state = (
        model.config,
        {name: tensor.numpy() for name, tensor in model.state_dict().items()},
    )
    writer = GGUFWriter(str(file), "llama")
    writer.add_name("tiny")
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_rope_dimension_count(config.head_dim)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_vocab_size(config.vocab_size)
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(["<unk>", "<s>", "</s>", *bytes_to_unicode().values(), "he"])
    writer.add_token_types([3, 3, 3] + [1] * 257)
    writer.add_token_merges(["h e"])
    writer.add_unk_token_id(0)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_tensor("token_embd.weight", state["model.embed_tokens.weight"])
    writer.add_tensor("output_norm.weight", state["model.norm.weight"])
    woven = {"attn_q": config.num_attention_heads, "attn_k": config.num_key_value_heads}
    for layer in range(config.num_hidden_layers):
        for short, long in PARTS.items():
            weight = state[f"model.layers.{layer}.{long}.weight"]
            stored = interleaved(weight, woven[short]) if short in woven else weight
            writer.add_tensor(f"blk.{layer}.{short}.weight", stored)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
