"""Shards of a tiny model, and what they give on one machine: shared by the tests of pools and of faults."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from anchorscope.engine.sequences import CLEAN, SITES, Cut, TokenSequence, Variant
from anchorscope.execute.worker import Worker
from anchorscope.models.language_model import LanguageModel
from anchorscope.plan.passes import OutOfFoldProbes, Planner, StatesPass
from anchorscope.probes.crossfit import ProbeSet
from anchorscope.progress import Silent
from pass_cases import bits

N_FOLDS = 2


def small_shards(lm: LanguageModel, number: int, items: int = 4) -> list[StatesPass]:
    """So many shards of few sequences, clean and cut, states kept and scored with probes that all of them share."""
    planner = Planner(lm.n_layers, lm.n_heads, tuple(map(lm.sliding_window, range(lm.n_layers))), 100_000)
    probes, rng = _probes(lm), np.random.default_rng(3)
    shards = []
    for index in range(number):
        sequences = []
        for _ in range(items):
            ids = (7, 8, 9, 10, *rng.integers(0, 250, int(rng.integers(8, 24))).tolist())
            sequences.append(TokenSequence(ids, len(ids) - 3, (len(ids) - 1, len(ids) - 2)))
        variants = (CLEAN, Variant({item: Cut((5, 6)) for item in range(items)}))
        planned = planner.states(f"shard {index}", sequences, sequences[0].ids[:3], variants)
        folds = OutOfFoldProbes(probes, np.arange(items) % N_FOLDS)
        shards.append(_with(planned, folds))
    return shards


def small_pass(lm: LanguageModel, number: int) -> StatesPass:
    """The sequences of that many shards as one pass of many batches."""
    shards = small_shards(lm, number)
    sequences = [sequence for shard in shards for sequence in shard.sequences]
    planner = Planner(lm.n_layers, lm.n_heads, tuple(map(lm.sliding_window, range(lm.n_layers))), 100)
    variants = (CLEAN, Variant({item: Cut((5, 6)) for item in range(0, len(sequences), 3)}))
    planned = planner.states("small pass", sequences, shards[0].prefix, variants)
    assert shards[0].probes is not None
    return _with(planned, OutOfFoldProbes(shards[0].probes.sets, np.arange(len(sequences)) % N_FOLDS))


def _with(planned: StatesPass, probes: OutOfFoldProbes) -> StatesPass:
    from dataclasses import replace

    return replace(planned, probes=probes, keep=(((0, 2),), ((1, 0),)), log_probs=True)


def _probes(lm: LanguageModel) -> tuple[tuple[ProbeSet, ...], ...]:
    shape = (1, N_FOLDS, lm.n_layers)
    generator = torch.Generator().manual_seed(5)
    return tuple(
        tuple(
            ProbeSet(
                torch.randn(*shape, lm.d_model, generator=generator),
                torch.zeros(shape),
                np.ones(shape),
                np.ones(shape),
                (),
            )
            for _ in SITES
        )
        for _ in range(2)
    )


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
