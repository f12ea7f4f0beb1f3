"""Loaded models: how many tokens they read at once, adapters, quantised weights, weights that are elsewhere."""

from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoConfig

from anchorscope.engine.capture import capture
from anchorscope.engine.forward import NO_PREFIX
from anchorscope.engine.sequences import TokenSequence
from anchorscope.errors import UserError
from anchorscope.models.language_model import LanguageModel, context_length
from anchorscope.models.wrapping import wrap
from tiny_models import byte_tokenizer, tiny_model

DYNAMIC = {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}
YARN = {
    "rope_type": "yarn",
    "rope_theta": 1e6,
    "factor": 4.0,
    "original_max_position_embeddings": 32768,
}
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
        (
            "mistral",
            {"max_position_embeddings": 32768, "sliding_window": 4096},
            32768,
        ),  # a window is no limit
        (
            "llama",
            {"max_position_embeddings": 131072, "rope_parameters": LLAMA3},
            131072,
        ),  # the scaled length
        ("qwen2", {"max_position_embeddings": 32768, "rope_parameters": YARN}, 131072),
        (
            "gemma3",
            {"text_config": {"max_position_embeddings": 4096}},
            4096,
        ),  # of its text
        ("llama", {"max_position_embeddings": 4096, "rope_parameters": DYNAMIC}, 8192),
    ],
)
def test_what_configurations_state(
    kind: str, settings: dict[str, Any], expected: int
) -> None:
    assert context_length(AutoConfig.for_model(kind, **settings)) == expected


ITEM = TokenSequence(ids=(256, *range(40, 60)), answer_start=18, read_at=(20,))


def final_states(lm: LanguageModel) -> torch.Tensor:
    found: list[torch.Tensor] = []
    capture(lm, [ITEM], NO_PREFIX, [[0]], lambda _, batch, states: found.append(states))
    return found[0]


@pytest.mark.parametrize("kind", ["llama", "gemma3_text", "gpt_neox"])
def test_an_adapter_is_part_of_the_model(kind: str) -> None:
    targets = ["query_key_value"] if kind == "gpt_neox" else ["q_proj", "v_proj"]
    plain = wrap(tiny_model(kind), byte_tokenizer())
    config = LoraConfig(r=4, target_modules=targets, init_lora_weights=False)
    adapted = get_peft_model(tiny_model(kind), config)  # type: ignore[arg-type]
    lm = wrap(adapted, byte_tokenizer())
    assert lm.family == plain.family
    assert lm.fingerprint() != plain.fingerprint()
    assert (final_states(lm) - final_states(plain)).abs().max() > 1e-3
    with torch.no_grad():
        wanted = adapted(
            torch.tensor([ITEM.ids]), output_hidden_states=True
        ).hidden_states[1][0, -1]
    torch.testing.assert_close(
        final_states(lm)[0, 0, 2, 0], wanted, rtol=1e-5, atol=1e-5
    )


class Int8Linear(torch.nn.Module):
    """A linear layer as quantising libraries put it in: eight-bit weights, a scale per row, its own forward."""

    def __init__(self, layer: torch.nn.Linear) -> None:
        super().__init__()
        self.register_buffer(
            "scale", layer.weight.detach().abs().amax(1, keepdim=True) / 127
        )
        self.register_buffer(
            "rounded", (layer.weight.detach() / self.scale).round().to(torch.int8)
        )

    def forward(self, stream: torch.Tensor) -> torch.Tensor:
        return stream @ (self.rounded * self.scale).T


def test_quantised_weights_are_run_as_they_are() -> None:
    plain, model = wrap(tiny_model("llama"), byte_tokenizer()), tiny_model("llama")
    for block in model.model.layers:
        for part in (block.self_attn, block.mlp):
            for name, layer in list(part.named_children()):
                if isinstance(layer, torch.nn.Linear):
                    setattr(part, name, Int8Linear(layer))
    lm = wrap(model, byte_tokenizer())
    assert lm.fingerprint() != plain.fingerprint()
    change = (final_states(lm) - final_states(plain)).abs().max()
    assert 1e-4 < change < 1


def test_weights_that_are_nowhere_are_refused() -> None:
    with torch.device("meta"):
        model = tiny_model("llama")
    with pytest.raises(
        UserError, match=r"weights that are not in memory \(found: meta\)"
    ):
        wrap(model, byte_tokenizer(), name="hollow")
