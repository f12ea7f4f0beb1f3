"""What stands in configurations and chat templates of models from strangers: fields, names and numbers to put there."""

from typing import Any

SIZES = (
    "num_hidden_layers", "hidden_size", "num_attention_heads", "num_key_value_heads", "head_dim", "intermediate_size",
    "vocab_size", "max_position_embeddings", "sliding_window", "n_layer", "n_embd", "n_head", "n_positions",
    "num_experts",
    "num_experts_per_tok", "bos_token_id", "eos_token_id", "pad_token_id",
)  # fmt: skip
NUMBERS = (
    0, -1, 1, 2, 3, 5, 7, 8, 16, 31, 33, 64, 100, 259, 261, 512, 1000, 10**4, 10**5, 10**6, 10**7, 10**9,
    2**31, 2**63, 10**18,
    10**30, 10**400, 1.5, "4", None, True, [4], {}, "",
)  # fmt: skip
NAMES: dict[str, tuple[Any, ...]] = {
    "hidden_act": ("nothing", "org/kernel", "__import__", "", 3, None, ["silu"]),
    "model_type": ("nothing", "", 3, None, "bert", "t5", "mamba", "llama4", "../llama", "clip", "gpt2", "qwen3"),
    "architectures": ([], ["Nothing"], ["BertModel"], "LlamaForCausalLM", None, ["os.system"], [3]),
    "_attn_implementation": ("org/kernel", "kernels-community/flash-attn", "flash_attention_2", "nothing", 3),
    "attn_implementation": ("org/kernel@main", "paged|sdpa", "flex_attention"),
    "dtype": ("float8", "int8", "nothing", 3, "float16", None), "torch_dtype": ("nothing", "complex64"),
    "auto_map": ({"AutoConfig": "own.Own", "AutoModelForCausalLM": "own.Own"},
    {"AutoModelForCausalLM": "other/repo--own.Own"},
                 {"AutoTokenizer": ["own.Own", None]}, "own.Own", []),
    "quantization_config": ({"quant_method": "bitsandbytes", "load_in_4bit": True},
    {"quant_method": "nothing"}, {}, "x", {"quant_method": "gptq", "bits": 4},
                            {"quant_method": "awq"}, {"quant_method": "fp8"}, [1]),
    "rope_parameters": ({"rope_type": "nothing"}, {"rope_type": "yarn", "factor": -1}, {"rope_type": "default",
    "rope_theta": 0}, [], "x",
                        {"rope_type": "dynamic", "factor": 1e30, "rope_theta": 1e4}, {"rope_type": "longrope",
                        "short_factor": [1] * 10**5}),
    "rope_scaling": ({"type": "linear"}, {"rope_type": "llama3"}, 3, "x"),
    "layer_types": ([], ["full_attention"], ["nothing"] * 4, "full_attention", [3] * 4,
    ["sliding_attention"] * 10**5),
    "rms_norm_eps": (0, -1, "x", None, 1e308, float("nan")), "text_config": ({}, {"num_hidden_layers": 10**7}, 3, []),
    "_name_or_path": ("other/repo", "/etc/passwd"), "base_model_name_or_path": ("other/repo",),
    "tie_word_embeddings": (True, "x", None, 3),
    "pretraining_tp": (0, -1, 10**9, "x"), "attention_bias": (True, "x"), "mlp_bias": (True,),
    "use_cache": (False, "x"),
    "num_labels": (10**9, -1, "x"), "id2label": ({"0": "a"}, [], "x",
    {str(one): "a" for one in range(10_000)}), "chunk_size_feed_forward": (-1, "x"),
    "is_encoder_decoder": (True,), "output_hidden_states": (True, "x"), "torchscript": (True,),
    "transformers_version": (3, "99.0"),
    "attention_dropout": (2.0, "x", -1), "initializer_range": ("x", -1),
    "transformers_weights": ("../../x.safetensors", "other.safetensors"),
}  # fmt: skip
TEMPLATES = (
    "{{ 'a' * 10**10 }}", "{% for a in range(10**6) %}{% for b in range(10**6) %}{% endfor %}{% endfor %}",
    "{{ 10**10**8 }}",
    "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "{{ ''.__class__.__mro__ }}", "{{ '%1000000000d' % 1 }}",
    "{{ '{:>10000000000}'.format(1) }}", "{{ 'a'|center(10**10) }}", "{% include 'x' %}",
    "{% import 'os' as os %}", "{{ nothing.at.all }}",
    "{{ messages", "{% if %}", "", " ", "{{ raise_exception('no') }}", "{{ lipsum(10**6) }}",
    "{{ range(10**9)|list }}",
    "{% set ns = namespace(x='a') %}{% for i in range(99) %}{% set ns.x = ns.x + ns.x %}{% endfor %}{{ ns.x }}",
    "{{ cycler.__init__.__globals__ }}", "{{ messages|map(attribute='content')|join * 10**9 }}",
    "{% for m in messages %}{{ m.content }}{% endfor %}",
    "{" * 5000, "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}", "{% if 1 %}" * 2000 + "{% endif %}" * 2000,
    "a" * 2_000_000, "\ud800", "{{ strftime_now('%Y' * 10**7) }}",
    "{{ messages[0].content }}{{ '<|x|>' }}",
    "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant: ", "{{ tojson(self) }}",
)  # fmt: skip
