"""A worker that fails as a test wants it to: started in place of the real one, which it is but for that.

With `stand-in` behind its name it has no model either, and begins within a second where the libraries of one take many:
for tests of who computes a shard, how often, and who is told. What is computed is tested with models.

A test puts files into the folder FAULTS_AT. While `hold` is there, workers wait inside a shard, and `begun-PID` tells
which do. All other files are faults, each of which strikes one worker, once: whoever renames the file has it.
"""

import hashlib
import json
import os
import sys
import time
import traceback
from collections.abc import Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from anchorscope.errors import UserError
from anchorscope.execute import ray_worker, starter, worker_process
from anchorscope.execute.frames import Frames
from anchorscope.execute.ray_worker import RayWorker
from anchorscope.execute.warm_worker import Answer, WarmWorker
from anchorscope.execute.worker_job import ERROR, MEMORY

FOLDER = "FAULTS_AT"


def claim(name: str) -> str | None:
    """What is in the file of a fault, for the first who asks; None for all others."""
    folder = Path(os.environ[FOLDER])
    mine = folder / f"claimed-{name}-{os.getpid()}-{time.monotonic_ns()}"
    try:
        os.rename(folder / name, mine)
    except FileNotFoundError:
        return None
    return mine.read_text(encoding="utf-8")


class StandIn(WarmWorker):
    """In place of a model: gives the sha256 of all that a task brings."""

    def _load(self) -> dict[str, Any]:
        return {"weights": self._job.model, "versions": {"torch": "none"}, "pid": os.getpid()}

    def take(self, body: bytes, blobs: Mapping[str, bytes]) -> "Future[Any]":
        """As the real one: blobs that came with an earlier task are not sent again."""
        self._blobs.update(blobs)
        return self._model_thread.submit(self._run, body)

    def _run(self, shard: Any) -> bytes:
        return part_of(shard, self._blobs)

    def finish(self, running: "Future[Any]") -> Answer:
        """As the real one."""
        try:
            body = running.result()
            return Answer([body], hashlib.sha256(body).hexdigest())
        except MemoryError as error:
            return Answer(kind=MEMORY, text=str(error))
        except Exception:
            return Answer(kind=ERROR, text=traceback.format_exc())


def part_of(body: bytes, blobs: Mapping[str, bytes]) -> bytes:
    """What a stand-in makes of a task, whose body is a list of blobs' names."""
    return hashlib.sha256(body + b"".join(blobs[name] for name in json.loads(body))).hexdigest().encode()


def install(worker: type[WarmWorker] = WarmWorker) -> None:
    """Makes the faults possible in this process."""
    run, load, send = worker._run, worker._load, Frames.send
    folder = Path(os.environ[FOLDER])

    def faulty_run(self: WarmWorker, shard: Any) -> Any:
        while (folder / "hold").exists():
            (folder / f"begun-{os.getpid()}").touch()
            time.sleep(0.02)
        if claim("memory") is not None:
            torch = sys.modules.get("torch")
            raise (MemoryError if torch is None else torch.OutOfMemoryError)("out of memory, on purpose")
        if (text := claim("user")) is not None:
            raise UserError(text)
        if claim("error") is not None or (folder / f"always {shard.title}").exists():
            raise RuntimeError("broken on purpose")
        if claim("exit") is not None:
            sys.stderr.write("these are my last words\n")
            sys.stderr.flush()
            os._exit(7)
        return run(self, shard)

    def faulty_load(self: WarmWorker) -> dict[str, Any]:
        from dataclasses import replace

        if (other := claim("weights")) is not None:
            self._job = replace(self._job, model=other)
        version = claim("torch") if other is None else None
        told = load(self)
        if version is not None:
            told["versions"]["torch"] = version
        return told

    def faulty_send(self: Frames, header: Any, parts: Any = None) -> None:
        if header["kind"] == "done" and claim("corrupt") is not None:
            whole = b"".join(parts["body"])
            return send(self, header, {"body": whole[:-1] + bytes([whole[-1] ^ 1])})
        send(self, header, parts)
        if header["kind"] == "done" and claim("twice") is not None:
            send(self, header, parts)
        if header["kind"] == "done" and claim("twice otherwise") is not None:
            other = b"".join(parts["body"]) + b" "
            send(self, {**header, "sha256": hashlib.sha256(other).hexdigest()}, {"body": other})
        return None

    worker._run, worker._load = faulty_run, faulty_load  # type: ignore[method-assign]
    Frames.send = faulty_send  # type: ignore[method-assign]


class FaultyRayWorker(RayWorker):
    """A stand-in on Ray."""

    def __init__(self) -> None:
        super().__init__()
        install(StandIn)
        ray_worker.WarmWorker = StandIn  # type: ignore[misc]


if __name__ == "__main__":
    if sys.argv[1] == "stand-in":
        install(StandIn)
        worker_process.WarmWorker = StandIn  # type: ignore[misc]
        starter._import_libraries = lambda: None
    else:
        install()
    worker_process.main(int(sys.argv[-1]))
