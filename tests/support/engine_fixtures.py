"""Items for the engine, and a model whose layers differ in how far they see."""

import pytest
import torch

from anchorscope.engine.sequences import TokenSequence
from anchorscope.models.language_model import LanguageModel
from anchorscope.models.wrapping import wrap
from engine_cases import SHARED, make_items
from tiny_models import byte_tokenizer, tiny_model


@pytest.fixture(scope="session")
def items() -> list[TokenSequence]:
    return make_items()


@pytest.fixture(scope="session")
def prompts() -> list[tuple[int, ...]]:
    """Prompts of different lengths with a common beginning."""
    generator = torch.Generator().manual_seed(5)
    lengths = (1, 17, 4, 9, 23, 2)
    return [
        (*SHARED, *torch.randint(0, 256, (length,), generator=generator).tolist())
        for length in lengths
    ]


def _two_kinds_of_layers(window: int, name: str) -> LanguageModel:
    """Two layers that see everything, then two with a sliding window; read only."""
    changes = {
        "use_sliding_window": True,
        "sliding_window": window,
        "max_window_layers": 2,
    }
    return wrap(tiny_model("qwen2", **changes), byte_tokenizer(), name=name)


@pytest.fixture(scope="session")
def mixed_windows() -> LanguageModel:
    return _two_kinds_of_layers(8, "tiny mixed windows")


@pytest.fixture(scope="session")
def short_sighted() -> LanguageModel:
    return _two_kinds_of_layers(6, "short-sighted")
