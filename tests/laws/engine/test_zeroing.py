"""Weights set to 0 after the softmax: exactly those, nothing renormalised, and written out only where it is needed."""

import pytest
import torch

from anchorscope.engine.forward import NO_PREFIX
from anchorscope.engine.sequences import EDGES, Cut, TokenSequence, Variant
from anchorscope.errors import UserError
from anchorscope.models.language_model import LanguageModel
from engine_cases import ATTENTION, assert_same, make_cuts, run, shared_prefix, together
from hf_reference import zeroed_reference


def zeroing(items: list[TokenSequence], edges: str = "all", heads: tuple[int, ...] | None = None) -> list[Cut]:
    return [Cut(cut.keys, edges, "zero", heads) for cut in make_cuts(items)]


@pytest.mark.parametrize("edges", EDGES)
def test_zeroed_passes_equal_the_eager_reference_one_item_at_a_time(
    tiny: LanguageModel, items: list[TokenSequence], edges: str
) -> None:
    cuts = zeroing(items, edges)
    found = run(tiny, items, shared_prefix(tiny), cuts)
    for item, cut, states in zip(items, cuts, found, strict=True):
        assert_same(states, zeroed_reference(tiny.model, item, cut))


@pytest.mark.parametrize("layers", [range(1), range(1, 3), range(3, 4)])
def test_zeroing_in_some_layers_starts_in_the_middle(
    tiny: LanguageModel, items: list[TokenSequence], layers: range
) -> None:
    cuts = zeroing(items, heads=(1, 2))
    found = together(tiny, items, [Variant(dict(enumerate(cuts)), layers)], shared_prefix(tiny), tokens=60)
    for index in (0, 2):
        assert_same(found[0, index], zeroed_reference(tiny.model, items[index], cuts[index], layers))


def test_zeroing_nothing_is_the_clean_run_bit_for_bit(tiny: LanguageModel, items: list[TokenSequence]) -> None:
    prefix = shared_prefix(tiny)
    assert torch.equal(run(tiny, items, prefix, [Cut((), how="zero")] * len(items)), run(tiny, items, prefix))


def test_a_window_that_hides_what_is_to_be_zeroed_is_refused(mixed_windows: LanguageModel) -> None:
    item = TokenSequence(ids=tuple(range(40)), answer_start=37, read_at=(39,))
    with pytest.raises(UserError, match=r"In layers \[2, 3\] the sliding window already hides the question"):
        run(mixed_windows, [item], NO_PREFIX, [Cut((5,), "direct", "zero")])


def test_many_zeroed_keys_anywhere_equal_the_eager_reference(tiny: LanguageModel, items: list[TokenSequence]) -> None:
    cuts = [Cut(tuple(range(index % 2, len(item.ids) - 4, 3)), how="zero") for index, item in enumerate(items)]
    assert cuts[0].keys[0] == 0  # the very first token too
    found = run(tiny, items, NO_PREFIX, cuts)
    for item, cut, states in zip(items, cuts, found, strict=True):
        assert_same(states, zeroed_reference(tiny.model, item, cut))


def test_zeroed_keys_add_up_in_the_first_layer_and_masked_ones_do_not(
    tiny_llama: LanguageModel, items: list[TokenSequence]
) -> None:
    # What a weight takes along is its own affair, as long as the others do not grow in its place.
    prefix = shared_prefix(tiny_llama)
    clean = run(tiny_llama, items, prefix)[:, -1, ATTENTION, 0]

    def change(how: str, *keys: int) -> torch.Tensor:
        return run(tiny_llama, items, prefix, [Cut(keys, how=how) for _ in items])[:, -1, ATTENTION, 0] - clean

    assert_same(change("zero", 7) + change("zero", 9), change("zero", 7, 9))
    assert (change("mask", 7) + change("mask", 9) - change("mask", 7, 9)).abs().amax(-1).min() > 1e-4
