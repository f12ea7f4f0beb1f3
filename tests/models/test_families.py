"""Where a model's parts are, which model it is, and what cannot be used."""

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel, Qwen2Config, Qwen2ForCausalLM

from anchorscope.errors import UserError
from anchorscope.models.families import FAMILIES, family_of, run_block
from anchorscope.models.language_model import LanguageModel, wrap


def refused(make: Callable[[], Any]) -> str:
    """The one line that the user reads."""
    with pytest.raises(UserError) as caught:
        make()
    text = str(caught.value)
    assert "\n" not in text
    return text


def test_every_part_is_where_the_table_says(tiny: LanguageModel) -> None:
    assert tiny.model.config.model_type in tiny.family.model_types
    assert tiny.n_layers == len(tiny.layers) == 4
    assert tiny.d_model == tiny.embedding.weight.shape[1] == 32
    assert tiny.device == torch.device("cpu")
    assert tiny.dtype == torch.float32
    assert tiny.layers[0] is tiny.model.model.layers[0]


@pytest.mark.parametrize("kind", [kind for family in FAMILIES for kind in family.model_types])
def test_every_listed_architecture_has_a_tiny_model(kind: str, save_tiny: Callable[[str], Path]) -> None:
    # A family that is added without one would pass none of the laws.
    assert json.loads((save_tiny(kind) / "config.json").read_text())["model_type"] == kind


def test_a_block_is_the_sum_of_its_parts(tiny: LanguageModel) -> None:
    stream = torch.randn(1, 6, 32, generator=torch.Generator().manual_seed(0))
    rotary = tiny.rotary(stream, torch.arange(6)[None])
    mask = torch.full((6, 6), float("-inf")).triu(1)[None, None]

    def attend(module: Any, normed: torch.Tensor) -> torch.Tensor:
        return module(hidden_states=normed, position_embeddings=rotary, attention_mask=mask, past_key_values=None)[0]

    with torch.no_grad():
        found = run_block(tiny.family, tiny.layers[1], stream, attend)
        whole = tiny.layers[1](stream, position_embeddings=rotary, attention_mask=mask)
    whole = whole[0] if isinstance(whole, tuple) else whole
    torch.testing.assert_close(found.residual, whole, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(stream + found.attention + found.mlp, found.residual, rtol=1e-6, atol=1e-6)


def test_logits_are_the_models_own(tiny: LanguageModel) -> None:
    ids = torch.tensor([[256, 5, 80, 13]])
    streams: list[torch.Tensor] = []
    hook = tiny.layers[-1].register_forward_hook(
        lambda module, given, output: streams.append(output[0] if isinstance(output, tuple) else output)
    )
    with torch.no_grad():
        wanted = tiny.model(ids).logits
        hook.remove()
        assert torch.equal(tiny.logits(streams[0]), wanted)


def test_windows_are_known_layer_by_layer(tiny: LanguageModel) -> None:
    wanted = 8 if tiny.model.config.model_type == "mistral" else None
    assert [tiny.sliding_window(layer) for layer in range(4)] == [wanted] * 4


@pytest.mark.parametrize(("uses", "windows"), [(True, [None, None, None, 16]), (False, [None] * 4)])
def test_a_window_holds_only_for_the_layers_that_slide(uses: bool, windows: list[int | None]) -> None:
    config = Qwen2Config(
        vocab_size=16, hidden_size=8, intermediate_size=8, num_hidden_layers=4, num_attention_heads=2,
        num_key_value_heads=1, use_sliding_window=uses, sliding_window=16, max_window_layers=3,
    )  # fmt: skip
    lm = wrap(Qwen2ForCausalLM(config), tokenizer=None)
    assert [lm.sliding_window(layer) for layer in range(4)] == windows


def test_an_unknown_architecture_is_named_with_the_known_ones() -> None:
    model = GPT2LMHeadModel(GPT2Config(vocab_size=16, n_positions=8, n_embd=8, n_layer=1, n_head=2))
    text = refused(lambda: wrap(model, tokenizer=None, name="old one"))
    assert "'old one'" in text
    assert "'gpt2'" in text
    assert "known: llama, mistral, qwen2, qwen3" in text


@pytest.mark.parametrize("part", ["rotary_emb", "embed_tokens", "norm"])
def test_a_model_without_one_of_its_parts_is_refused(tiny_llama: LanguageModel, part: str) -> None:
    model = copy.deepcopy(tiny_llama.model)
    delattr(model.model, part)
    text = refused(lambda: family_of(model, "wrapped"))
    assert "'wrapped' does not have the parts of its architecture" in text
    assert part in text


def test_a_model_without_layers_is_refused(tiny_llama: LanguageModel) -> None:
    model = copy.deepcopy(tiny_llama.model)
    model.model.layers = model.model.layers[:0]
    assert "does not have the parts" in refused(lambda: family_of(model, "hollow"))


def test_a_wrapped_model_is_in_evaluation_mode(tiny_llama: LanguageModel) -> None:
    model = copy.deepcopy(tiny_llama.model).train()
    assert not wrap(model, tiny_llama.tokenizer).model.training


def test_attention_kernels_that_take_no_mask_per_item_are_replaced(tiny_llama: LanguageModel) -> None:
    model = copy.deepcopy(tiny_llama.model)
    model.set_attn_implementation("flex_attention")
    assert wrap(model, tiny_llama.tokenizer).model.config._attn_implementation == "sdpa"
    model.set_attn_implementation("eager")
    assert wrap(model, tiny_llama.tokenizer).model.config._attn_implementation == "eager"


def test_identity_says_which_model_gave_the_numbers(tiny: LanguageModel) -> None:
    identity = tiny.identity()
    assert identity.name == tiny.name
    assert identity.source == "an object already loaded"
    assert identity.architecture == type(tiny.model).__name__
    assert (identity.n_layers, identity.d_model) == (4, 32)
    assert identity.parameters == tiny.model.num_parameters()
    assert (identity.device, identity.dtype) == ("cpu", "float32")
    assert identity.fingerprint == tiny.fingerprint()


def test_the_same_weights_have_the_same_fingerprint(tiny: LanguageModel) -> None:
    assert wrap(copy.deepcopy(tiny.model), tiny.tokenizer, name="another name").fingerprint() == tiny.fingerprint()


def test_one_changed_weight_in_any_tensor_changes_the_fingerprint(tiny: LanguageModel) -> None:
    model = copy.deepcopy(tiny.model)
    lm = wrap(model, tiny.tokenizer)
    seen = {lm.fingerprint()}
    for tensor in model.state_dict().values():
        with torch.no_grad():
            tensor.view(-1)[0] += 0.5
        seen.add(lm.fingerprint())
    assert len(seen) == len(model.state_dict()) + 1


@pytest.mark.parametrize("place", [0, 1, 4_000, 5_999])
def test_a_whole_row_that_changed_is_noticed_wherever_it_is(tiny: LanguageModel, place: int) -> None:
    # Large tensors are only sampled; the samples reach from the first value to the last.
    model = copy.deepcopy(tiny.model)
    lm = wrap(model, tiny.tokenizer)
    first = lm.fingerprint()
    embedding = model.model.embed_tokens.weight.data.view(-1)
    assert len(embedding) > 8_192  # twice the number of samples
    embedding[place : place + 3] += 1
    changed = lm.fingerprint()
    embedding[-1] += 1
    assert len({first, changed, lm.fingerprint()}) == 3


def test_the_configuration_belongs_to_the_fingerprint(tiny: LanguageModel) -> None:
    # The same weights with another rotary base or window are another model.
    model = copy.deepcopy(tiny.model)
    model.config.rms_norm_eps = 0.5
    assert wrap(model, tiny.tokenizer).fingerprint() != tiny.fingerprint()
    model = copy.deepcopy(tiny.model)
    model.config._name_or_path = "somewhere else"
    assert wrap(model, tiny.tokenizer).fingerprint() == tiny.fingerprint()


def test_precision_belongs_to_the_fingerprint(tiny_llama: LanguageModel) -> None:
    model = copy.deepcopy(tiny_llama.model)
    with torch.no_grad():
        for tensor in model.parameters():
            tensor.copy_(tensor.to(torch.bfloat16))  # values that both precisions hold
    exact = wrap(model, tiny_llama.tokenizer).fingerprint()
    assert wrap(model.to(torch.bfloat16), tiny_llama.tokenizer).fingerprint() != exact
