"""Shards of a tiny model, and what they give on one machine: shared by the tests of pools and of faults."""

import hashlib
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from anchorscope.engine.sequences import CLEAN, Cut, TokenSequence, Variant
from anchorscope.execute.wire import Packed, pack, unpack
from anchorscope.execute.worker import Worker
from anchorscope.models.language_model import LanguageModel
from anchorscope.plan.passes import Planner, StatesPass
from anchorscope.progress import Silent
from pass_cases import make_probes


def small_shards(lm: LanguageModel, number: int, items: int = 4) -> list[StatesPass]:
    """So many shards of few sequences, clean and cut, states kept and scored with probes that all of them share."""
    planner = Planner(lm.n_layers, lm.n_heads, tuple(map(lm.sliding_window, range(lm.n_layers))), 100_000)
    probes, rng = make_probes(lm, items), np.random.default_rng(3)
    shards = []
    for index in range(number):
        sequences = []
        for _ in range(items):
            ids = (7, 8, 9, 10, *rng.integers(0, 250, int(rng.integers(8, 24))).tolist())
            sequences.append(TokenSequence(ids, len(ids) - 3, (len(ids) - 1, len(ids) - 2)))
        variants = (CLEAN, Variant({item: Cut((5, 6)) for item in range(items)}))
        planned = planner.states(f"shard {index}", sequences, sequences[0].ids[:3], variants)
        shards.append(replace(planned, probes=probes, keep=(((0, 2),), ((1, 0),)), log_probs=True))
    return shards


def packed_shards(shards: Sequence[StatesPass]) -> dict[str, Packed]:
    """Every shard as a worker gets it, by its name."""
    return {f"t{index}": pack(shard) for index, shard in enumerate(shards)}


def hashes_here(lm: LanguageModel, packed: dict[str, Packed]) -> dict[str, str]:
    """sha256 of every shard's packed part, run in this process."""
    worker = Worker(lm)
    parts = {name: worker.run(unpack(one.body, one.blobs), Silent()) for name, one in packed.items()}
    return {name: hashlib.sha256(pack(part).body).hexdigest() for name, part in parts.items()}
