"""Cuts in single heads: the right head, only there, and masks per head only where some are asked for."""

import pytest
import torch

from anchorscope.engine import forward
from anchorscope.engine.forward import NO_PREFIX
from anchorscope.engine.rows import BatchRows
from anchorscope.engine.sequences import CLEAN, HOW, Cut, TokenSequence, Variant
from anchorscope.errors import InterventionNotApplied
from anchorscope.models.language_model import LanguageModel
from engine_cases import ATTENTION, assert_same, make_cuts, run, shared_prefix, together
from hf_reference import reference, windows

HEADS = range(4)


def cut_heads(items: list[TokenSequence], *heads: int, how: str = "mask") -> dict[int, Cut]:
    return {index: Cut(cut.keys, how=how, heads=heads) for index, cut in enumerate(make_cuts(items))}


@pytest.mark.parametrize("layers", [range(4), range(2, 3), range(1, 3)])
def test_single_heads_equal_an_eager_reference(tiny: LanguageModel, items: list[TokenSequence], layers: range) -> None:
    # In most families two query heads share their keys, so that a wrong order would cut a neighbour.
    assert tiny.n_heads == len(HEADS)
    variants = [Variant(cut_heads(items, head), layers) for head in HEADS]
    found = together(tiny, items, variants, shared_prefix(tiny))
    for head in HEADS:
        cut = cut_heads(items, head)[1]
        assert_same(found[head, 1], reference(tiny.model, items[1], cut, windows(tiny.model), layers))


@pytest.mark.parametrize("how", HOW)
def test_all_heads_named_are_all_heads(tiny: LanguageModel, items: list[TokenSequence], how: str) -> None:
    prefix = shared_prefix(tiny)
    named = [Cut(cut.keys, how=how, heads=tuple(HEADS)) for cut in make_cuts(items)]
    unnamed = [Cut(cut.keys, how=how) for cut in make_cuts(items)]
    assert_same(run(tiny, items, prefix, named), run(tiny, items, prefix, unnamed))


def test_heads_of_one_layer_run_together_and_join_in_there(tiny: LanguageModel, items: list[TokenSequence]) -> None:
    prefix, layers = shared_prefix(tiny), range(2, 3)
    single = [Variant(cut_heads(items, head), layers) for head in HEADS]
    others = [Variant(cut_heads(items, 0, 3, how="zero"), range(1, 4)), Variant(dict(enumerate(make_cuts(items))))]
    variants = [*single, *others]
    in_one, found = (together(tiny, items, [*variants, CLEAN], prefix, budget) for budget in (10_000, 100))
    for index, variant in enumerate(variants):
        alone = together(tiny, items, [variant], prefix)
        for item in range(len(items)):
            assert_same(found[index, item], alone[0, item])
            assert_same(in_one[index, item], alone[0, item])
    for head in HEADS:
        for item in range(len(items)):
            assert torch.equal(found[head, item][:, :, :2], found[len(variants), item][:, :, :2])
            change = (found[head, item] - found[len(variants), item])[-1, ATTENTION, 2].abs().max()
            assert change > 1e-5


def test_masks_of_one_layer_at_a_time_are_kept(tiny_llama: LanguageModel, items: list[TokenSequence]) -> None:
    # They are large, and when every layer's heads run in one pass they would pile up.
    rows = BatchRows(items, [0, 1], [Variant(cut_heads(items, 1), range(at, at + 1)) for at in range(4)], 0, 4)
    batch = forward.Packed(tiny_llama, items, rows, NO_PREFIX)
    for layer in range(4):
        batch.enter(layer)
        assert sum(plan.is_large for plan in batch.plans.values()) == 1


@pytest.mark.parametrize("heads", [(4,), (0, 17)])
def test_heads_that_are_not_there_cannot_be_cut(
    tiny_llama: LanguageModel, items: list[TokenSequence], heads: tuple[int, ...]
) -> None:
    with pytest.raises(InterventionNotApplied, match="there are 0 to 3"):
        run(tiny_llama, items, NO_PREFIX, [Cut((8,), heads=heads) for _ in items])


def test_what_single_heads_lose_adds_up_to_what_all_lose(tiny: LanguageModel, items: list[TokenSequence]) -> None:
    if tiny.family.norm_after_attention is not None:
        pytest.skip("a norm follows attention, so that heads do not add up")
    cuts = [*(cut_heads(items, head) for head in HEADS), cut_heads(items, *HEADS)]
    variants = [CLEAN, *(Variant(one, range(2, 3)) for one in cuts)]
    found = together(tiny, items, variants, shared_prefix(tiny))
    for item in range(len(items)):
        clean, *heads, everything = (found[index, item][:, ATTENTION, 2] for index in range(len(variants)))
        assert_same(sum((one - clean for one in heads), start=torch.zeros(())), everything - clean)
