"""Workers: no model before it is due, as many GPUs as there are, and states that stay where they are made."""

import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from anchorscope.engine.sequences import SITES
from anchorscope.execute import ray_executor
from anchorscope.execute.choose import Choice, choose
from anchorscope.execute.executor import LocalExecutor
from anchorscope.execute.numerics import numerics_of
from anchorscope.execute.ray_executor import RayExecutor, WarmModels, WorkerJob
from anchorscope.execute.run_passes import run_states
from anchorscope.execute.worker import Worker
from anchorscope.models.language_model import LanguageModel
from anchorscope.models.wrapping import wrap
from anchorscope.progress import Silent
from small_shards import small_pass
from tiny_models import byte_tokenizer, tiny_model


class Counting:
    """Loads a model when asked, and counts how often."""

    def __init__(self, lm: LanguageModel) -> None:
        self.lm, self.loads = lm, 0

    def __call__(self) -> LanguageModel:
        self.loads += 1
        return self.lm


def test_no_model_is_loaded_before_the_first_shard_and_one_for_all(
    tiny_llama: LanguageModel,
) -> None:
    load = Counting(tiny_llama)
    executor = LocalExecutor(load)
    work = small_pass(tiny_llama, 6)
    assert executor.map([], Silent()) == []
    assert list(executor.divide(work)) == [work]
    assert load.loads == 0  # nothing was asked of it yet
    assert len(executor.map(work.shards(), Silent())) == len(work.batches) > 1
    assert executor.describe().planner.n_layers == tiny_llama.n_layers
    run_states(executor, work, Silent())
    assert load.loads == 1


def test_kept_places_are_in_the_order_in_which_they_were_asked_for(
    tiny_llama: LanguageModel,
) -> None:
    work, worker = small_pass(tiny_llama, 1), Worker(tiny_llama)
    places = [(position, site) for position in range(2) for site in range(len(SITES))]
    everything = (
        worker.run(replace(work, keep=(tuple(places),)), Silent()).variants[0].states
    )
    for keep in (((1, 2), (0, 0)), ((0, 2), (1, 0), (1, 1))):
        found = worker.run(replace(work, keep=(keep,)), Silent()).variants[0].states
        assert torch.equal(found, everything[[places.index(place) for place in keep]])


@pytest.mark.parametrize(
    ("device", "workers", "machines", "wanted"),
    [
        ("cpu", 2, (8,), 0),
        ("cuda", 2, (8,), 1),
        ("balanced", 2, (8,), 4),
        ("balanced", None, (8,), 8),
        ("balanced", None, (8, 8), 8),  # a worker is on one machine
        ("balanced", 1, (4, 4), 4),
        ("balanced", 4, (2,), 1),
    ],
)
def test_gpus_that_a_worker_asks_for(
    device: str, workers: int | None, machines: tuple[int, ...], wanted: int
) -> None:
    class Cluster:
        def cluster_resources(self) -> dict[str, float]:
            return {"GPU": float(sum(machines))}

        def nodes(self) -> list[dict[str, Any]]:
            return [
                {"Alive": True, "Resources": {"GPU": float(gpus)}} for gpus in machines
            ]

    group = RayExecutor(
        choose("ray", workers), WorkerJob("shape:smollm2-135m", device=device)
    )
    assert group._gpus(Cluster()) == wanted


def test_a_model_is_loaded_once_for_runs_that_follow_each_other(
    tiny_llama: LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    load = Counting(tiny_llama)
    monkeypatch.setattr(ray_executor, "load", lambda *options: load())
    warm, first, second = WarmModels(), WorkerJob("first"), WorkerJob("second")
    description = warm.executor(Choice(), first, Silent()).describe()
    assert description.numerics == numerics_of(tiny_llama)
    assert warm.executor(Choice(), first, Silent()).describe() is description
    assert load.loads == 1
    for job in (second, first):
        warm.executor(Choice(), job, Silent()).describe()
    assert load.loads == 3, "one model is held at a time"


def test_less_than_a_hundredth_of_the_states_travels(tmp_path: Path) -> None:
    """At a width at which it has to: everything else that a pass brings does not grow with the width."""
    lm = wrap(tiny_model("llama", hidden_size=1024), byte_tokenizer())
    work = small_pass(lm, 6)
    keep = tuple(
        (position, site) for position in range(2) for site in range(len(SITES))
    )
    work = replace(
        work, keep=(keep, keep), batches=(tuple(range(len(work.sequences))),)
    )
    assert work.probes is not None
    worker, travelled, states = Worker(lm), 0, 0
    for shard in work.writing_shards(tmp_path, lm.d_model, "float32", lm.n_layers):
        assert shard.probes is not None
        without_probes = replace(shard, probes=replace(shard.probes, sets=()))
        travelled += len(pickle.dumps(without_probes))
        travelled += len(pickle.dumps(worker.run(shard, Silent())))
        states += sum(rows.nbytes for rows in shard.into if rows is not None)
    assert states == 6 * lm.n_layers * lm.d_model * 4 * (
        len(work.run_by(0)) + len(work.run_by(1))
    )
    assert 0 < travelled <= 0.01 * states
