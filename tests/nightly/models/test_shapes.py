"""Random weights in the shape of known models: the sizes are right, the mark is there, and they are what they say."""

import pytest
import torch
from transformers import AutoModelForCausalLM

from anchorscope.models.loading import load
from anchorscope.models.sources import SHAPES, shape_config

PUBLISHED = {
    "smollm2-135m": (134.5, 30),
    "llama-3.2-1b": (1235.8, 16),
    "llama-3.2-3b": (3212.7, 28),
    "qwen3-8b": (8190.7, 36),
    "qwen3-32b": (32762.1, 64),
}
"""Millions of parameters and layers, as the models' cards state them."""


@pytest.mark.parametrize("name", SHAPES)
def test_the_shape_has_the_published_number_of_parameters_and_layers(name: str) -> None:
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(shape_config(f"shape:{name}", 49152))
    found = (model.num_parameters() / 1e6, model.config.num_hidden_layers)
    assert found == pytest.approx(PUBLISHED[name], abs=0.1)


@pytest.mark.embedded
@pytest.mark.parametrize("name", ["smollm2-135m", "qwen3-8b"])  # of both architectures
def test_a_narrow_shape_keeps_its_layers_and_says_that_it_is_random(name: str) -> None:
    lm = load(f"shape:{name}/64")
    assert lm.n_layers == PUBLISHED[name][1]
    assert lm.d_model <= 80
    assert lm.random_weights
    assert lm.name == f"{name}/64 (RANDOM WEIGHTS)"
    assert lm.identity().random_weights
    assert lm.embedding.weight.shape[0] == len(lm.tokenizer)


@pytest.mark.embedded
def test_random_weights_are_the_same_at_every_call_and_leave_the_seed_alone() -> None:
    torch.manual_seed(5)
    before = torch.get_rng_state()
    first = load("shape:llama-3.2-1b/64").fingerprint()
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(6)
    assert load("shape:llama-3.2-1b/64").fingerprint() == first
