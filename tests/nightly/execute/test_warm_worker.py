"""A warm worker: shards are launched one after the other and answered by other threads; it holds on to none of them."""

import gc
import os
import weakref
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
import torch

from anchorscope.errors import UserError
from anchorscope.execute.collected import Collected
from anchorscope.execute.warm_worker import WarmWorker
from anchorscope.execute.wire import pack, pack_result
from anchorscope.execute.worker import Launched, Worker
from anchorscope.execute.worker_job import ERROR, WorkerJob
from anchorscope.execute.worker_memory import places_of
from anchorscope.models.devices import Fetched
from anchorscope.models.language_model import LanguageModel
from anchorscope.progress import Silent
from small_shards import hashes_here, packed_shards, small_shards


@pytest.fixture
def warm(tiny_llama: LanguageModel) -> WarmWorker:
    found = WarmWorker(WorkerJob("tiny"))
    found._worker = Worker(tiny_llama)
    return found


def test_answers_have_the_bits_of_one_process(warm: WarmWorker, tiny_llama: LanguageModel) -> None:
    packed = packed_shards(small_shards(tiny_llama, 4))
    running = {name: warm.take(one.body, one.blobs) for name, one in packed.items()}
    with ThreadPoolExecutor(2) as threads:
        answers = dict(zip(running, threads.map(warm.finish, running.values()), strict=True))
    assert {name: one.sha256 for name, one in answers.items()} == hashes_here(tiny_llama, packed)


def test_nothing_of_a_shard_is_held_after_its_answer(
    warm: WarmWorker, tiny_llama: LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither its result nor, where weights were drawn at random, a second model."""
    launch, seen = Worker.launch, list[weakref.ref[Any]]()

    def watched(self: Worker, shard: Any, progress: Any) -> Launched:
        found = launch(self, shard, progress)
        seen.append(weakref.ref(found))
        return found

    monkeypatch.setattr(Worker, "launch", watched)
    plain = next(one for one in small_shards(tiny_llama, 4) if hasattr(one, "random_weights"))
    for shard in (replace(plain, random_weights=True, probes=None), plain):
        packed = pack(shard)
        assert not warm.finish(warm.take(packed.body, packed.blobs)).kind
        if shard is not plain:
            seen.append(weakref.ref(warm._worker.without_knowledge.lm.model))
    gc.collect()
    assert len(seen) == 3
    assert not [one for one in seen if one() is not None]


def test_states_are_let_go_with_their_answer_and_nobody_has_to_look_for_them(
    warm: WarmWorker, tiny_llama: LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A GPU's states lie in pinned memory: what waits for the collector would be pinned anew with every shard."""
    made = list[weakref.ref[Any]]()

    class Watched(Collected):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            made.append(weakref.ref(self))

    monkeypatch.setattr("anchorscope.execute.worker.Collected", Watched)
    shards = [shard for whole in small_shards(tiny_llama, 2) for shard in (whole, *whole.shards())]
    gc.collect()
    gc.disable()
    try:
        for shard in shards:
            packed = pack(shard)
            assert not warm.finish(warm.take(packed.body, packed.blobs)).kind
        assert made
        assert not [one for one in made if one() is not None]
    finally:
        gc.enable()


def test_a_shards_states_are_packed_where_they_lie(tiny_llama: LanguageModel) -> None:
    """From the device's answer to the bytes that are sent: one piece of memory."""
    (whole,) = small_shards(tiny_llama, 1)
    (shard,) = whole.shards()
    seen = list[int]()

    class Watched(Fetched):
        def get(self) -> list[torch.Tensor]:
            found = super().get()
            seen.extend(one.data_ptr() for one in found)
            return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("anchorscope.execute.collected.Fetched", Watched)
        part = Worker(tiny_llama).run(shard, Silent())
    places = {start for start, _ in places_of(pack_result(part))}
    assert {one.states.data_ptr() for one in part.variants} <= places & set(seen)


@pytest.mark.parametrize("own", ["PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF", None])
def test_a_gpu_worker_says_how_memory_is_pinned_unless_the_user_does(own, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")
    for name in names:
        monkeypatch.setenv(name, "mine")
        if name != own:
            monkeypatch.delenv(name)

    def no_model(*given: Any) -> Any:
        raise UserError("no model")

    monkeypatch.setattr("anchorscope.models.loading.load", no_model)
    for device in ("cpu", "cuda"):
        with pytest.raises(UserError, match="no model"):
            WarmWorker(WorkerJob("tiny", device=device)).load()
        found = {name: os.environ[name] for name in names if name in os.environ}
        if own is not None:
            assert found == {own: "mine"}
        elif device == "cpu":
            assert not found
        else:
            assert "pinned_use_cuda_host_register:True" in found[names[0]]


class Failing:
    """In place of a worker: the device fails at its first shard, and tells so when it is waited for."""

    def __init__(self, error: Exception) -> None:
        self.error, self.n_launched = error, 0

    def launch(self, shard: Any, progress: Any) -> Launched:
        self.n_launched += 1

        def fail() -> Any:
            raise self.error

        return Launched(fail, fail) if self.n_launched == 1 else Launched(lambda: {"fine": shard})


def test_what_fails_late_is_the_failure_of_its_own_shard(warm: WarmWorker) -> None:
    warm._worker = Failing(RuntimeError("a kernel failed"))
    first, second = (warm.take(pack(number).body, {}) for number in range(2))
    answer = warm.finish(first)
    assert (answer.kind, "a kernel failed" in answer.text) == (ERROR, True)
    assert not warm.finish(second).kind


def test_a_worker_whose_device_is_lost_cannot_answer(warm: WarmWorker) -> None:
    """Its process ends then, and the coordinator takes a new one."""
    warm._worker = Failing(torch.AcceleratorError("an illegal memory access was encountered"))
    with pytest.raises(torch.AcceleratorError):
        warm.finish(warm.take(pack(0).body, {}))
