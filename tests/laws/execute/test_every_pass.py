"""Every kind of pass gives the same bits whole and in shards, whoever runs them and in whatever order; and not where
its items are divided otherwise than in planned batches."""

import pytest

from anchorscope.execute.executor import LocalExecutor
from anchorscope.models.language_model import LanguageModel
from anchorscope.progress import Silent
from many_workers import ManyWorkers
from pass_cases import CASES, Case, N, bits, with_batches

every_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


@every_case
def test_shards_give_the_bits_of_the_whole(
    sensitive: LanguageModel, case: Case
) -> None:
    work = case.plan(sensitive, case.tokens)
    executor = ManyWorkers(sensitive, "backwards")
    assert case.bits(executor, work) == case.bits(
        LocalExecutor(lambda: sensitive), work
    )
    assert len(executor.shards) == len(work.batches) > 2
    assert [len(shard.batches) for shard in executor.shards] == [1] * len(work.batches)
    assert executor.told == []


@every_case
def test_one_worker_gives_the_same_bits_as_many(
    sensitive: LanguageModel, case: Case
) -> None:
    """What a worker remembers of one shard changes nothing in the next."""
    work = case.plan(sensitive, case.tokens)
    local = LocalExecutor(lambda: sensitive)
    before = [
        next(iter(local.map([shard], Silent()))) for shard in work.shards()[::-1]
    ][::-1]
    again = list(local.map(work.shards(), Silent()))
    assert (
        bits(before)
        == bits(again)
        == bits(list(ManyWorkers(sensitive).map(work.shards(), Silent())))
    )


def test_items_that_run_one_by_one_give_other_bits(sensitive: LanguageModel) -> None:
    """So that equality says something: it depends on the batches.

    Which products change their bits is the processor's matter; on the machines that were tried some always do.
    """
    local = LocalExecutor(lambda: sensitive)

    def differs(case: Case) -> bool:
        work = case.plan(sensitive, case.tokens)
        alone = with_batches(
            work, [(item,) for batch in work.batches for item in batch]
        )
        assert len(alone.shards()) == work.n_items == N
        return bool(case.bits(local, alone) != case.bits(local, work))

    if not any(map(differs, CASES.values())):  # the first that does is enough
        pytest.skip(
            "no pass depends on its batches on this processor: the equalities above show nothing here"
        )
