"""Figures are drawn by several processes at once: drawing one keeps a core busy for a second or two.

Each worker is a fresh interpreter that is sent its figures, draws them into the folder of the results and ends. Nothing
is forked, since a model with its threads may be in memory, and the user's own script is not run again, as a pool of
`multiprocessing` would. What a worker could not draw is drawn here, where an error can be seen. A worker ends with the
process that started it, whatever that one dies of, and leaves no file of its own.
"""

import contextlib
import os
import pickle
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from anchorscope.progress import Progress
from anchorscope.report.charts.display import Display

# All of the task is read before the slow imports, for which nobody has to wait then. After it nothing comes but the end
# of the stream, when the other process closes it or dies: then this one ends at once.
_CODE = """
import os, sys, threading
size = int.from_bytes(sys.stdin.buffer.read(8), "big")
task = sys.stdin.buffer.read(size)
threading.Thread(target=lambda: (sys.stdin.buffer.raw.read(1), os._exit(1)), daemon=True).start()
from anchorscope.report.charts.parallel import draw_task
draw_task(task)
os._exit(0)
"""


def save_all(figures: Sequence[Display], out: Path, progress: Progress) -> None:
    """Saves every figure into the folder."""
    n_workers = max(1, min(len(figures), _cores()))
    last_first = list(reversed(figures))  # the later ones have more panels, and here is no interpreter to start
    own, *handed_over = [last_first[first::n_workers] for first in range(n_workers)]
    workers = []
    try:
        for share in handed_over:
            try:
                workers.append((_worker(share, out.resolve()), share))
            except OSError:  # no memory or no right to start another process
                own = [*own, *share]
        _save(own, out, progress)
        for worker, share in workers:
            if worker.wait() == 0:
                progress.advance(len(share))
            else:
                _save(share, out, progress)
    finally:
        for worker, _ in workers:
            _end(worker)


def draw_task(task: bytes) -> None:
    """What a worker does with what it was sent; a folder that has gone in the meantime is not made again."""
    share, out = pickle.loads(task)
    os.chdir(out)
    for figure in share:
        figure.save(Path("."))


def _cores() -> int:
    """How many cores this process may use: `OMP_NUM_THREADS` at most; one, where no second interpreter can start."""
    if not sys.executable:
        return 1
    there = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    asked = os.environ.get("OMP_NUM_THREADS", "")
    return min(there, int(asked)) if asked.isdecimal() and len(asked) < 10 and int(asked) else there


def _save(share: Sequence[Display], out: Path, progress: Progress) -> None:
    for figure in share:
        figure.save(out)
        progress.advance(1)


def _worker(share: Sequence[Display], out: Path) -> "subprocess.Popen[bytes]":
    """A process that draws figures, with the same modules at hand as here."""
    environment = {
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        "PYTHONSAFEPATH": "1",
        "POLARS_MAX_THREADS": "1",
        "OMP_NUM_THREADS": "1",
        "MPLBACKEND": "agg",
    }
    silent = subprocess.DEVNULL  # what goes wrong is seen when it is drawn here
    worker = subprocess.Popen(
        [sys.executable, "-c", _CODE],
        stdin=subprocess.PIPE,
        stdout=silent,
        stderr=silent,
        env={**os.environ, **environment},
    )
    task = pickle.dumps((share, out))
    assert worker.stdin is not None
    try:
        worker.stdin.write(len(task).to_bytes(8, "big") + task)
        worker.stdin.flush()  # it stays open: that is how the worker knows that somebody waits for it
    except BaseException:
        _end(worker)
        raise
    return worker


def _end(worker: "subprocess.Popen[bytes]") -> None:
    """Ends a worker that is still at work, since nobody waits for it any more."""
    worker.kill()
    with contextlib.suppress(OSError):
        worker.communicate()
