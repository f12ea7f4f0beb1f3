"""A worker that fails as a test wants it to: started in place of the real one, which it is but for that.

A test puts files into the folder FAULTS_AT. While `hold` is there, workers wait inside a shard, and `begun-PID` tells
which do. All other files are faults, each of which strikes one worker, once: whoever renames the file has it.
"""

import os
import sys
import time
from pathlib import Path
from typing import Any

from anchorscope.errors import UserError
from anchorscope.execute.frames import Frames
from anchorscope.execute.ray_worker import RayWorker
from anchorscope.execute.warm_worker import WarmWorker

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


def install() -> None:
    """Makes the faults possible in this process."""
    run, load, send = WarmWorker._run, WarmWorker._load, Frames.send
    folder = Path(os.environ[FOLDER])

    def faulty_run(self: WarmWorker, shard: Any) -> Any:
        while (folder / "hold").exists():
            (folder / f"begun-{os.getpid()}").touch()
            time.sleep(0.02)
        if claim("memory") is not None:
            import torch

            raise torch.OutOfMemoryError("out of memory, on purpose")
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
            import hashlib

            other = b"".join(parts["body"]) + b" "
            send(self, {**header, "sha256": hashlib.sha256(other).hexdigest()}, {"body": other})
        return None

    WarmWorker._run, WarmWorker._load = faulty_run, faulty_load  # type: ignore[method-assign]
    Frames.send = faulty_send  # type: ignore[method-assign]


class FaultyRayWorker(RayWorker):
    """The same on Ray."""

    def __init__(self) -> None:
        super().__init__()
        install()


if __name__ == "__main__":
    from anchorscope.execute.worker_process import main

    install()
    main(int(sys.argv[1]))
