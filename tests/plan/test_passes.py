"""Passes are plain data: planned without a model, always the same, pickled, and cut into shards of whole batches."""

import pickle
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from anchorscope.answers.prompt import build_prompts
from anchorscope.answers.template import FEW_SHOT_TEMPLATE
from anchorscope.datasets.question import Question
from anchorscope.engine.batching import MOST_AT_ONCE
from anchorscope.engine.rows import tokens_of
from anchorscope.engine.sequences import CLEAN, Cut, TokenSequence, Variant
from anchorscope.models.language_model import LanguageModel
from anchorscope.plan.decoding import AnswersPass, plan_answers
from anchorscope.plan.passes import OutOfFoldProbes, Planner, StatesPass, shared_tokens
from anchorscope.plan.saliency_pass import SaliencyPass
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
    """Clean, or with cuts of some of the items beside it, in some layers or in all, or with cuts alone."""
    sequences = [make_sequence(own, seed) for seed, own in enumerate(draw(st.lists(st.integers(3, 30), max_size=40)))]
    items = st.sets(st.integers(0, len(sequences) - 1)) if sequences else st.just(set())
    some, more = draw(items), draw(items)
    cuts = [Variant(dict.fromkeys(some, Cut((3,)))), Variant(dict.fromkeys(more, Cut((3, 4))), range(2, 4))]
    variants = draw(st.sampled_from([[CLEAN], [CLEAN, cuts[0]], cuts]))
    planner = replace(PLANNER, batch_tokens=draw(st.integers(1, 300)))
    order = draw(st.none() | st.permutations(range(len(sequences))))
    return planner.states("some", sequences, PREFIX, variants, order)


@given(work=passes(), number=st.integers(1, 60))
def test_shards_deal_out_whole_batches_and_every_sequence_once(work: StatesPass, number: int) -> None:
    shards = work.shards(number)
    assert 1 <= len(shards) <= number
    assert len(shards) == min(number, max(1, len(work.batches)))
    assert Counter(batch for shard in shards for batch in shard.batches) == Counter(work.batches)
    run = [item for shard in shards for batch in shard.batches for item in batch]
    assert sorted(run) == sorted(
        item for item in range(len(work.sequences)) if any(variant.runs(item) for variant in work.variants)
    )
    assert sum(shard.n_items for shard in shards) == work.n_items == len(run)
    sizes = [len(shard.batches) for shard in shards]
    assert max(sizes) - min(sizes) <= 1  # nobody waits for one who has much more to do
    assert all(replace(shard, batches=work.batches) == work for shard in shards)  # all else is the same


@given(work=passes())
def test_batches_keep_to_the_budget_unless_one_sequence_is_too_long_for_it(work: StatesPass) -> None:
    for batch in work.batches:
        longest = max(tokens_of(work.sequences[item], item, work.variants, len(PREFIX), 4) for item in batch)
        assert longest * len(batch) <= work.batch_tokens or len(batch) == 1


@given(work=passes())
def test_a_pass_survives_being_pickled(work: StatesPass) -> None:
    again = pickle.loads(pickle.dumps(work))
    assert again == work
    assert again.shards(3) == work.shards(3)


def test_probes_and_places_survive_being_pickled() -> None:
    sequences = [make_sequence(own) for own in (5, 9, 7)]
    work = replace(
        PLANNER.states("probed", sequences, PREFIX, compiled=True),
        probes=make_probes(3), keep=(((0, 1), (0, 2)),), log_probs=True,
    )  # fmt: skip
    again = pickle.loads(pickle.dumps(work))
    assert replace(again, probes=None) == replace(work, probes=None)
    assert again.probes is not None
    assert work.probes is not None
    assert again.probes.only == work.probes.only
    assert again.probes.folds.tolist() == work.probes.folds.tolist()
    (((mine,),), ((theirs,),)) = work.probes.sets, again.probes.sets
    assert torch.equal(mine.weight, theirs.weight)
    assert torch.equal(mine.bias, theirs.bias)


def test_the_other_passes_survive_being_pickled_and_stay_whole(tiny_llama: LanguageModel) -> None:
    questions = [Question("facts", f"item-{index}", f"What is {index}?", ("x",)) for index in range(3)]
    answers = plan_answers(questions, tiny_llama.tokenizer, FEW_SHOT_TEMPLATE, 8, 100)
    assert answers.prompts == tuple(build_prompts(tiny_llama.tokenizer, questions, FEW_SHOT_TEMPLATE))
    assert all(prompt.ids[: len(answers.prefix)] == answers.prefix for prompt in answers.prompts)
    assert len(answers.prefix) > 10  # the examples are the same for all
    again = pickle.loads(pickle.dumps(answers))
    assert isinstance(again, AnswersPass)
    assert again == answers
    assert answers.shards(5) == [answers]
    sequences = tuple(make_sequence(own) for own in (5, 9))
    saliency = SaliencyPass(sequences, PREFIX, {"question": ((3,), (4,))}, "mlp", (1, 2), torch.randn(2, 8),
                            torch.randn(2), 100)  # fmt: skip
    other = pickle.loads(pickle.dumps(saliency))
    assert (other.sequences, other.keys, other.layers, other.site) == (sequences, saliency.keys, (1, 2), "mlp")
    assert torch.equal(other.weight, saliency.weight)
    assert saliency.shards(5) == [saliency]


@given(work=passes())
def test_planning_twice_gives_the_same(work: StatesPass) -> None:
    plan = replace(PLANNER, batch_tokens=work.batch_tokens).states
    order = [item for batch in work.batches for item in batch]  # ties come out as they were
    first, again = (plan(work.title, work.sequences, work.prefix, work.variants, order) for _ in range(2))
    assert first == again == work


def test_however_much_memory_there_is_a_batch_stays_within_what_gains_anything() -> None:
    sequences = [make_sequence(2000, seed) for seed in range(40)]
    work = replace(PLANNER, batch_tokens=10**9).states("many", sequences, PREFIX)
    assert len(work.batches) > 1
    assert max(len(batch) * 2000 for batch in work.batches) <= MOST_AT_ONCE
    assert work.batch_tokens == 10**9


def test_an_order_breaks_ties_between_equally_long_sequences_only() -> None:
    sequences = [make_sequence(own, seed) for seed, own in enumerate((9, 6, 9, 6, 9))]
    plain = PLANNER.states("plain", sequences, PREFIX)
    mixed = PLANNER.states("mixed", sequences, PREFIX, order=(4, 3, 2, 1, 0))
    assert [item for batch in plain.batches for item in batch] == [0, 2, 4, 1, 3]
    assert [item for batch in mixed.batches for item in batch] == [4, 2, 0, 3, 1]


@pytest.mark.parametrize(("tokens", "worth"), [(999, False), (1000, True), (10**9, True)])
def test_compiling_is_worth_it_from_some_number_of_tokens_on(tokens: int, worth: bool) -> None:
    assert PLANNER.worth_compiling(tokens) == worth
    assert not replace(PLANNER, compile_from=None).worth_compiling(tokens)


def test_shared_tokens_end_where_a_sequence_differs_or_is_read() -> None:
    sequences = [TokenSequence((1, 2, 3, 4, 5, 6), 4, (5,)), TokenSequence((1, 2, 3, 9, 5, 6), 4, (5,))]
    assert shared_tokens((1, 2, 3, 4), sequences) == (1, 2, 3)
    assert shared_tokens((1, 2), sequences) == (1, 2)
    assert shared_tokens((7, 2), sequences) == ()
    read_early = [*sequences, TokenSequence((1, 2, 3, 4), 3, (1,))]
    assert shared_tokens((1, 2, 3), read_early) == (1,)
    assert shared_tokens((1, 2, 3), [*sequences, TokenSequence((1, 2, 3), 1, (2,))]) == (1,)
