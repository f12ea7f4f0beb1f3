"""Laws of the passes, over every family: what a cut changes, what it leaves alone, and what does not matter."""

import pytest
import torch
from torch import Tensor

from anchorscope.engine.capture import EdgeCounts
from anchorscope.engine.forward import NO_PREFIX, compute_prefix
from anchorscope.engine.sequences import CLEAN, Cut, TokenSequence, Variant
from anchorscope.errors import InterventionNotApplied
from anchorscope.models.language_model import LanguageModel
from engine_cases import (
    SHARED,
    assert_same,
    captured,
    make_cuts,
    run,
    shared_prefix,
    together,
)


def test_cutting_nothing_is_the_clean_run_bit_for_bit(
    tiny: LanguageModel, items: list[TokenSequence]
) -> None:
    clean = run(tiny, items, shared_prefix(tiny))
    for cut in (Cut(()), Cut((), how="zero"), Cut((8,), alpha=0.0)):
        assert torch.equal(
            run(tiny, items, shared_prefix(tiny), [cut] * len(items)), clean
        )


def test_any_part_of_the_prefix_may_be_shared(
    tiny: LanguageModel, items: list[TokenSequence]
) -> None:
    for cuts in (None, make_cuts(items)):
        full = run(tiny, items, cuts=cuts)
        for length in (1, 4, len(SHARED)):
            assert_same(
                run(tiny, items, compute_prefix(tiny, SHARED[:length]), cuts), full
            )


def test_a_shared_prefix_may_be_longer_than_the_window(
    tiny: LanguageModel, items: list[TokenSequence]
) -> None:
    head = items[2].ids[:20]
    family = [
        TokenSequence(
            (*head, *item.ids[-9:]), answer_start=26, read_at=(20, 21, 24, 28)
        )
        for item in items
    ]  # the same twenty tokens, then nine of their own
    cuts = [Cut(keys=(22, 23))] * len(family)
    assert_same(
        run(tiny, family, compute_prefix(tiny, head), cuts),
        run(tiny, family, NO_PREFIX, cuts),
    )


def go(
    lm: LanguageModel, items: list[TokenSequence], n_layers: int | None
) -> tuple[dict[tuple[int, int], Tensor], EdgeCounts]:
    cuts = dict(enumerate(make_cuts(items)))
    variants = [CLEAN, Variant(cuts), Variant(cuts, range(1, 2))]
    variants = variants[:2] if n_layers == 1 else variants
    return captured(lm, items, shared_prefix(lm), variants, n_layers=n_layers)


@pytest.mark.parametrize("n_layers", [1, 2, 3, 4])
def test_states_are_those_of_the_whole_pass_and_higher_blocks_are_not_run(
    tiny: LanguageModel,
    items: list[TokenSequence],
    monkeypatch: pytest.MonkeyPatch,
    n_layers: int,
) -> None:
    whole, all_edges = go(tiny, items, None)
    ran: list[int] = []
    block = LanguageModel.run_block

    def counted(self: LanguageModel, layer: int, *given: object) -> object:
        ran.append(layer)
        return block(self, layer, *given)  # type: ignore[arg-type]

    prefix = shared_prefix(tiny)
    with monkeypatch.context() as patch:
        patch.setattr(LanguageModel, "run_block", counted)
        patch.setattr("engine_cases.compute_prefix", lambda *_: prefix)
        found, edges = go(tiny, items, n_layers)
    assert ran == list(range(n_layers))
    for (variant, item), states in found.items():
        assert states.shape == (len(items[0].read_at), 3, n_layers, tiny.d_model)
        assert_same(states, whole[variant, item][:, :, :n_layers])
    assert edges.lost.tolist() == all_edges.lost[: len(edges.lost), :n_layers].tolist()


def test_a_cut_above_the_last_layer_is_refused(
    tiny_llama: LanguageModel, items: list[TokenSequence]
) -> None:
    cuts = Variant(dict(enumerate(make_cuts(items))), range(2, 3))
    with pytest.raises(InterventionNotApplied, match="there are 0 to 1"):
        captured(tiny_llama, items, variants=[cuts], batches=[range(5)], n_layers=2)


def test_all_single_layers_run_together(
    tiny: LanguageModel, items: list[TokenSequence]
) -> None:
    cuts = dict(enumerate(make_cuts(items)))
    single = [Variant(cuts, range(layer, layer + 1)) for layer in range(4)]
    found = together(tiny, items, [*single, CLEAN], shared_prefix(tiny), tokens=200)
    for layer in range(4):
        alone = together(tiny, items, [single[layer]], shared_prefix(tiny))
        for item in range(len(items)):
            assert_same(found[layer, item], alone[0, item])
            below = found[layer, item][:, :, :layer]
            # not run again, so the same to the last bit
            assert torch.equal(below, found[4, item][:, :, :layer])
            assert not torch.equal(
                found[layer, item][:, :, layer], found[4, item][:, :, layer]
            )
