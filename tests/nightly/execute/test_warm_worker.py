"""A warm worker: shards are launched one after the other and answered by other threads; it holds on to none of them."""

import gc
import weakref
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch

from anchorscope.execute.collected import Collected
from anchorscope.execute.warm_worker import WarmWorker
from anchorscope.execute.wire import pack
from anchorscope.execute.worker import Launched, Worker
from anchorscope.execute.worker_job import ERROR, WorkerJob
from anchorscope.models.language_model import LanguageModel
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
