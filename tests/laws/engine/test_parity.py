"""The engine against transformers itself: its own forward pass, and an eager one with masks written out by hand."""

import copy

import pytest
import torch

from anchorscope.engine.forward import NO_PREFIX
from anchorscope.engine.sequences import EDGES, Cut, TokenSequence
from anchorscope.models.language_model import LanguageModel
from anchorscope.models.wrapping import wrap
from engine_cases import assert_same, make_cuts, run, shared_prefix
from hf_reference import WINDOWS, eager, reference, watch, windows

pytestmark = pytest.mark.every_family


def test_captured_states_are_those_of_the_models_own_forward_pass(
    tiny: LanguageModel, items: list[TokenSequence]
) -> None:
    found = run(tiny, items, shared_prefix(tiny))
    for item, states in zip(items, found, strict=True):
        assert_same(states, watch(tiny.model, item.ids)[list(item.read_at)])


def test_the_windows_of_the_sliding_families_are_felt(tiny: LanguageModel, items: list[TokenSequence]) -> None:
    # Without this the sliding-window laws could pass on a model that sees everything.
    longest = max(items, key=lambda item: len(item.ids))
    free = reference(tiny.model, longest, Cut(()), [None] * 4)
    change = (watch(tiny.model, longest.ids)[list(longest.read_at)] - free)[-1].abs().max()
    assert (change > 1e-2) if tiny.model.config.model_type in WINDOWS else (change < 1e-4)


@pytest.mark.parametrize("edges", EDGES)
def test_masked_passes_equal_an_eager_reference_one_item_at_a_time(
    tiny: LanguageModel, items: list[TokenSequence], edges: str
) -> None:
    cuts = make_cuts(items, edges)
    found = run(tiny, items, shared_prefix(tiny), cuts)
    for item, cut, states in zip(items, cuts, found, strict=True):
        assert_same(states, reference(tiny.model, item, cut, windows(tiny.model)))


def test_many_keys_anywhere_equal_the_eager_reference(tiny: LanguageModel, items: list[TokenSequence]) -> None:
    # Without a prefix any key may be cut, the very first token and neighbours included.
    cuts = [Cut(keys=tuple(range(index % 2, len(item.ids) - 4, 3))) for index, item in enumerate(items)]
    assert cuts[0].keys[0] == 0
    found = run(tiny, items, NO_PREFIX, cuts)
    for item, cut, states in zip(items, cuts, found, strict=True):
        assert_same(states, reference(tiny.model, item, cut, windows(tiny.model)))


def test_what_a_cut_token_was_cannot_be_known_later(tiny: LanguageModel, items: list[TokenSequence]) -> None:
    # The knockout's meaning in one law: with every later edge cut, another token in its place changes nothing after it.
    item = items[2]
    others = [TokenSequence((*item.ids[:8], (item.ids[8] + 1 + i) % 256, *item.ids[9:]), 28, (30,)) for i in range(3)]
    cut = [Cut(keys=(8,))] * 3
    assert_same(*run(tiny, others, NO_PREFIX, cut)[:2])
    free = run(tiny, others, NO_PREFIX)
    assert (free[0] - free[1]).abs().max() > 1e-4


@pytest.mark.parametrize("edges", [None, *EDGES])
def test_layers_of_one_model_may_differ_in_their_window(
    mixed_windows: LanguageModel, items: list[TokenSequence], edges: str | None
) -> None:
    cuts = None if edges is None else make_cuts(items, edges)
    found = run(mixed_windows, items, shared_prefix(mixed_windows), cuts)
    for index, (item, states) in enumerate(zip(items, found, strict=True)):
        cut = Cut(()) if cuts is None else cuts[index]
        assert_same(states, reference(mixed_windows.model, item, cut, [None, None, 8, 8]))
        if cuts is None:
            assert_same(states, watch(mixed_windows.model, item.ids)[list(item.read_at)])


def test_the_engine_gives_the_same_on_a_model_with_eager_attention(
    tiny: LanguageModel, items: list[TokenSequence]
) -> None:
    other = wrap(copy.deepcopy(eager(tiny.model)), tiny.tokenizer)
    for cuts in (None, make_cuts(items)):
        assert_same(run(other, items, shared_prefix(other), cuts), run(tiny, items, shared_prefix(tiny), cuts))


@pytest.mark.filterwarnings("ignore:mkldnn_matmul failed")  # torch, once, on processors without bfloat16
def test_low_precision_stays_near_the_models_own_pass(tiny: LanguageModel, items: list[TokenSequence]) -> None:
    low = wrap(copy.deepcopy(tiny.model).to(torch.bfloat16), tiny.tokenizer)
    states = run(low, items, shared_prefix(low))
    assert states.dtype == torch.bfloat16
    found = states.float()
    exact = run(tiny, items, shared_prefix(tiny))
    floor = (torch.stack([watch(low.model, item.ids)[list(item.read_at)] for item in items]) - exact).abs()
    # The yardstick is what the model's own bfloat16 pass loses against float32.
    assert (found - exact).abs().mean() < 1.5 * floor.mean()
    assert (found - exact).abs().max() < 3 * floor.max()
