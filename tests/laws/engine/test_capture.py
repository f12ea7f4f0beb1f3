"""Laws of the passes, over every family: what a cut changes, what it leaves alone, and what does not matter."""

import copy
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from anchorscope.engine.capture import EdgeCounts
from anchorscope.engine.forward import NO_PREFIX, compute_prefix
from anchorscope.engine.sequences import CLEAN, EDGES, SITES, Cut, TokenSequence, Variant
from anchorscope.errors import InterventionNotApplied
from anchorscope.execute.worker import StatesPart, Worker
from anchorscope.models.language_model import LanguageModel
from anchorscope.models.wrapping import wrap
from anchorscope.plan.passes import Planner
from anchorscope.progress import Silent
from engine_cases import ATTENTION, MLP, SHARED, assert_same, captured, loses, make_cuts, run, shared_prefix


def test_cutting_nothing_is_the_clean_run_bit_for_bit(tiny: LanguageModel, items: list[TokenSequence]) -> None:
    prefix = shared_prefix(tiny)
    assert torch.equal(run(tiny, items, prefix, [Cut(keys=())] * len(items)), run(tiny, items, prefix))


@pytest.mark.parametrize("edges", EDGES)
def test_the_first_layer_changes_exactly_where_edges_are_lost(
    tiny: LanguageModel, items: list[TokenSequence], edges: str
) -> None:
    prefix, cuts = shared_prefix(tiny), make_cuts(items, edges)
    clean, after = run(tiny, items, prefix), run(tiny, items, prefix, cuts)
    window = tiny.model.config.to_dict().get("sliding_window") or len(max(items, key=lambda item: len(item.ids)).ids)
    seen = set()
    for index, (item, cut) in enumerate(zip(items, cuts, strict=True)):
        for place, position in enumerate(item.read_at):
            lost = any(position - key < window and loses(item, cut, position, key) for key in cut.keys)
            change = (after - clean)[index, place, ATTENTION, 0].abs().max()
            assert (change > 1e-3) if lost else (change == 0), (position, cut)
            seen.add(lost)
    assert seen == {True, False}


def felt(lm: LanguageModel, wanted: bool = True) -> tuple[torch.Tensor, ...]:
    """Sites and layers that attention can reach: where both parts read the same stream, not the first block's MLP."""
    reached = torch.ones(len(SITES), lm.n_layers, dtype=torch.bool)
    reached[MLP, 0] = lm.family.parallel is None
    return torch.nonzero(reached == wanted, as_tuple=True)


def test_a_cut_changes_what_its_edges_reach_and_nothing_else(tiny: LanguageModel, items: list[TokenSequence]) -> None:
    prefix = shared_prefix(tiny)
    clean = run(tiny, items, prefix)
    after = {edges: run(tiny, items, prefix, make_cuts(items, edges)) for edges in EDGES}
    kept = [place for place, position in enumerate(items[0].read_at) if position <= 8]
    assert len(kept) == 3
    for states in after.values():
        assert_same(states[:, kept], clean[:, kept])  # up to the first cut key
    changed = (after["all"] - clean)[:, -1].abs().amax(-1) > 1e-3  # the last token, which follows every cut key closely
    assert changed[:, *felt(tiny)].all()
    assert not changed[:, *felt(tiny, False)].any()
    # The last three of the five positions at the end are the answer.
    assert_same(after["direct"][:, :-3], clean[:, :-3])
    assert ((after["direct"] - clean)[:, -3:, *felt(tiny)].abs().amax(-1) > 1e-4).all()
    # At the first layer the answer loses the same edges; the way through other tokens stays open.
    change = (after["all"] - after["direct"])[:, -1, ATTENTION].abs().amax(-1)
    assert (change[:, 0] < 1e-5).all()
    assert (change[:, 1:] > 1e-4).all()


def test_all_and_outside_differ_at_the_cut_keys_and_nowhere_else(
    tiny: LanguageModel, items: list[TokenSequence]
) -> None:
    # Nobody outside E_Q sees E_Q under either, so what E_Q tokens see of each other stays among them.
    prefix = shared_prefix(tiny)
    everything, outside = ([Cut(keys=(7, 9), edges=edges) for _ in items] for edges in ("all", "outside"))
    change = (run(tiny, items, prefix, everything) - run(tiny, items, prefix, outside)).abs().amax(-1)
    at_second_key = items[0].read_at.index(9)
    assert (change[:, at_second_key, *felt(tiny)] > 1e-4).all()
    change[:, at_second_key] = 0
    assert change.max() < 1e-5


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


def test_neither_batches_nor_neighbours_matter(tiny: LanguageModel, items: list[TokenSequence]) -> None:
    prefix, mixed = shared_prefix(tiny), make_cuts(items)
    mixed[1] = Cut(keys=())
    clean = run(tiny, items, prefix)
    for cuts in (None, make_cuts(items), mixed):
        wanted = clean if cuts is None else run(tiny, items, prefix, cuts)
        for batches in ([[0], [1], [2], [3], [4]], [[2, 0], [4, 1, 3]]):
            assert_same(run(tiny, items, prefix, cuts, batches), wanted)
    assert_same(wanted[1], clean[1])  # a neighbour's cut is its own affair


def test_one_pass_gives_the_cut_of_the_first_blocks_for_every_layer(
    tiny: LanguageModel, items: list[TokenSequence]
) -> None:
    # What later blocks do cannot change a state, so a model that ends after two blocks gives the same two layers.
    shorter = copy.deepcopy(tiny.model)
    stack = tiny.family.stack, tiny.family.layers
    setattr(getattr(shorter, stack[0]), stack[1], getattr(getattr(shorter, stack[0]), stack[1])[:2])
    short = wrap(shorter, tiny.tokenizer)
    cuts = make_cuts(items)
    found = run(short, items, shared_prefix(short), cuts)
    assert_same(found, run(tiny, items, shared_prefix(tiny), cuts)[..., :2, :])


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
