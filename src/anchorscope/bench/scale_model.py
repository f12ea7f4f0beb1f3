"""What a study would take on many GPUs: a cost model, fitted to measured shards.

A pass of a run is over when its workers are done and its coordinator is, whichever is later:

    seconds = max(work / workers, coordinator, network) + one shard

`work` is the operations of all tokens at the rate of one GPU; `coordinator` its seconds per shard and per megabyte that
comes back; `network` the same megabytes over the coordinator's line. Beside the passes a run has work that only the
coordinator does (questions, grading, exact tokens, fits, evidence), and a model is loaded once. The measured numbers
are in `measured_shards.json` with machine and command; those that nobody measured are marked there as assumed.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

MEASURED = Path(__file__).with_name("measured_shards.json")
"""The table of measured and assumed numbers."""
_MB = 1e6


def fit_coordinator(rows: Sequence[Mapping[str, Any]]) -> dict[str, float] | None:
    """Seconds per shard and per megabyte received, from passes of a benchmark of scale; None where there are none.

    By least squares over all passes; a cost that would come out negative is 0.
    """
    if not rows:
        return None
    counts = np.array([[row["shards"], row["bytes_received"] / _MB] for row in rows], dtype=float)
    seconds = np.array([row["cpu_seconds"] for row in rows], dtype=float)
    best, least = np.zeros(2), float("inf")
    for chosen in ([0, 1], [0], [1]):
        costs = np.zeros(2)
        costs[chosen] = np.linalg.lstsq(counts[:, chosen], seconds, rcond=None)[0]
        off = float(((counts @ costs - seconds) ** 2).sum())
        if (costs >= 0).all() and off < least:
            best, least = costs, off
    return {"seconds_per_shard": float(best[0]), "seconds_per_mb": float(best[1])}


@dataclass(frozen=True)
class PassCost:
    """One pass over one item."""

    tokens: float
    """That are run."""
    rate: float
    """Of the rate that the knockout's passes reach on the GPU."""
    places: float
    """Sites and variants whose states come back."""
    other_bytes: float
    """That come back beside the states: log-odds per layer times layers are small, texts smaller."""


@dataclass(frozen=True)
class ModelSize:
    """What the cost of a model hangs on."""

    name: str
    layers: int
    d_model: int
    parameters: float
    """Of all blocks."""
    operations_per_s: float
    """That passes reach on one GPU."""
    number: int = 1
    """How many models of this size the study has."""

    def seconds(self, one: PassCost) -> float:
        """On one GPU, per item."""
        return one.tokens * 2 * self.parameters / (self.operations_per_s * one.rate)

    def megabytes(self, one: PassCost) -> float:
        """That come back per item, in half precision."""
        return (one.places * self.layers * self.d_model * 2 + one.other_bytes) / _MB


@dataclass(frozen=True)
class Costs:
    """Everything that does not hang on the model."""

    passes: Mapping[str, PassCost]
    batch_tokens: int
    """Tokens of a shard."""
    coordinator_per_shard: float
    coordinator_per_mb: float
    network_mb_per_s: float
    """Of the coordinator's line."""
    load_seconds: float
    """Starting a worker, without reading its weights."""
    read_mb_per_s: float
    """At which a worker reads weights."""
    host_per_item: float
    """Questions, grading, exact tokens, on one core."""
    fit_per_value: float
    """Fits of probes, per item, layer and width."""
    evidence_per_value: float
    """Evidence and report, per item and layer."""


@dataclass(frozen=True)
class PassTime:
    """One pass of one run."""

    work: float
    """Seconds on one GPU."""
    coordinator: float
    network: float
    shard: float
    """Seconds of one shard."""

    def wall(self, workers: int) -> float:
        """On so many workers."""
        return max(self.work / workers, self.coordinator, self.network) + self.shard

    @property
    def most_workers(self) -> float:
        """Above so many, workers wait for the coordinator or its line."""
        return self.work / max(self.coordinator, self.network)


def pass_times(model: ModelSize, items: int, costs: Costs) -> dict[str, PassTime]:
    """All passes of one run."""
    found = {}
    for name, one in costs.passes.items():
        shards, megabytes = math.ceil(items * one.tokens / costs.batch_tokens), items * model.megabytes(one)
        work = items * model.seconds(one)
        found[name] = PassTime(
            work,
            shards * costs.coordinator_per_shard + megabytes * costs.coordinator_per_mb,
            megabytes / costs.network_mb_per_s,
            work / shards,
        )
    return found


@dataclass(frozen=True)
class RunTime:
    """All runs of one model: its datasets one after the other, its weights loaded once."""

    load: float
    passes: float
    alone: float
    """What only the coordinator does, while workers wait."""

    @property
    def wall(self) -> float:
        """Seconds."""
        return self.load + self.passes + self.alone


def run_time(model: ModelSize, datasets: int, items: int, workers: int, costs: Costs) -> RunTime:
    """On so many workers with one coordinator."""
    load = costs.load_seconds + 2 * model.parameters / _MB / costs.read_mb_per_s
    passes = sum(one.wall(workers) for one in pass_times(model, items, costs).values())
    values = model.layers * (costs.evidence_per_value + model.d_model * costs.fit_per_value)
    return RunTime(load, datasets * passes, datasets * items * (costs.host_per_item + values))


def one_coordinator(models: Sequence[ModelSize], datasets: int, items: int, gpus: int, costs: Costs) -> RunTime:
    """A study whose models run one after the other, each on all GPUs."""
    found = [(run_time(one, datasets, items, gpus, costs), one.number) for one in models]
    return RunTime(*(sum(getattr(time, part) * n for time, n in found) for part in ("load", "passes", "alone")))


def side_by_side(models: Sequence[ModelSize], datasets: int, items: int, gpus: int, costs: Costs) -> float:
    """Seconds of a study whose models run at the same time, each with its coordinator and its share of the GPUs.

    Every model gets one GPU; each further one goes to the model that would be the last to finish.
    """
    each = [replace(one, number=1) for one in models for _ in range(one.number)]
    if gpus < len(each):
        return one_coordinator(models, datasets, items, gpus, costs).wall
    shares = [1] * len(each)
    walls = [run_time(one, datasets, items, 1, costs).wall for one in each]
    for _ in range(gpus - len(each)):
        last = walls.index(max(walls))
        shares[last] += 1
        walls[last] = run_time(each[last], datasets, items, shares[last], costs).wall
    return max(walls)


def states_gb(model: ModelSize, items: int, costs: Costs) -> float:
    """States of one dataset that its coordinator holds at a time."""
    return sum(items * model.megabytes(one) for one in costs.passes.values()) / 1000


def read_table(path: Path = MEASURED) -> tuple[list[ModelSize], Costs]:
    """The models of the prediction and the costs, from the table."""
    table = json.loads(path.read_text(encoding="utf-8"))
    found = {name: entry["value"] for name, entry in table["costs"].items()}
    passes = {name: PassCost(**one) for name, one in table["passes"].items()}
    return [ModelSize(**one) for one in table["models"]], Costs(passes=passes, **found)
