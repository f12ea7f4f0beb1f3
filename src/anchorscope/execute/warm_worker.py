"""A loaded model that computes packed shards, wherever it runs: in a process of this machine, or on a cluster.

Three things go on at once, so that the device never waits: the next shard is unpacked and told to the device while one
runs and the last one's part is packed. The model itself is used by one thread only, in which it was loaded.
"""

import gc
import os
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Any

from anchorscope.errors import UserError
from anchorscope.execute.content_hash import Body, content_hash
from anchorscope.execute.worker_job import ERROR, MEMORY, USER, WorkerJob

_ALLOCATOR = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")  # a user's own setting stays
_PINNED = "pinned_use_cuda_host_register:True,pinned_num_register_threads:8"
# 0.08 s instead of 0.34 s for 283 MB, on an H200.


@dataclass(frozen=True)
class Answer:
    """What became of a task: a packed part with its hash, or the kind of failure and its text."""

    pieces: Sequence[Body] = ()
    """The part's bytes, one piece after the other."""
    sha256: str = ""
    kind: str = ""
    """Empty where it was done."""
    text: str = ""


class WarmWorker:
    """One model in a process of its own; the number of threads has to be in the environment before this is made."""

    def __init__(self, job: WorkerJob) -> None:
        self._job = job
        self._model_thread = ThreadPoolExecutor(1, "model")
        self._blobs: dict[str, Body] = {}
        self._unpacking = threading.Lock()
        self._worker: Any = None
        self._settings = ExitStack()  # of the whole process, which has no other work
        self._wait: Callable[[], None] = lambda: None  # for the shard that was launched last

    def load(self) -> dict[str, Any]:
        """Loads the model and gives what this worker says of itself; UserError where it cannot be loaded."""
        return self._model_thread.submit(self._load).result()

    def _load(self) -> dict[str, Any]:
        if self._job.device != "cpu" and not any(name in os.environ for name in _ALLOCATOR):
            os.environ[_ALLOCATOR[0]] = _PINNED  # read when torch is loaded
        import torch

        from anchorscope.execute.numerics import hello
        from anchorscope.execute.worker import Worker
        from anchorscope.models.loading import load
        from anchorscope.models.process_settings import few_collections

        job = self._job
        if job.threads:
            torch.set_num_threads(job.threads)
        lm = load(job.model, job.dtype, job.device, job.trust_remote_code)
        self._worker = Worker(lm)
        told = hello(lm, job)
        self._settings.enter_context(few_collections())
        gc.collect()
        gc.freeze()  # libraries and model stay: looking through them for garbage took a third of a second each time
        return told

    def take(self, body: Body, blobs: Mapping[str, Body]) -> "Future[Any]":
        """Unpacks a shard and puts it at the end of the model's line; the future gives its part.

        Tasks have to be taken in the order in which they were sent: a later one may need the blobs of an earlier one.
        """
        from anchorscope.execute.wire import unpack

        with self._unpacking:
            self._blobs.update(blobs)
            try:
                shard = unpack(body, self._blobs)
            except Exception as error:  # told as the task's own failure
                failed: Future[Any] = Future()
                failed.set_exception(error)
                return failed
            return self._model_thread.submit(self._run, shard)

    def _run(self, shard: Any) -> Any:
        from anchorscope.progress import Silent

        launched = self._worker.launch(shard, Silent())
        before, self._wait = self._wait, launched.wait
        with suppress(Exception):  # it is told as the failure of its own shard
            before()  # no more than two at a time: what they keep has to fit
        return launched

    def finish(self, running: "Future[Any]") -> Answer:
        """Waits for a part and packs it; a failure is an answer too, and the worker goes on.

        Raises where the device has failed for good: such a worker has to end.
        """
        from anchorscope.errors import MemoryRanOut
        from anchorscope.execute.wire import pack_result
        from anchorscope.models.devices import free_memory, is_device_lost, is_out_of_memory

        try:
            pieces = pack_result(running.result().part())
            return Answer(pieces, content_hash(pieces))
        except UserError as error:
            return Answer(kind=USER, text=str(error))
        except Exception as error:
            if is_device_lost(error):
                raise  # nothing will run here any more
            ran_out = isinstance(error, MemoryRanOut) or is_out_of_memory(error)
            answer = Answer(kind=MEMORY if ran_out else ERROR, text=traceback.format_exc())
            error.__traceback__ = error.__context__ = error.__cause__ = None  # they hold what did not fit
        if answer.kind == MEMORY:
            del running
            self._model_thread.submit(free_memory).result()
        return answer
