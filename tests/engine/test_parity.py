"""The engine against transformers itself: its own forward pass, and an eager one with masks written out by hand."""

import copy
from typing import Any

import pytest
import torch
from engine_cases import (
    ATTENTION,
    MLP,
    RESIDUAL,
    assert_same,
    loses,
    make_cuts,
    no_prefix,
    run,
    shared_prefix,
)
from torch import Tensor

from anchorscope.engine.sequences import EDGES, SITES, Cut, TokenSequence
from anchorscope.models.language_model import LanguageModel, wrap


def watch(model: Any, ids: tuple[int, ...], **how: Any) -> Tensor:
    """States [pos, site, layer, d_model] of one sequence by the model's own forward pass, read with hooks."""
    layers = model.model.layers
    states = torch.full((len(ids), len(SITES), len(layers), model.config.hidden_size), float("nan"))
    hooks = []
    for index, layer in enumerate(layers):

        def attended(module: Any, given: Any, output: Any, index: int = index) -> None:
            states[:, ATTENTION, index] = output[0][0]

        def fed(module: Any, given: Any, output: Tensor, index: int = index) -> None:
            states[:, MLP, index] = output[0]

        hooks += [layer.self_attn.register_forward_hook(attended), layer.mlp.register_forward_hook(fed)]
    try:
        with torch.no_grad():
            out = model.model(torch.tensor([ids]), output_hidden_states=True, use_cache=False, **how)
    finally:
        for hook in hooks:
            hook.remove()
    for index, hidden in enumerate(out.hidden_states[1:]):  # the first is the embedding, which is no layer
        states[:, RESIDUAL, index] = hidden[0]
    return states


def before_final_norm_is_normed(lm: LanguageModel, states: Tensor) -> Tensor:
    """Our states with the final norm on the last layer's stream: transformers gives that one only after the norm."""
    states = states.clone()
    with torch.no_grad():
        states[..., RESIDUAL, -1, :] = lm.model.model.norm(states[..., RESIDUAL, -1, :])
    return states


def reference_mask(item: TokenSequence, cut: Cut, window: int | None) -> Tensor:
    """Minus infinity on every edge that causality, the window or the cut forbids, edge by edge."""
    n = len(item.ids)
    mask = torch.zeros(1, 1, n, n)
    for query in range(n):
        for key in range(n):
            too_far = window is not None and query - key >= window
            if key > query or too_far or loses(item, cut, query, key):
                mask[0, 0, query, key] = float("-inf")
    return mask


def eager(model: Any) -> Any:
    other = copy.deepcopy(model)
    other.set_attn_implementation("eager")
    assert other.config._attn_implementation == "eager"
    return other


def test_captured_states_are_those_of_the_models_own_forward_pass(
    tiny: LanguageModel, items: list[TokenSequence]
) -> None:
    found = before_final_norm_is_normed(tiny, run(tiny, items, shared_prefix(tiny)))
    for item, states in zip(items, found, strict=True):
        assert_same(states, watch(tiny.model, item.ids)[list(item.read_at)])


def test_the_window_of_the_sliding_family_is_felt(tiny: LanguageModel, items: list[TokenSequence]) -> None:
    # Without this the sliding-window laws could pass on a model that sees everything.
    longest = max(items, key=lambda item: len(item.ids))
    free = watch(eager(tiny.model), longest.ids, attention_mask=reference_mask(longest, Cut(()), None))
    change = (watch(tiny.model, longest.ids) - free)[-1].abs().max()
    assert (change > 1e-2) if tiny.model.config.model_type == "mistral" else (change < 1e-5)


@pytest.mark.parametrize("edges", EDGES)
def test_masked_passes_equal_an_eager_reference_one_item_at_a_time(
    tiny: LanguageModel, items: list[TokenSequence], edges: str
) -> None:
    cuts = make_cuts(items, edges)
    found = before_final_norm_is_normed(tiny, run(tiny, items, shared_prefix(tiny), cuts))
    reference = eager(tiny.model)
    # A 4-D mask erases the model's own window, so it is written into the mask.
    window = 8 if tiny.model.config.model_type == "mistral" else None
    for item, cut, states in zip(items, cuts, found, strict=True):
        wanted = watch(reference, item.ids, attention_mask=reference_mask(item, cut, window))
        assert_same(states, wanted[list(item.read_at)])


def test_many_keys_anywhere_equal_the_eager_reference(tiny: LanguageModel, items: list[TokenSequence]) -> None:
    # Without a prefix any key may be cut, the very first token and neighbours included.
    cuts = [Cut(keys=tuple(range(index % 2, len(item.ids) - 4, 3))) for index, item in enumerate(items)]
    assert cuts[0].keys[0] == 0
    found = before_final_norm_is_normed(tiny, run(tiny, items, no_prefix(), cuts))
    reference = eager(tiny.model)
    window = 8 if tiny.model.config.model_type == "mistral" else None
    for item, cut, states in zip(items, cuts, found, strict=True):
        wanted = watch(reference, item.ids, attention_mask=reference_mask(item, cut, window))
        assert_same(states, wanted[list(item.read_at)])


@pytest.mark.parametrize("edges", [None, *EDGES])
def test_layers_of_one_model_may_differ_in_their_window(
    mixed_windows: LanguageModel, items: list[TokenSequence], edges: str | None
) -> None:
    cuts = None if edges is None else make_cuts(items, edges)
    found = before_final_norm_is_normed(mixed_windows, run(mixed_windows, items, shared_prefix(mixed_windows), cuts))
    reference = eager(mixed_windows.model)
    for index, (item, states) in enumerate(zip(items, found, strict=True)):
        cut = Cut(()) if cuts is None else cuts[index]
        masks = {
            "full_attention": reference_mask(item, cut, None),
            "sliding_attention": reference_mask(item, cut, 8),
        }
        assert_same(states, watch(reference, item.ids, attention_mask=masks)[list(item.read_at)])
        if cuts is None:
            assert_same(states, watch(mixed_windows.model, item.ids)[list(item.read_at)])


@pytest.mark.parametrize("cut", [False, True])
def test_the_engine_gives_the_same_on_a_model_with_eager_attention(
    tiny: LanguageModel, items: list[TokenSequence], cut: bool
) -> None:
    other = wrap(eager(tiny.model), tiny.tokenizer)
    cuts = make_cuts(items) if cut else None
    assert_same(run(other, items, shared_prefix(other), cuts), run(tiny, items, shared_prefix(tiny), cuts))


@pytest.mark.filterwarnings("ignore:mkldnn_matmul failed")  # torch, once, on processors without bfloat16
def test_low_precision_stays_near_the_models_own_pass(tiny: LanguageModel, items: list[TokenSequence]) -> None:
    low = wrap(copy.deepcopy(tiny.model).to(torch.bfloat16), tiny.tokenizer)
    states = run(low, items, shared_prefix(low))
    assert states.dtype == torch.bfloat16
    found = before_final_norm_is_normed(low, states).float()
    exact = before_final_norm_is_normed(tiny, run(tiny, items, shared_prefix(tiny)))
    floor = (torch.stack([watch(low.model, item.ids)[list(item.read_at)] for item in items]) - exact).abs()
    # The yardstick is what the model's own bfloat16 pass loses against float32.
    assert (found - exact).abs().mean() < 1.5 * floor.mean()
    assert (found - exact).abs().max() < 3 * floor.max()
