"""Shards of a tiny model, and what they give on one machine: shared by the tests of pools and of faults."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from anchorscope.engine.sequences import CLEAN, Cut, TokenSequence, Variant
from anchorscope.execute.worker import Worker
from anchorscope.models.language_model import LanguageModel
from anchorscope.plan.passes import OutOfFoldProbes, StatesPass
from anchorscope.progress import Silent
from made_items import planner_of
from pass_cases import bits, make_probes


def small_shards(lm: LanguageModel, number: int) -> list[StatesPass]:
    """So many shards of four sequences, clean and cut, states kept and scored with probes that all of them share."""
    planner, probes, rng = (
        planner_of(lm, 100_000),
        make_probes(lm, 4),
        np.random.default_rng(3),
    )
    shards = []
    for index in range(number):
        sequences = []
        for _ in range(4):
            ids = (
                7,
                8,
                9,
                10,
                *rng.integers(0, 250, int(rng.integers(8, 24))).tolist(),
            )
            sequences.append(
                TokenSequence(ids, len(ids) - 3, (len(ids) - 1, len(ids) - 2))
            )
        variants = (CLEAN, Variant({item: Cut((5, 6)) for item in range(4)}))
        planned = planner.states(
            f"shard {index}", sequences, sequences[0].ids[:3], variants
        )
        shards.append(_with(planned, probes))
    return shards


def small_pass(lm: LanguageModel, number: int) -> StatesPass:
    """The sequences of that many shards as one pass of many batches."""
    shards = small_shards(lm, number)
    sequences = [sequence for shard in shards for sequence in shard.sequences]
    variants = (
        CLEAN,
        Variant({item: Cut((5, 6)) for item in range(0, len(sequences), 3)}),
    )
    planned = planner_of(lm, 100).states(
        "small pass", sequences, shards[0].prefix, variants
    )
    return _with(planned, make_probes(lm, len(sequences)))


def _with(planned: StatesPass, probes: OutOfFoldProbes) -> StatesPass:
    return replace(planned, probes=probes, keep=(((0, 2),), ((1, 0),)), log_probs=True)


def parts_here(lm: LanguageModel, shards: Sequence[StatesPass]) -> list[Any]:
    """Every shard's part, run in this process, as plain data that are equal where all bits are."""
    worker = Worker(lm)
    return [bits(worker.run(shard, Silent())) for shard in shards]


class StrikeAfter(Silent):
    """Does something once, when so many shards are done."""

    def __init__(self, shards: int, strike: Callable[[], object]) -> None:
        self.left, self.strike = shards, strike

    def advance(self, n: int) -> None:
        self.left -= 1
        if self.left == 0:
            self.strike()
