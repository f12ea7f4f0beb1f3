"""Where a model's parts are, which model it is, and what cannot be used."""

import copy
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from anchorscope import plugins
from anchorscope.errors import UserError
from anchorscope.models.families import FAMILIES, Family
from anchorscope.models.language_model import LanguageModel
from anchorscope.models.wrapping import wrap
from tiny_models import SIZES, TINY, tiny_model


def refused(make: Callable[[], Any]) -> str:
    with pytest.raises(UserError) as caught:
        make()
    return str(caught.value)


def test_every_listed_architecture_has_a_tiny_model() -> None:
    # A family that is added without one would pass none of the laws; gemma3 is the one with images, see below.
    assert {kind for family in FAMILIES for kind in family.model_types} - {
        "gemma3"
    } == set(TINY)


@pytest.mark.parametrize(
    ("uses", "windows"), [(True, [None, None, None, 16]), (False, [None] * 4)]
)
def test_a_window_holds_only_for_the_layers_that_slide(
    uses: bool, windows: list[int | None]
) -> None:
    model = tiny_model(
        "qwen2", use_sliding_window=uses, sliding_window=16, max_window_layers=3
    )
    lm = wrap(model, tokenizer=None)
    assert [lm.sliding_window(layer) for layer in range(4)] == windows


def unlisted(kind: str, **changes: Any) -> Any:
    """A tiny model of an architecture that no table names."""
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(
        AutoConfig.for_model(kind, **{**SIZES, **changes})
    ).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.mul_(6)
    return model


def test_a_plugins_family_that_does_not_fit_is_refused_by_its_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(
        sys.modules,
        "wrong_family",
        SimpleNamespace(WRONG=Family("Wrong", ("stablelm",), mlp="ffn")),
    )
    added = (
        plugins.Plugin("families", "Wrong", "things", "1.0", "wrong_family:WRONG"),
    )
    monkeypatch.setattr(plugins, "installed", lambda: added)
    with pytest.raises(
        UserError, match=r"'Wrong' of package things 1\.0 .* does not lay out .*'ffn'"
    ):
        wrap(unlisted("stablelm"), tokenizer=None)


@pytest.mark.parametrize(
    ("kind", "layout"),
    [("stablelm", "Llama"), ("smollm3", "Llama"), ("nemotron", "Llama")],
)
def test_an_unlisted_architecture_of_a_common_build_proves_itself(
    kind: str, layout: str
) -> None:
    assert all(kind not in family.model_types for family in FAMILIES)
    assert wrap(unlisted(kind), tokenizer=None).family.name == layout


@pytest.mark.parametrize(
    ("kind", "changes", "reason"),
    [
        ("granite", {"residual_multiplier": 0.3}, "states after block 0 are off by"),
        ("granite", {"logits_scaling": 7.0}, "logits are off by"),
        ("glm4", {"head_dim": 8}, "states after block 0 are off by"),
        ("bloom", {}, "has no attribute"),
    ],
)
def test_an_unlisted_architecture_of_another_build_is_refused(
    kind: str, changes: dict[str, Any], reason: str
) -> None:
    text = refused(
        lambda: wrap(unlisted(kind, **changes), tokenizer=None, name="odd one")
    )
    assert f"'odd one' is of the architecture '{kind}'" in text
    assert reason in text
    assert "known: gemma, gemma2," in text


def test_a_listed_model_that_computes_something_else_is_refused(
    tiny_llama: LanguageModel,
) -> None:
    model = copy.deepcopy(tiny_llama.model)
    block = model.model.layers[1]
    forward = block.forward
    # a patch that our own walk does not see
    block.forward = lambda stream, **given: 1.5 * forward(stream, **given)
    assert "states after block 1 are off by" in refused(
        lambda: wrap(model, tokenizer=None)
    )


def test_attention_that_ignores_the_mask_is_found(tiny_llama: LanguageModel) -> None:
    model = copy.deepcopy(tiny_llama.model)
    for block in model.model.layers:
        attention = block.self_attn
        attention.forward = (
            lambda hidden_states, attention_mask=None, own=attention.forward, **given: (
                own(hidden_states=hidden_states, attention_mask=None, **given)
            )
        )
    assert "attention does not obey the mask" in refused(
        lambda: wrap(model, tokenizer=None)
    )


def test_the_text_model_inside_one_with_images_is_found() -> None:
    text = {**SIZES, **TINY["gemma3_text"]}
    vision = {
        "hidden_size": 16,
        "intermediate_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "image_size": 28,
        "patch_size": 14,
    }
    config = AutoConfig.for_model(
        "gemma3", text_config=text, vision_config=vision, mm_tokens_per_image=4
    )
    lm = wrap(AutoModelForCausalLM.from_config(config), tokenizer=None)
    assert (lm.family.name, lm.n_layers, lm.d_model) == ("Gemma 3 with images", 4, 32)
    assert lm.sliding_window(0) == 8


@pytest.mark.every_family
def test_gemma_is_given_its_first_token(tiny: LanguageModel) -> None:
    assert tiny.needs_bos == (256 if "gemma" in tiny.model.config.model_type else None)


def test_the_configuration_belongs_to_the_fingerprint(
    tiny_llama: LanguageModel,
) -> None:
    tiny = tiny_llama
    # The same weights with another rotary base or window are another model.
    model = copy.deepcopy(tiny.model)
    model.config.pad_token_id = 7
    assert wrap(model, tiny.tokenizer).fingerprint() != tiny.fingerprint()
    model = copy.deepcopy(tiny.model)
    model.config._name_or_path = "somewhere else"
    assert wrap(model, tiny.tokenizer).fingerprint() == tiny.fingerprint()
