"""A worker as a process of this machine: `python -m anchorscope.execute.worker_process FD`, started by a process pool.

It talks through the socket FD: it is told its job, loads the model, says what it is, and then answers tasks in their
order. It ends when the socket is closed or its parent is gone, also in the middle of a shard.
"""

import os
import select
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from anchorscope.errors import UserError
from anchorscope.execute.content_hash import Body
from anchorscope.execute.frames import Closed, Frames
from anchorscope.execute.starter import STARTER, serve_starts
from anchorscope.execute.warm_worker import WarmWorker
from anchorscope.execute.worker_job import ERROR, USER, WorkerJob, thread_settings

_LOOK_AT_PARENT = 2.0  # seconds between two looks
_PACKING = 2  # parts that are packed and sent at a time


def main(fd: int) -> None:
    """Serves until nobody is there any more, as a worker or, if it is told so, as a starter of others."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to all; the coordinator decides
    connection = socket.socket(fileno=fd)
    frames = Frames(connection, offers=True)
    try:
        header, _ = frames.receive()
        if header == STARTER:
            return serve_starts(connection, frames, main)
        _end_with_parent()
        job = WorkerJob.of(header["job"])
        os.environ.update(thread_settings(job.threads))  # before anything imports torch
        serve(frames, WarmWorker(job))
    except Closed:
        pass
    finally:
        sys.stderr.flush()
        os._exit(0)  # a shard that is still running has nobody to go to


def serve(frames: Frames, worker: WarmWorker) -> None:
    """Says what this worker is, and answers tasks until the connection is closed."""
    inbox: list[tuple[dict[str, Any], dict[str, Body]]] = []
    arrived = threading.Condition()
    threading.Thread(target=_read, args=(frames, inbox, arrived), daemon=True).start()
    try:
        told = worker.load()
    except UserError as error:
        return frames.send({"kind": "refused", "failure": USER, "text": str(error)})
    except Exception:
        return frames.send({"kind": "refused", "failure": ERROR, "text": traceback.format_exc()})
    frames.send({"kind": "joined", "hello": told})
    with ThreadPoolExecutor(_PACKING, "packing") as packing:
        while True:
            with arrived:
                arrived.wait_for(lambda: inbox)
                header, parts = inbox.pop(0)
            body = parts.pop("body")
            packing.submit(_answer, frames, worker, header["task"], worker.take(body, parts))


def _read(frames: Frames, inbox: list[Any], arrived: threading.Condition) -> None:
    """Takes in what comes; where nothing comes any more, this process has no use."""
    try:
        while True:
            message = frames.receive()
            with arrived:
                inbox.append(message)
                arrived.notify()
    except Closed:
        pass
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(0)


def _answer(frames: Frames, worker: WarmWorker, task: str, running: "Future[Any]") -> None:
    try:
        answer = worker.finish(running)
        header: Mapping[str, Any]
        if answer.kind:
            header = {"kind": "failed", "task": task, "failure": answer.kind, "text": answer.text}
        else:
            header = {"kind": "done", "task": task, "sha256": answer.sha256}
        frames.send(header, {"body": answer.pieces})
    except BaseException:  # nobody waits for this thread: an answer that cannot be sent ends the worker
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)


def _end_with_parent() -> None:
    """A thread that ends this process once its parent is gone: the socket tells the same, if nobody else holds it."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            select.select([], [], [], _LOOK_AT_PARENT)
        os._exit(0)

    threading.Thread(target=watch, daemon=True).start()


if __name__ == "__main__":
    main(int(sys.argv[1]))
