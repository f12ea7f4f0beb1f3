"""Passes are plain data: planned without a model, always the same, pickled, and cut into one shard for each batch."""

from dataclasses import replace

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from anchorscope.engine.sequences import CLEAN, Cut, Patch, TokenSequence, Variant
from anchorscope.plan.passes import OutOfFoldProbes, Planner, StatesPass, shared_tokens
from anchorscope.probes.crossfit import ProbeSet

PREFIX = (256, 1, 2)
PLANNER = Planner(
    n_layers=4,
    n_heads=4,
    windows=(None, 8, None, 8),
    batch_tokens=60,
    compile_from=1000,
)


def make_sequence(own: int, seed: int = 0) -> TokenSequence:
    ids = (*PREFIX, *np.random.default_rng(seed).integers(0, 256, own).tolist())
    return TokenSequence(ids, len(ids) - 2, (len(ids) - 1,))


def make_probes(n: int) -> OutOfFoldProbes:
    ones = np.ones((2, 4))
    probes = ProbeSet(torch.randn(2, 4, 8), torch.randn(2, 4), ones, ones, ())
    return OutOfFoldProbes(((probes,),), np.arange(n) % 2, only=(0, 0))


@st.composite
def passes(draw: st.DrawFn) -> StatesPass:
    """Clean, or with cuts of some of the items beside it, in some layers or in all, or with cuts alone, or patched by
    others; with probes or without."""
    sequences = [
        make_sequence(own, seed)
        for seed, own in enumerate(draw(st.lists(st.integers(3, 30), max_size=40)))
    ]
    items = st.sets(st.integers(0, len(sequences) - 1)) if sequences else st.just(set())
    some, more = draw(items), draw(items)
    cuts = [
        Variant(dict.fromkeys(some, Cut((3,)))),
        Variant(dict.fromkeys(more, Cut((3, 4))), range(2, 4)),
    ]
    donors = draw(st.permutations(range(len(sequences))))
    patches = Variant(
        layers=range(2, 3),
        patches={item: Patch((3, 5), donors[item], (5, 4)) for item in some},
    )
    variants = draw(
        st.sampled_from(
            [[CLEAN], [CLEAN, cuts[0]], cuts, [patches], [cuts[1], patches, CLEAN]]
        )
    )
    planner = replace(PLANNER, batch_tokens=draw(st.integers(1, 300)))
    order = draw(st.none() | st.permutations(range(len(sequences))))
    work = planner.states("some", sequences, PREFIX, variants, order)
    return (
        replace(work, probes=make_probes(len(sequences)))
        if draw(st.booleans())
        else work
    )


@given(work=passes())
def test_there_is_one_shard_per_batch_and_every_item_is_in_one(
    work: StatesPass,
) -> None:
    shards = work.shards()
    if not work.batches:
        assert shards == [work]
        return
    assert [len(shard.batches) for shard in shards] == [1] * len(work.batches)
    named = [
        tuple(shard.items[place] for place in shard.batches[0]) for shard in shards
    ]
    assert named == list(work.batches)  # in the same order, within a batch too
    run = [item for batch in named for item in batch]
    assert sorted(run) == sorted(
        item
        for item in range(len(work.sequences))
        if any(variant.runs(item) for variant in work.variants)
    )
    assert sum(shard.n_items for shard in shards) == work.n_items == len(run)


@given(work=passes(), tokens=st.integers(1, 300))
def test_a_pass_that_is_planned_again_is_as_if_it_had_been_planned_so_at_once(
    work: StatesPass, tokens: int
) -> None:
    order = [item for batch in work.batches for item in batch]
    planner = replace(PLANNER, batch_tokens=tokens)
    wanted = planner.states(
        work.title, work.sequences, work.prefix, work.variants, order or None
    )
    again = work.replanned(tokens, PLANNER.n_layers)
    assert replace(again, probes=None) == wanted
    assert again.probes is work.probes


def test_shared_tokens_end_where_a_sequence_differs_or_is_read() -> None:
    sequences = [
        TokenSequence((1, 2, 3, 4, 5, 6), 4, (5,)),
        TokenSequence((1, 2, 3, 9, 5, 6), 4, (5,)),
    ]
    assert shared_tokens(sequences) == (1, 2, 3)
    assert shared_tokens([*sequences, TokenSequence((7, 2, 3, 4), 3, (3,))]) == ()
    read_early = [*sequences, TokenSequence((1, 2, 3, 4), 3, (1,))]
    assert shared_tokens(read_early) == (1,)
    assert shared_tokens([*sequences, TokenSequence((1, 2, 3), 1, (2,))]) == (1,)
