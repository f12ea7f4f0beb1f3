"""Passes are plain data: planned without a model, always the same, pickled, and cut into one shard for each batch."""

import pickle
from dataclasses import replace

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from anchorscope.answers.generate import LINE
from anchorscope.answers.template import FEW_SHOT_TEMPLATE, build_prompts
from anchorscope.datasets.question import Question
from anchorscope.engine.batching import MOST_AT_ONCE, MemoryFacts
from anchorscope.engine.decode import Sampling
from anchorscope.engine.sequences import CLEAN, Cut, Patch, TokenSequence, Variant
from anchorscope.models.language_model import LanguageModel
from anchorscope.plan.passes import (
    OutOfFoldProbes,
    Planner,
    StatesPass,
    plan_answers,
    plan_choices,
    plan_decoding,
    plan_saliency,
    shared_tokens,
)
from anchorscope.probes.crossfit import ProbeSet

PREFIX = (256, 1, 2)
PLANNER = Planner(n_layers=4, n_heads=4, windows=(None, 8, None, 8), batch_tokens=60, compile_from=1000)


def make_sequence(own: int, seed: int = 0) -> TokenSequence:
    ids = (*PREFIX, *np.random.default_rng(seed).integers(0, 256, own).tolist())
    return TokenSequence(ids, len(ids) - 2, (len(ids) - 1,))


def make_probes(n: int) -> OutOfFoldProbes:
    ones = np.ones((1, 2, 4))
    probes = ProbeSet(torch.randn(1, 2, 4, 8), torch.randn(1, 2, 4), ones, ones, ())
    return OutOfFoldProbes(((probes,),), np.arange(n) % 2, only=(0, 0, 0))


@st.composite
def passes(draw: st.DrawFn) -> StatesPass:
    """Clean, or with cuts of some of the items beside it, in some layers or in all, or with cuts alone, or patched by
    others; with probes or without."""
    sequences = [make_sequence(own, seed) for seed, own in enumerate(draw(st.lists(st.integers(3, 30), max_size=40)))]
    items = st.sets(st.integers(0, len(sequences) - 1)) if sequences else st.just(set())
    some, more = draw(items), draw(items)
    cuts = [Variant(dict.fromkeys(some, Cut((3,)))), Variant(dict.fromkeys(more, Cut((3, 4))), range(2, 4))]
    donors = draw(st.permutations(range(len(sequences))))
    patches = Variant(layers=range(2, 3), patches={item: Patch((3, 5), donors[item], (5, 4)) for item in some})
    variants = draw(st.sampled_from([[CLEAN], [CLEAN, cuts[0]], cuts, [patches], [cuts[1], patches, CLEAN]]))
    planner = replace(PLANNER, batch_tokens=draw(st.integers(1, 300)))
    order = draw(st.none() | st.permutations(range(len(sequences))))
    work = planner.states("some", sequences, PREFIX, variants, order)
    return replace(work, probes=make_probes(len(sequences))) if draw(st.booleans()) else work


@given(work=passes())
def test_there_is_one_shard_per_batch_and_every_item_is_in_one(work: StatesPass) -> None:
    shards = work.shards()
    if not work.batches:
        assert shards == [work]
        return
    assert [len(shard.batches) for shard in shards] == [1] * len(work.batches)
    named = [tuple(shard.items[place] for place in shard.batches[0]) for shard in shards]
    assert named == list(work.batches)  # in the same order, within a batch too
    run = [item for batch in named for item in batch]
    assert sorted(run) == sorted(
        item for item in range(len(work.sequences)) if any(variant.runs(item) for variant in work.variants)
    )
    assert sum(shard.n_items for shard in shards) == work.n_items == len(run)


@given(work=passes())
def test_a_shard_holds_what_its_own_items_need_and_nothing_else(work: StatesPass) -> None:
    lengths = work.lengths(PLANNER.n_layers)
    for shard, batch in zip(work.shards(), work.batches, strict=False):
        assert shard.sequences == tuple(work.sequences[item] for item in shard.items)
        donors = {patch.donor for one in shard.variants for patch in (one.patches or {}).values()}
        assert set(range(len(shard.sequences))) == {*shard.batches[0], *donors}
        assert [shard.lengths(PLANNER.n_layers)[place] for place in shard.batches[0]] == [lengths[i] for i in batch]
        for mine, whole in zip(shard.variants, work.variants, strict=True):
            assert mine.layers == whole.layers
            assert [mine.runs(place) for place in shard.batches[0]] == [whole.runs(item) for item in batch]
            for place, item in zip(shard.batches[0], batch, strict=True):
                if whole.cuts is not None and whole.runs(item):
                    assert mine.cut(place) == whole.cut(item)
                if whole.patches is not None and whole.runs(item):
                    found, wanted = mine.patch(place), whole.patch(item)
                    assert found is not None
                    assert wanted is not None
                    assert replace(found, donor=shard.items[found.donor]) == wanted
            for changed in (mine.cuts, mine.patches):
                assert set(changed or ()) <= set(shard.batches[0])  # donors are not run for themselves
        assert (shard.probes is None) == (work.probes is None)
        if shard.probes is not None and work.probes is not None:
            assert shard.probes.sets is work.probes.sets
            assert shard.probes.folds.tolist() == [int(work.probes.folds[item]) for item in shard.items]
        kept = ("title", "prefix", "batch_tokens", "compiled", "keep", "log_probs", "answer_stats", "n_layers")
        assert [getattr(shard, name) for name in kept] == [getattr(work, name) for name in kept]


@st.composite
def lengths(draw: st.DrawFn) -> tuple[list[TokenSequence], int]:
    """Sequences, and how many tokens run together."""
    found = draw(st.lists(st.integers(3, 30), min_size=1, max_size=30))
    return [make_sequence(own, seed) for seed, own in enumerate(found)], draw(st.integers(1, 300))


@given(made=lengths())
def test_shards_of_other_passes_hold_what_their_own_items_need_too(made: tuple[list[TokenSequence], int]) -> None:
    sequences, tokens = made
    n, prompts = len(sequences), [one.ids for one in sequences]
    sampling = Sampling(np.arange(n, dtype=np.uint64), 0.7, 0.9)
    greedy = plan_decoding("some", prompts, PREFIX, 6, LINE, tokens)
    drawn = plan_decoding("some", prompts, PREFIX, 6, LINE, tokens, sampling)
    choices = plan_choices("some", prompts, (4, 9), tokens)
    layers = [item % 3 for item in range(n)]
    weight, bias = torch.randn(n, 8), torch.randn(n)
    keys = {"question": tuple((3 + item % 2,) for item in range(n)), "rest": ((3, 4),) * n}
    planner = replace(PLANNER, batch_tokens=tokens)
    saliency = plan_saliency(planner, sequences, PREFIX, keys, "mlp", layers, weight, bias)
    attention = replace(planner.states("some", sequences, PREFIX), attention="direct")
    for work in (greedy, drawn, choices, saliency, attention):
        shards = work.shards()
        assert [shard.items for shard in shards] == [shard.items for shard in pickle.loads(pickle.dumps(shards))]
        assert [tuple(shard.items[place] for place in shard.batches[0]) for shard in shards] == list(work.batches)
        assert sorted(item for shard in shards for item in shard.items) == list(range(n))
        assert sum(shard.n_items for shard in shards) == work.n_items == n
        for shard in shards:
            own = list(shard.items)
            assert len(shard.batches) == 1
            assert shard.lengths(4) == [work.lengths(4)[item] for item in own]
    for work in (greedy, drawn, choices):
        for shard in work.shards():
            assert shard.prompts == tuple(prompts[item] for item in shard.items)
    for shard in greedy.shards():
        assert shard.sampling is None
    for shard in drawn.shards():
        assert shard.sampling is not None
        assert shard.sampling.seeds.tolist() == list(shard.items)  # each prompt was given its number
        assert (shard.sampling.temperature, shard.sampling.top_p) == (0.7, 0.9)
    for shard in attention.shards():
        assert shard.sequences == tuple(sequences[item] for item in shard.items)
        assert shard.attention == "direct"
    for shard in saliency.shards():
        own = list(shard.items)
        assert shard.sequences == tuple(sequences[item] for item in own)
        assert shard.keys == {name: tuple(sets[item] for item in own) for name, sets in keys.items()}
        assert shard.layers == tuple(layers[item] for item in own)
        assert len(set(shard.layers)) == 1  # items that end at the same layer run together
        assert torch.equal(shard.weight, weight[own])
        assert torch.equal(shard.bias, bias[own])


@given(work=passes(), tokens=st.integers(1, 300))
def test_a_pass_that_is_planned_again_is_as_if_it_had_been_planned_so_at_once(work: StatesPass, tokens: int) -> None:
    order = [item for batch in work.batches for item in batch]
    planner = replace(PLANNER, batch_tokens=tokens)
    wanted = planner.states(work.title, work.sequences, work.prefix, work.variants, order or None)
    again = work.replanned(tokens, PLANNER.n_layers)
    assert replace(again, probes=None) == wanted
    assert again.probes is work.probes


def test_answers_are_planned_as_prompts_that_are_gone_on_with(tiny_llama: LanguageModel) -> None:
    questions = [Question("facts", f"item-{index}", f"What is {index}?", ("x",)) for index in range(3)]
    answers = plan_answers(questions, tiny_llama.tokenizer, FEW_SHOT_TEMPLATE, 8, 100)
    assert answers.prompts == tuple(build_prompts(tiny_llama.tokenizer, questions, FEW_SHOT_TEMPLATE))
    assert all(prompt.ids[: len(answers.prefix)] == answers.prefix for prompt in answers.prompts)
    assert len(answers.prefix) > 10  # the examples are the same for all
    work = answers.decoding([2, 0])
    assert work.prompts == (answers.prompts[2].ids, answers.prompts[0].ids)
    assert (work.prefix, work.max_new_tokens, work.ending, work.sampling) == (answers.prefix, 8, LINE, None)
    assert pickle.loads(pickle.dumps(work)) == work  # it goes to a worker: no tokenizer, no template
    samples = answers.sampled(2, seed=5)
    drawn, some = samples.decoding(samples.asked), samples.decoding([3, 4])
    assert drawn.prompts == tuple(prompt.ids for prompt in answers.prompts for _ in range(2))
    assert drawn.sampling is not None
    assert some.sampling is not None
    assert some.sampling.seeds.tolist() == drawn.sampling.seeds[[3, 4]].tolist()
    assert some.prompts == drawn.prompts[3:5]
    assert len(set(drawn.sampling.seeds.tolist())) == 6


def test_memory_with_gradients_limits_saliency_and_nothing_else() -> None:
    facts = MemoryFacts("cpu", free=2e6, itemsize=4, n_layers=4, d_model=8, n_heads=4, key_heads=2, d_head=2, d_mlp=16)
    sequences = [make_sequence(9, seed) for seed in range(40)]
    fits = facts.tokens_with_gradients(3, 9, 9 + len(PREFIX))
    assert 9 < fits < 300
    weight, bias, keys = torch.randn(40, 8), torch.randn(40), {"question": ((3,),) * 40}
    for memory, wanted in ((None, 300), (facts, fits), (replace(facts, free=1e12), 300)):
        planner = replace(PLANNER, batch_tokens=300, memory=memory)
        found = plan_saliency(planner, sequences, PREFIX, keys, "mlp", [2] * 40, weight, bias)
        assert found.batch_tokens == wanted
        assert max(len(batch) for batch in found.batches) == wanted // 9
        assert planner.states("clean", sequences, PREFIX).batch_tokens == 300


def test_however_much_memory_there_is_a_batch_stays_within_what_gains_anything() -> None:
    sequences = [make_sequence(2000, seed) for seed in range(40)]
    work = replace(PLANNER, batch_tokens=10**9).states("many", sequences, PREFIX)
    assert len(work.batches) > 1
    assert max(len(batch) * 2000 for batch in work.batches) <= MOST_AT_ONCE
    assert work.batch_tokens == 10**9
    saliency = plan_saliency(
        replace(PLANNER, batch_tokens=10**9), sequences, PREFIX, {}, "mlp", [3] * 40, torch.ones(40, 8), torch.ones(40)
    )
    choices = plan_choices("many", [one.ids for one in sequences], (1,), 10**9)
    for other in (saliency, choices):
        assert max(len(batch) * 2000 for batch in other.batches) <= MOST_AT_ONCE


def test_shared_tokens_end_where_a_sequence_differs_or_is_read() -> None:
    sequences = [TokenSequence((1, 2, 3, 4, 5, 6), 4, (5,)), TokenSequence((1, 2, 3, 9, 5, 6), 4, (5,))]
    assert shared_tokens((1, 2, 3, 4), sequences) == (1, 2, 3)
    assert shared_tokens((1, 2), sequences) == (1, 2)
    assert shared_tokens((7, 2), sequences) == ()
    read_early = [*sequences, TokenSequence((1, 2, 3, 4), 3, (1,))]
    assert shared_tokens((1, 2, 3), read_early) == (1,)
    assert shared_tokens((1, 2, 3), [*sequences, TokenSequence((1, 2, 3), 1, (2,))]) == (1,)
