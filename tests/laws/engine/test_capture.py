"""Laws of the passes, over every family: what a cut changes, what it leaves alone, and what does not matter."""

import copy
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from anchorscope.engine.batching import Budget
from anchorscope.engine.capture import EdgeCounts, Work, capture, refuse_idle_cuts
from anchorscope.engine.forward import compute_prefix
from anchorscope.engine.sequences import CLEAN, EDGES, SITES, Cut, TokenSequence, Variant
from anchorscope.errors import InterventionNotApplied
from anchorscope.execute.parts import StatesPart
from anchorscope.execute.worker import Worker
from anchorscope.models.language_model import LanguageModel
from anchorscope.models.wrapping import wrap
from anchorscope.plan.passes import Planner
from anchorscope.progress import Silent
from engine_cases import (
    ATTENTION,
    MLP,
    SHARED,
    assert_same,
    clean_states,
    loses,
    make_cuts,
    no_prefix,
    run,
    shared_prefix,
)


def test_cutting_nothing_is_the_clean_run_bit_for_bit(tiny: LanguageModel, items: list[TokenSequence]) -> None:
    prefix = shared_prefix(tiny)
    assert torch.equal(run(tiny, items, prefix, [Cut(keys=())] * len(items)), run(tiny, items, prefix))


def test_cutting_nothing_in_other_batches_is_the_clean_run(tiny: LanguageModel, items: list[TokenSequence]) -> None:
    prefix = shared_prefix(tiny)
    found = run(tiny, items, prefix, [Cut(keys=())] * len(items), batches=[[3], [4, 0], [2, 1]])
    assert_same(found, run(tiny, items, prefix))


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


def test_a_cut_reaches_every_site_of_every_layer(tiny: LanguageModel, items: list[TokenSequence]) -> None:
    prefix = shared_prefix(tiny)
    change = (run(tiny, items, prefix, make_cuts(items)) - run(tiny, items, prefix)).abs().amax(-1)
    changed = change[:, -1] > 1e-3  # the answer's last token, which follows every cut key closely
    assert changed[:, *felt(tiny)].all()
    assert not changed[:, *felt(tiny, False)].any()


def felt(lm: LanguageModel, wanted: bool = True) -> tuple[torch.Tensor, ...]:
    """Sites and layers that attention can reach: where both parts read the same stream, not the first block's MLP."""
    reached = torch.ones(len(SITES), lm.n_layers, dtype=torch.bool)
    reached[MLP, 0] = lm.family.parallel is None
    return torch.nonzero(reached == wanted, as_tuple=True)


@pytest.mark.parametrize("edges", EDGES)
def test_states_up_to_the_first_cut_key_stay_as_they_are(
    tiny: LanguageModel, items: list[TokenSequence], edges: str
) -> None:
    prefix, cuts = shared_prefix(tiny), make_cuts(items, edges)
    clean, after = run(tiny, items, prefix), run(tiny, items, prefix, cuts)
    kept = [place for place, position in enumerate(items[0].read_at) if position <= 8]
    assert len(kept) == 3
    assert_same(after[:, kept], clean[:, kept])


def test_direct_cuts_leave_everything_before_the_answer_alone(tiny: LanguageModel, items: list[TokenSequence]) -> None:
    prefix = shared_prefix(tiny)
    clean, after = run(tiny, items, prefix), run(tiny, items, prefix, make_cuts(items, "direct"))
    # The last three of the five positions at the end are the answer.
    assert_same(after[:, :-3], clean[:, :-3])
    assert ((after - clean)[:, -3:, *felt(tiny)].abs().amax(-1) > 1e-4).all()


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


def test_direct_cuts_leave_the_way_through_other_tokens_open(tiny: LanguageModel, items: list[TokenSequence]) -> None:
    prefix = shared_prefix(tiny)
    final = {edges: run(tiny, items, prefix, make_cuts(items, edges))[:, -1, ATTENTION] for edges in EDGES}
    change = (final["all"] - final["direct"]).abs().amax(-1)
    assert (change[:, 0] < 1e-5).all()  # at the first layer the answer loses the same edges
    assert (change[:, 1:] > 1e-4).all()


@pytest.mark.parametrize("cut", [False, True])
def test_the_shared_prefix_is_the_full_pass(tiny: LanguageModel, items: list[TokenSequence], cut: bool) -> None:
    cuts = make_cuts(items) if cut else None
    assert_same(run(tiny, items, shared_prefix(tiny), cuts), run(tiny, items, no_prefix(), cuts))


def test_any_part_of_the_prefix_may_be_shared(tiny: LanguageModel, items: list[TokenSequence]) -> None:
    full = run(tiny, items, no_prefix())
    for length in (1, 4):
        assert_same(run(tiny, items, compute_prefix(tiny, SHARED[:length])), full)


def test_a_shared_prefix_may_be_longer_than_the_window(tiny: LanguageModel, items: list[TokenSequence]) -> None:
    head = items[2].ids[:20]
    family = [
        TokenSequence((*head, *item.ids[-9:]), answer_start=26, read_at=(20, 21, 24, 28)) for item in items
    ]  # the same twenty tokens, then nine of their own
    cuts = [Cut(keys=(22, 23))] * len(family)
    assert_same(run(tiny, family, compute_prefix(tiny, head), cuts), run(tiny, family, no_prefix(), cuts))


@pytest.mark.parametrize("batches", [[[0], [1], [2], [3], [4]], [[4, 3, 2, 1, 0]], [[2, 0], [4, 1, 3]]])
@pytest.mark.parametrize("cut", [False, True])
def test_batch_composition_and_order_do_not_matter(
    tiny: LanguageModel, items: list[TokenSequence], batches: list[list[int]], cut: bool
) -> None:
    prefix, cuts = shared_prefix(tiny), make_cuts(items) if cut else None
    assert_same(run(tiny, items, prefix, cuts, batches), run(tiny, items, prefix, cuts))


def test_a_neighbours_cut_is_its_own_affair(tiny: LanguageModel, items: list[TokenSequence]) -> None:
    prefix, cuts = shared_prefix(tiny), make_cuts(items)
    cuts[1] = Cut(keys=())
    assert_same(run(tiny, items, prefix, cuts)[1], run(tiny, items, prefix)[1])


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


def test_clean_states_are_laid_out_by_position_site_layer_and_item(
    tiny: LanguageModel, items: list[TokenSequence]
) -> None:
    prefix = shared_prefix(tiny)
    states = clean_states(tiny, items, prefix, Budget(50)).states  # batches that are not in the order of the items
    assert states.shape == (9, 3, 4, len(items), 32)
    assert states.dtype == tiny.dtype
    assert_same(states, run(tiny, items, prefix).permute(1, 2, 3, 0, 4))


def test_items_that_are_in_no_batch_are_not_run(tiny_llama: LanguageModel, items: list[TokenSequence]) -> None:
    seen: list[int] = []
    work = Work(items, shared_prefix(tiny_llama), batches=[[4], [1, 2]])
    capture(tiny_llama, work, lambda _, batch, states: seen.extend(batch), "some")
    assert seen == [4, 1, 2]


def go(
    lm: LanguageModel, items: list[TokenSequence], n_layers: int | None, budget: int = 10_000
) -> tuple[dict[tuple[int, int], Tensor], EdgeCounts]:
    found: dict[tuple[int, int], Tensor] = {}

    def receive(variant: int, batch: list[int], states: Tensor) -> None:
        found.update({(variant, item): one.clone() for item, one in zip(batch, states, strict=True)})

    cuts = dict(enumerate(make_cuts(items)))
    variants = [CLEAN, Variant(cuts), Variant(cuts, range(1, 2))]
    variants = variants[:2] if n_layers == 1 else variants
    edges = capture(lm, Work(items, shared_prefix(lm), variants, Budget(budget), n_layers=n_layers), receive, "test")
    refuse_idle_cuts(edges)
    return found, edges


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


def test_smaller_batches_give_the_same(tiny_llama: LanguageModel, items: list[TokenSequence]) -> None:
    whole, _ = go(tiny_llama, items, 2)
    for key, states in go(tiny_llama, items, 2, budget=60)[0].items():
        assert_same(states, whole[key])


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


@pytest.mark.parametrize("n_layers", [0, 5, -1])
def test_layers_that_are_not_there_cannot_be_run(
    tiny_llama: LanguageModel, items: list[TokenSequence], n_layers: int
) -> None:
    with pytest.raises(ValueError, match=f"{n_layers} layers are to be run, and the model has 4"):
        go(tiny_llama, items, n_layers)


def test_answers_cannot_be_scored_where_the_pass_stops_early(
    tiny_llama: LanguageModel, items: list[TokenSequence]
) -> None:
    def score(n_layers: int) -> None:
        work = Work(items, shared_prefix(tiny_llama), answers_of=[0], n_layers=n_layers)
        capture(tiny_llama, work, lambda *_: None, "test", None, lambda *_: None)

    with pytest.raises(ValueError, match="the head needs all"):
        score(3)
    score(4)


def test_a_cut_above_the_last_layer_that_is_run_is_refused(
    tiny_llama: LanguageModel, items: list[TokenSequence]
) -> None:
    cuts = Variant(dict(enumerate(make_cuts(items))), range(2, 3))
    with pytest.raises(InterventionNotApplied, match="there are 0 to 1"):
        capture(tiny_llama, Work(items, shared_prefix(tiny_llama), [cuts], n_layers=2), lambda *_: None, "test")
