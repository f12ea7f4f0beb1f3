"""Items for the engine, and a model whose layers differ in how far they see."""

import pytest
import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

from anchorscope.engine.sequences import TokenSequence
from anchorscope.models.language_model import LanguageModel
from anchorscope.models.wrapping import wrap
from engine_cases import SHARED, make_items


@pytest.fixture(scope="session")
def items() -> list[TokenSequence]:
    return make_items()


@pytest.fixture(scope="session")
def prompts() -> list[tuple[int, ...]]:
    """Prompts of different lengths with a common beginning."""
    generator = torch.Generator().manual_seed(5)
    lengths = (1, 17, 4, 9, 23, 2)
    return [(*SHARED, *torch.randint(0, 256, (length,), generator=generator).tolist()) for length in lengths]


def _two_kinds_of_layers(window: int) -> Qwen2ForCausalLM:
    """Two layers that see everything, then two with a sliding window."""
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=260,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        use_sliding_window=True,
        sliding_window=window,
        max_window_layers=2,
    )
    return Qwen2ForCausalLM(config).eval()


@pytest.fixture(scope="session")
def mixed_windows(tiny_llama: LanguageModel) -> LanguageModel:
    """Two layers that see everything, then two with a sliding window of 8; read only."""
    model = _two_kinds_of_layers(8)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.mul_(6)  # as in the other tiny models: attention must look at something
    return wrap(model, tiny_llama.tokenizer, name="tiny mixed windows")


@pytest.fixture(scope="session")
def short_sighted(tiny_llama: LanguageModel) -> LanguageModel:
    """Two layers that see everything, then two that see six tokens; read only."""
    return wrap(_two_kinds_of_layers(6), tiny_llama.tokenizer, name="short-sighted")
