"""Laws of the passes, over every family: what a cut changes, what it leaves alone, and what does not matter."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from anchorscope.engine.capture import EdgeCounts
from anchorscope.engine.forward import NO_PREFIX, Packed, compute_prefix
from anchorscope.engine.rows import BatchRows, tokens_of
from anchorscope.engine.sequences import CLEAN, Cut, TokenSequence, Variant
from anchorscope.errors import InterventionNotApplied
from anchorscope.execute.worker import StatesPart, Worker
from anchorscope.models.language_model import LanguageModel
from anchorscope.plan.passes import Planner
from anchorscope.progress import Silent
from engine_cases import ATTENTION, SHARED, assert_same, captured, make_cuts, run, shared_prefix


def test_cutting_nothing_is_the_clean_run_bit_for_bit(tiny: LanguageModel, items: list[TokenSequence]) -> None:
    clean = run(tiny, items, shared_prefix(tiny))
    for cut in (Cut(()), Cut((), how="zero"), Cut((8,), alpha=0.0)):
        assert torch.equal(run(tiny, items, shared_prefix(tiny), [cut] * len(items)), clean)


def test_next_to_its_ends_a_bias_is_the_knockout_and_the_clean_run(
    tiny: LanguageModel, items: list[TokenSequence]
) -> None:
    cuts, prefix = make_cuts(items), shared_prefix(tiny)
    clean, knockout = run(tiny, items, prefix), run(tiny, items, prefix, cuts)
    for alpha, wanted in ((-1 + 1e-12, knockout), (1e-9, clean)):
        assert_same(run(tiny, items, prefix, [replace(cut, alpha=alpha) for cut in cuts]), wanted)


def test_biased_edges_count_as_touched_and_no_bias_as_nothing(
    tiny_llama: LanguageModel, items: list[TokenSequence]
) -> None:
    biased = [[replace(cut, alpha=alpha) for cut in make_cuts(items)] for alpha in (-1.0, 2.0, 0.0)]
    variants = [Variant(dict(enumerate(cuts))) for cuts in biased]
    counts = captured(tiny_llama, items, variants=variants)[1]
    assert counts.lost[0].all()
    assert counts.lost[1].tolist() == counts.lost[0].tolist()
    assert not counts.lost[2].any()
    assert counts.asked.tolist() == [[True] * 4, [True] * 4, [False] * 4]
    assert tokens_of(items[0], 0, [variants[2], CLEAN], 0, 4) == len(items[0].ids)  # the clean row serves both


def test_zeroed_keys_and_single_heads_add_up_and_masked_keys_do_not(
    tiny_llama: LanguageModel, items: list[TokenSequence]
) -> None:
    # What a weight takes along is its own affair, as long as the others do not grow in its place.
    prefix = shared_prefix(tiny_llama)
    clean = run(tiny_llama, items, prefix)[:, -1, ATTENTION, 0]

    def change(*keys: int, **how: Any) -> Tensor:
        return run(tiny_llama, items, prefix, [Cut(keys, **how) for _ in items])[:, -1, ATTENTION, 0] - clean

    assert_same(change(7, how="zero") + change(9, how="zero"), change(7, 9, how="zero"))
    assert (change(7) + change(9) - change(7, 9)).abs().amax(-1).min() > 1e-4
    assert_same(sum((change(8, heads=(head,)) for head in range(4)), torch.zeros(())), change(8))


def test_masks_of_one_layer_at_a_time_are_kept(tiny_llama: LanguageModel, items: list[TokenSequence]) -> None:
    # They are large, and when every layer's heads run in one pass they would pile up.
    cuts = {index: replace(cut, heads=(1,)) for index, cut in enumerate(make_cuts(items))}
    rows = BatchRows(items, [0, 1], [Variant(cuts, range(at, at + 1)) for at in range(4)], 0, 4)
    batch = Packed(tiny_llama, items, rows, NO_PREFIX)
    for layer in range(4):
        batch.enter(layer)
        assert sum(plan.is_large for plan in batch.plans.values()) == 1


def test_any_part_of_the_prefix_may_be_shared(tiny: LanguageModel, items: list[TokenSequence]) -> None:
    for cuts in (None, make_cuts(items)):
        full = run(tiny, items, cuts=cuts)
        for length in (1, 4, len(SHARED)):
            assert_same(run(tiny, items, compute_prefix(tiny, SHARED[:length]), cuts), full)


def test_a_shared_prefix_may_be_longer_than_the_window(tiny: LanguageModel, items: list[TokenSequence]) -> None:
    head = items[2].ids[:20]
    family = [
        TokenSequence((*head, *item.ids[-9:]), answer_start=26, read_at=(20, 21, 24, 28)) for item in items
    ]  # the same twenty tokens, then nine of their own
    cuts = [Cut(keys=(22, 23))] * len(family)
    assert_same(run(tiny, family, compute_prefix(tiny, head), cuts), run(tiny, family, NO_PREFIX, cuts))


def go(
    lm: LanguageModel, items: list[TokenSequence], n_layers: int | None, tokens: int = 10_000
) -> tuple[dict[tuple[int, int], Tensor], EdgeCounts]:
    cuts = dict(enumerate(make_cuts(items)))
    variants = [CLEAN, Variant(cuts), Variant(cuts, range(1, 2))]
    variants = variants[:2] if n_layers == 1 else variants
    return captured(lm, items, shared_prefix(lm), variants, tokens, n_layers=n_layers)


@pytest.mark.parametrize("n_layers", [1, 2, 3, 4])
def test_states_are_those_of_the_whole_pass_and_higher_blocks_are_not_run(
    tiny: LanguageModel, items: list[TokenSequence], monkeypatch: pytest.MonkeyPatch, n_layers: int
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


def test_a_worker_keeps_the_states_of_the_layers_that_are_run(
    tiny_llama: LanguageModel, items: list[TokenSequence]
) -> None:
    cut = Variant(dict(enumerate(make_cuts(items))))
    planned = Planner(4, 4, (None,) * 4, 100).states("some", items, SHARED, [CLEAN, cut])
    work = replace(planned, keep=(((8, 2),), ((8, 0),)))
    worker = Worker(tiny_llama)
    short, whole = (worker.run(one, Silent()) for one in (replace(work, n_layers=2), work))
    assert isinstance(short, StatesPart)
    assert isinstance(whole, StatesPart)
    for mine, other in zip(short.variants, whole.variants, strict=True):
        assert mine.states is not None
        assert other.states is not None
        assert mine.states.shape[1] == 2
        assert_same(mine.states, other.states[:, :2])
    assert torch.isfinite(short.variants[0].states).all()


def test_a_cut_above_the_last_layer_that_is_run_is_refused(
    tiny_llama: LanguageModel, items: list[TokenSequence]
) -> None:
    cuts = Variant(dict(enumerate(make_cuts(items))), range(2, 3))
    with pytest.raises(InterventionNotApplied, match="there are 0 to 1"):
        captured(tiny_llama, items, variants=[cuts], batches=[range(5)], n_layers=2)
