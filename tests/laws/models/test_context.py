"""How many tokens a model reads at once, from every kind of configuration; what means nothing is no limit."""

from typing import Any

import pytest
from transformers import AutoConfig, LlamaConfig, PretrainedConfig

from anchorscope.models.context import context_length
from anchorscope.models.language_model import LanguageModel
from anchorscope.plan.for_model import planner_for

YARN = {"rope_type": "yarn", "rope_theta": 1e6, "factor": 4.0, "original_max_position_embeddings": 32768}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 5e5,
    "factor": 32.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}


@pytest.mark.parametrize(
    ("kind", "settings", "expected"),
    [
        ("llama", {"max_position_embeddings": 8192}, 8192),
        ("gpt2", {"n_positions": 1024}, 1024),
        ("gpt_neox", {"max_position_embeddings": 2048}, 2048),
        ("mistral", {"max_position_embeddings": 32768, "sliding_window": 4096}, 32768),  # a window is no limit
        ("llama", {"max_position_embeddings": 131072, "rope_parameters": LLAMA3}, 131072),  # the scaled length
        ("qwen2", {"max_position_embeddings": 32768, "rope_parameters": YARN}, 131072),
        ("qwen2", {"max_position_embeddings": 131072, "rope_parameters": YARN}, 131072),
        ("gemma3_text", {"max_position_embeddings": 131072}, 131072),
    ],
)
def test_what_configurations_state(kind: str, settings: dict[str, Any], expected: int) -> None:
    assert context_length(AutoConfig.for_model(kind, **settings)) == expected


def test_a_model_that_also_reads_images_states_it_of_its_text() -> None:
    assert context_length(AutoConfig.for_model("gemma3", text_config={"max_position_embeddings": 4096})) == 4096


@pytest.mark.parametrize("value", [None, 10**30, 1e30, 0, -1, float("nan"), float("inf"), "2048", [2048]])
def test_what_means_nothing_is_no_limit(value: Any) -> None:
    config = PretrainedConfig()
    config.max_position_embeddings = value
    assert context_length(config) is None


@pytest.mark.parametrize("name", ["n_positions", "n_ctx", "max_seq_len", "max_sequence_length", "seq_length"])
def test_other_names(name: str) -> None:
    config = PretrainedConfig()
    setattr(config, name, 2048)
    assert context_length(config) == 2048


@pytest.mark.parametrize("factor", [None, "4", float("nan"), 0.5, 1e30, -2])
def test_a_factor_that_means_nothing_changes_nothing(factor: Any) -> None:
    config = LlamaConfig(max_position_embeddings=4096)
    config.rope_parameters = {"rope_type": "dynamic", "factor": factor}
    assert context_length(config) == 4096


def test_dynamic_scaling_reads_more() -> None:
    config = LlamaConfig(max_position_embeddings=4096)
    config.rope_parameters = {"rope_type": "dynamic", "factor": 2.0}
    assert context_length(config) == 8192


def test_a_loaded_model_and_its_planner_know_it(tiny_llama: LanguageModel) -> None:
    assert tiny_llama.context == planner_for(tiny_llama).context == 2048
