"""Every kind of pass gives the same bits whole and in shards, whoever runs them and in whatever order; and not where
its items are divided otherwise than in planned batches."""

from dataclasses import replace

import pytest

from anchorscope.execute.executor import LocalExecutor
from anchorscope.execute.run_passes import run_states
from anchorscope.models.language_model import LanguageModel
from anchorscope.plan.passes import StatesPass
from anchorscope.progress import Silent
from many_workers import ManyWorkers
from pass_cases import CASES, FIRST, Case, N, bits, with_batches

every_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


@every_case
def test_shards_give_the_bits_of_the_whole(sensitive: LanguageModel, case: Case) -> None:
    work = case.plan(sensitive, case.tokens)
    executor = ManyWorkers(sensitive, "backwards")
    assert case.bits(executor, work) == case.bits(LocalExecutor(lambda: sensitive), work)
    assert len(executor.shards) == len(work.batches) > 2
    assert [len(shard.batches) for shard in executor.shards] == [1] * len(work.batches)
    assert executor.told == []


@every_case
def test_one_worker_gives_the_same_bits_as_many(sensitive: LanguageModel, case: Case) -> None:
    """What a worker remembers of one shard changes nothing in the next."""
    work = case.plan(sensitive, case.tokens)
    local = LocalExecutor(lambda: sensitive)
    before = [next(iter(local.map([shard], Silent()))) for shard in work.shards()[::-1]][::-1]
    again = list(local.map(work.shards(), Silent()))
    assert bits(before) == bits(again) == bits(list(ManyWorkers(sensitive).map(work.shards(), Silent())))


def test_items_that_run_one_by_one_give_other_bits(sensitive: LanguageModel) -> None:
    """So that equality says something: it depends on the batches.

    Which products change their bits is the processor's matter; on the machines that were tried some always do.
    """
    local = LocalExecutor(lambda: sensitive)

    def differs(case: Case) -> bool:
        work = case.plan(sensitive, case.tokens)
        alone = with_batches(work, [(item,) for batch in work.batches for item in batch])
        assert len(alone.shards()) == work.n_items == N
        return bool(case.bits(local, alone) != case.bits(local, work))

    if not any(map(differs, CASES.values())):  # the first that does is enough
        pytest.skip("no pass depends on its batches on this processor: the equalities above show nothing here")


def test_a_donor_of_another_batch_gives_its_states(sensitive: LanguageModel) -> None:
    work = CASES["patches"].plan(sensitive, CASES["patches"].tokens)
    assert isinstance(work, StatesPass)
    for shard, batch in zip(work.shards(), work.batches, strict=True):
        donors = {one.patches[item].donor for one in work.variants if one.patches for item in batch if one.runs(item)}
        assert donors - set(batch)  # so there is one that does not run here
        assert set(shard.items) == donors | set(batch)
        assert len(shard.sequences) < N
    giver, patches = 7, work.variants[1].patches
    assert patches is not None
    changed = list(work.sequences)
    ids = list(changed[giver].ids)
    ids[FIRST + 1] += 1  # one of the tokens whose states it gives
    changed[giver] = replace(changed[giver], ids=tuple(ids))
    before, after = (
        run_states(ManyWorkers(sensitive), replace(work, sequences=tuple(some)), Silent()).variants[1]
        for some in (work.sequences, changed)
    )
    assert before.states is not None
    assert after.states is not None
    moved = (before.states - after.states).abs().amax(dim=(0, 1, 3)) > 1e-2
    assert before.items[moved.numpy()].tolist() == [item for item, patch in patches.items() if patch.donor == giver]
