"""Activation patching: the states of some positions are another item's from one layer on, and nothing else is."""

from dataclasses import replace

import pytest
from torch import Tensor

from anchorscope.engine.sequences import Patch, TokenSequence, Variant
from anchorscope.errors import InterventionNotApplied
from anchorscope.models.language_model import LanguageModel
from engine_cases import assert_same, make_cuts, run, shared_prefix, together
from hf_reference import blocks, eager, watch

PLACES = (8, 10, 11)
"""The positions whose states are replaced."""
DONOR_PLACES = (7, 9, 12)
"""Others, so that a state keeps its content and not its position."""


def patched(layer: int, donors: dict[int, int]) -> Variant:
    return Variant(
        layers=range(layer, layer + 1),
        patches={i: Patch(PLACES, who, DONOR_PLACES) for i, who in donors.items()},
    )


def reference(
    lm: LanguageModel, item: TokenSequence, donor: TokenSequence, layer: int
) -> Tensor:
    """By transformers' own forward pass: hooks take the donor's stream before a block, and put it into the item's."""
    model, stream = eager(lm.model), []
    block = blocks(model)[layer]
    hook = block.register_forward_pre_hook(
        lambda module, given: stream.append(given[0].clone())
    )
    watch(model, donor.ids)
    hook.remove()

    def put(module: object, given: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        changed = given[0].clone()
        changed[0, list(PLACES)] = stream[0][0, list(DONOR_PLACES)]
        return (changed, *given[1:])

    hook = block.register_forward_pre_hook(put)
    found = watch(model, item.ids)
    hook.remove()
    return found[list(item.read_at)]


@pytest.mark.every_family
@pytest.mark.parametrize("layer", [1, 3])
def test_patches_equal_transformers_with_hooks(
    tiny: LanguageModel, items: list[TokenSequence], layer: int
) -> None:
    found = together(tiny, items, [patched(layer, {0: 2, 3: 1})], shared_prefix(tiny))
    for item, donor in ((0, 2), (3, 1)):
        wanted = reference(tiny, items[item], items[donor], layer)
        assert_same(found[0, item], wanted)
        assert (
            wanted
            - watch(eager(tiny.model), items[item].ids)[list(items[item].read_at)]
        ).abs().max() > 1e-3


def test_a_patch_at_the_first_layer_runs_the_donors_tokens(
    tiny: LanguageModel, items: list[TokenSequence]
) -> None:
    found = together(tiny, items, [patched(0, {1: 4})], shared_prefix(tiny))
    ids = list(items[1].ids)
    for position, other in zip(PLACES, DONOR_PLACES, strict=True):
        ids[position] = items[4].ids[other]
    (wanted,) = run(tiny, [replace(items[1], ids=tuple(ids))], shared_prefix(tiny))
    assert_same(found[0, 1], wanted)


@pytest.mark.parametrize("tokens", [10_000, 100])
def test_patches_and_cuts_run_together_in_any_batch(
    tiny: LanguageModel, items: list[TokenSequence], tokens: int
) -> None:
    prefix, cuts = shared_prefix(tiny), Variant(dict(enumerate(make_cuts(items))))
    variants = [patched(1, {0: 2, 3: 0}), cuts, patched(3, {0: 4})]
    found = together(tiny, items, variants, prefix, tokens)
    for index, variant in enumerate(variants):
        alone = together(tiny, items, [variant], prefix)
        for (_, item), states in alone.items():
            assert_same(found[index, item], states)


def test_what_cannot_be_patched_is_refused(
    tiny_llama: LanguageModel, items: list[TokenSequence]
) -> None:
    for places in ((5, 8, 9), (8, 9, 40)):
        one = Variant(layers=range(1, 2), patches={0: Patch(places, 2, DONOR_PLACES)})
        with pytest.raises(InterventionNotApplied, match="a patch names positions"):
            together(tiny_llama, items, [one], shared_prefix(tiny_llama))
    one = Variant(layers=range(1, 2), patches={0: Patch(PLACES, 2, (7, 8, 60))})
    with pytest.raises(
        InterventionNotApplied, match="position 60, which its donor lacks"
    ):
        together(tiny_llama, items, [one], shared_prefix(tiny_llama))
