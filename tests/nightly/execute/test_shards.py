"""A pass cut into shards gives, merged by item, what it gives whole; and no cut passes in silence over all of them."""

from collections.abc import Sequence

import pytest

from anchorscope.engine.capture import EdgeCounts, refuse_idle_cuts
from anchorscope.engine.sequences import Cut, TokenSequence, Variant
from anchorscope.errors import UserError
from anchorscope.execute.executor import LocalExecutor
from anchorscope.execute.run_passes import placed, run_states
from anchorscope.execute.worker import StatesPart, Worker
from anchorscope.models.language_model import LanguageModel
from anchorscope.plan.passes import StatesPass
from anchorscope.progress import Silent
from made_items import planner_of
from many_workers import ManyWorkers


def run_part(worker: Worker, shard: StatesPass) -> StatesPart:
    """What a shard gives, with the numbers that its items have in the whole."""
    part = worker.run(shard, Silent())
    assert isinstance(part, StatesPart)
    return placed(shard.items, part)


def is_refused(edges: EdgeCounts) -> bool:
    try:
        refuse_idle_cuts(edges)
    except UserError:
        return True
    return False


def direct_cuts(
    lm: LanguageModel, keys: Sequence[int], layers: range | None = None
) -> StatesPass:
    """Items of 30 tokens, the answer from 27 on, each with its cut of direct edges, and a batch of its own."""
    sequences = [
        TokenSequence(tuple(range(item, item + 30)), 27, (29,))
        for item in range(len(keys))
    ]
    variant = Variant(
        {item: Cut((key,), "direct") for item, key in enumerate(keys)}, layers
    )
    work = planner_of(lm, 30).states("direct", sequences, (), [variant])
    assert len(work.batches) == len(keys)
    return work


FAR, NEAR = 5, 25
"""Keys that a window of six hides from the answer, or does not."""


def test_an_untouched_item_is_noticed_however_many_others_were_touched(
    short_sighted: LanguageModel,
) -> None:
    work = direct_cuts(short_sighted, [NEAR, NEAR + 1, FAR, NEAR], range(2, 4))
    worker = Worker(short_sighted)
    fine = [not is_refused(run_part(worker, shard).edges) for shard in work.shards()]
    assert fine == [True, True, False, True]
    for executor in (ManyWorkers(short_sighted), LocalExecutor(lambda: short_sighted)):
        with pytest.raises(
            UserError, match="takes no attention edge from it in any layer"
        ):
            run_states(executor, work, Silent())
