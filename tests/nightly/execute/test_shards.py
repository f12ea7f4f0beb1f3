"""A pass cut into shards gives, merged by item, what it gives whole; and no cut passes in silence over all of them."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from anchorscope.engine.capture import EdgeCounts, refuse_idle_cuts
from anchorscope.engine.sequences import CLEAN, SITES, Cut, TokenSequence, Variant
from anchorscope.errors import UserError
from anchorscope.execute.executor import LocalExecutor
from anchorscope.execute.merging import merge_states
from anchorscope.execute.parts import StatesPart, VariantPart
from anchorscope.execute.run_passes import placed, run_states
from anchorscope.execute.worker import Worker
from anchorscope.models.language_model import LanguageModel
from anchorscope.plan.passes import OutOfFoldProbes, StatesPass
from anchorscope.probes.crossfit import ProbeSet
from anchorscope.progress import Silent
from made_items import planner_of
from many_workers import ORDERS, ManyWorkers

N, N_FOLDS = 26, 3
PREFIX = (7, 8, 9, 10, 11)


def make_sequences() -> list[TokenSequence]:
    rng = np.random.default_rng(0)
    lengths = [len(PREFIX) + int(own) for own in rng.integers(8, 20, N)]
    return [
        TokenSequence((*PREFIX, *rng.integers(0, 256, length - 5).tolist()), length - 3, (length - 1, length - 2))
        for length in lengths
    ]


def make_probes(lm: LanguageModel) -> OutOfFoldProbes:
    def probes(seed: int) -> ProbeSet:
        generator = torch.Generator().manual_seed(seed)
        ones = np.ones((2, N_FOLDS, lm.n_layers))
        weight = torch.randn(2, N_FOLDS, lm.n_layers, lm.d_model, generator=generator)
        return ProbeSet(weight, torch.randn(2, N_FOLDS, lm.n_layers, generator=generator), ones, ones, ())

    sets = tuple(tuple(probes(10 * position + site) for site in range(len(SITES))) for position in range(2))
    return OutOfFoldProbes(sets, np.arange(N) % N_FOLDS)


@pytest.fixture(scope="module")
def work(sensitive: LanguageModel) -> StatesPass:
    """Clean, cut, some of the items cut in some layers, and one item only; states are kept of three of the four."""
    variants = [
        CLEAN,
        Variant({item: Cut((6, 7 + item % 2)) for item in range(N)}),
        Variant({item: Cut((5,), heads=(1,)) for item in range(0, N, 3)}, range(2, 4)),
        Variant({4: Cut((8,))}),
    ]
    planned = planner_of(sensitive, 150).states("all", make_sequences(), PREFIX, variants)
    keep = (((1, 2), (0, 1)), ((0, 0),), (), ((1, 1),))
    return replace(planned, probes=make_probes(sensitive), keep=keep, log_probs=True, answer_stats=True)


@pytest.fixture(scope="module")
def whole(sensitive: LanguageModel, work: StatesPass) -> StatesPart:
    return run_part(Worker(sensitive), work)


def run_part(worker: Worker, shard: StatesPass) -> StatesPart:
    """What a shard gives, with the numbers that its items have in the whole."""
    part = worker.run(shard, Silent())
    assert isinstance(part, StatesPart)
    return placed(shard.items, part)


def assert_equal(found: StatesPart, wanted: StatesPart) -> None:
    """To the last bit: the very same batches were run."""
    assert len(found.variants) == len(wanted.variants)
    for one, other in zip(found.variants, wanted.variants, strict=True):
        assert one.items.tolist() == other.items.tolist()
        assert one.logits is not None
        assert other.logits is not None
        assert np.array_equal(one.logits, other.logits)
        assert (one.states is None) == (other.states is None)
        if one.states is not None and other.states is not None:
            assert torch.equal(one.states, other.states)
        assert one.answers is not None
        assert other.answers is not None
        assert one.answers.lengths.tolist() == other.answers.lengths.tolist() == [3] * len(one.items)
        for mine, theirs in zip(one.answers.by_item(), other.answers.by_item(), strict=True):
            assert np.array_equal(mine, theirs)
    assert np.array_equal(found.edges.lost, wanted.edges.lost)
    assert np.array_equal(found.edges.asked, wanted.edges.asked)
    assert found.edges.untouched == wanted.edges.untouched
    clean = found.variants[0].answers
    assert clean is not None
    told = {item: tuple(one[0].tolist()) for item, one in enumerate(clean.by_item())}
    assert found.log_probs == wanted.log_probs == told
    assert sorted(found.log_probs) == list(range(N))


@pytest.mark.parametrize("order", ORDERS)
def test_shards_give_the_same_numbers_as_the_whole(
    sensitive: LanguageModel, work: StatesPass, whole: StatesPart, order: str
) -> None:
    executor = ManyWorkers(sensitive, order)
    found = run_states(executor, work, Silent())
    assert len(executor.shards) == len(work.batches) > 5
    assert_equal(found, whole)
    assert whole.edges.lost[1].all()  # there was something to add up
    assert not whole.edges.lost[2, :2].any()


def test_items_that_are_not_divided_by_batches_give_other_numbers(sensitive: LanguageModel, work: StatesPass) -> None:
    """So that equality above says something: it depends on the batches."""
    clean = planner_of(sensitive, 150).states("clean", make_sequences(), PREFIX)
    clean = replace(clean, probes=work.probes, keep=work.keep[:1])
    whole = run_part(Worker(sensitive), clean).variants[0]
    halves = [(batch[: len(batch) // 2], batch[len(batch) // 2 :]) for batch in clean.batches]
    alone = [tuple((item,) for item in batch) for batch in clean.batches]
    same = []
    for dealt_out in (halves, alone):
        batches = tuple(some for parts in dealt_out for some in parts)
        found = run_states(ManyWorkers(sensitive), replace(clean, batches=batches), Silent()).variants[0]
        assert found.items.tolist() == whole.items.tolist()
        assert found.states is not None
        assert whole.states is not None
        assert torch.allclose(found.states, whole.states, atol=1e-4)  # in the last bits only
        same.append(torch.equal(found.states, whole.states) and np.array_equal(found.logits, whole.logits))
    if all(same):
        pytest.skip("no product depends on its batch on this processor: the equalities above show nothing here")


def test_the_order_in_which_parts_come_back_does_not_matter(
    sensitive: LanguageModel, work: StatesPass, whole: StatesPart
) -> None:
    worker = Worker(sensitive)
    parts = [run_part(worker, shard) for shard in work.shards()]
    assert_equal(merge_states(parts[::-1], N), whole)
    assert_equal(merge_states([*parts[2:], *parts[:2]], N), whole)


def test_a_shard_that_runs_no_item_of_a_variant_takes_part_all_the_same(
    sensitive: LanguageModel, work: StatesPass
) -> None:
    worker = Worker(sensitive)
    parts = [run_part(worker, shard) for shard in work.shards()]
    runs = [part.variants[3].items.tolist() for part in parts]
    assert sorted(runs) == [[]] * (len(parts) - 1) + [[4]]
    for part, items in zip(parts, runs, strict=True):
        states = part.variants[3].states
        assert states is not None
        assert states.shape[2] == len(items)


def test_log_probs_are_merged_by_sequence() -> None:
    first, second = (VariantPart(np.array([item], dtype=np.int64), None, None) for item in (1, 0))
    edges = EdgeCounts(np.zeros((1, 2), np.int64), np.zeros((1, 2), bool), untouched=False)
    parts = [StatesPart((first,), edges, {1: (-0.5,)}), StatesPart((second,), edges, {0: (-1.0, -2.0)})]
    assert merge_states(parts, 2).log_probs == {0: (-1.0, -2.0), 1: (-0.5,)}


# A cut that took nothing is noticed over all parts together.


def is_refused(edges: EdgeCounts) -> bool:
    try:
        refuse_idle_cuts(edges)
    except UserError:
        return True
    return False


def edge_counts() -> st.SearchStrategy[list[EdgeCounts]]:
    """Parts of a pass with two variants and three layers; who was not asked lost nothing."""

    def make(cells: list[tuple[int, bool]]) -> EdgeCounts:
        lost = np.array([number if asked else 0 for number, asked in cells]).reshape(2, 3)
        return EdgeCounts(lost, np.array([asked for _, asked in cells]).reshape(2, 3), untouched=False)

    cell = st.tuples(st.integers(0, 2), st.booleans())
    return st.lists(st.lists(cell, min_size=6, max_size=6).map(make), min_size=1, max_size=5)


@given(parts=edge_counts())
def test_merged_counts_are_refused_where_some_layer_lost_nothing_in_any_part(parts: list[EdgeCounts]) -> None:
    idle = [
        any(part.asked[cell] for part in parts) and not any(part.lost[cell] for part in parts)
        for cell in np.ndindex(2, 3)
    ]
    assert is_refused(EdgeCounts.sum(parts)) == any(idle)


def direct_cuts(lm: LanguageModel, keys: Sequence[int], layers: range | None = None) -> StatesPass:
    """Items of 30 tokens, the answer from 27 on, each with its cut of direct edges, and a batch of its own."""
    sequences = [TokenSequence(tuple(range(item, item + 30)), 27, (29,)) for item in range(len(keys))]
    variant = Variant({item: Cut((key,), "direct") for item, key in enumerate(keys)}, layers)
    work = planner_of(lm, 30).states("direct", sequences, (), [variant])
    assert len(work.batches) == len(keys)
    return work


FAR, NEAR = 5, 25
"""Keys that a window of six hides from the answer, or does not."""


def test_an_untouched_item_is_noticed_however_many_others_were_touched(short_sighted: LanguageModel) -> None:
    work = direct_cuts(short_sighted, [NEAR, NEAR + 1, FAR, NEAR], range(2, 4))
    worker = Worker(short_sighted)
    fine = [not is_refused(run_part(worker, shard).edges) for shard in work.shards()]
    assert fine == [True, True, False, True]
    for executor in (ManyWorkers(short_sighted), LocalExecutor(lambda: short_sighted)):
        with pytest.raises(UserError, match="takes no attention edge from it in any layer"):
            run_states(executor, work, Silent())
