"""A pass that stops at the highest layer read: the same states below it, and no block above it is run."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from anchorscope.engine.batching import Budget
from anchorscope.engine.capture import EdgeCounts, Work, capture, refuse_idle_cuts
from anchorscope.engine.sequences import CLEAN, TokenSequence, Variant
from anchorscope.errors import InterventionNotApplied
from anchorscope.execute.parts import StatesPart
from anchorscope.execute.worker import Worker
from anchorscope.models.language_model import LanguageModel
from anchorscope.plan.passes import Planner
from anchorscope.progress import Silent
from engine_cases import SHARED, assert_same, make_cuts, shared_prefix


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
