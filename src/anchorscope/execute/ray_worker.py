"""A worker on a Ray cluster: an actor whose methods take bytes and give bytes and one array of them.

Ray ships both as they are, and reads an array from its store without a copy. It may run the calls
of an actor on several threads and in any order. So every task brings its number, and tasks are taken in that order;
the next one is unpacked while one runs.
"""

import json
import threading
import traceback
from typing import TYPE_CHECKING

from anchorscope.errors import UserError
from anchorscope.execute.warm_worker import WarmWorker
from anchorscope.execute.worker_job import ERROR, USER, WorkerJob

if TYPE_CHECKING:  # types only: NumPy reads the number of threads when it is loaded
    import numpy as np
    from numpy.typing import NDArray


class RayWorker:
    """One warm model. Whatever goes wrong with a task is an answer: only Ray's own failures are exceptions."""

    def __init__(self) -> None:
        self._turn = threading.Condition()
        self._next = 0
        self._worker: WarmWorker | None = None

    def begin(self, job: bytes) -> bytes:
        """Loads the model of a job (JSON) and tells what this worker is, or why it cannot be one, as JSON."""
        try:
            self._worker = WarmWorker(WorkerJob.of(json.loads(job)))
            told = {"kind": "joined", "hello": self._worker.load()}
        except UserError as error:
            told = {"kind": "refused", "failure": USER, "text": str(error)}
        except Exception:
            told = {"kind": "refused", "failure": ERROR, "text": traceback.format_exc()}
        return json.dumps(told).encode()

    def compute(self, header: bytes, body: bytes, *blobs: bytes) -> "tuple[bytes, NDArray[np.uint8]]":
        """One task: its answer as JSON, and the packed part; the header has the task's number and the blobs' names."""
        from anchorscope.execute.packed_file import in_one_piece

        told = json.loads(header)
        assert self._worker is not None
        with self._turn:
            self._turn.wait_for(lambda: told["number"] == self._next)
            running = self._worker.take(body, dict(zip(told["blobs"], blobs, strict=True)))
            self._next += 1
            self._turn.notify_all()
        answer = self._worker.finish(running)
        told = {"failure": answer.kind, "text": answer.text, "sha256": answer.sha256}
        return json.dumps(told).encode(), in_one_piece(answer.pieces)
