"""Figures are drawn by several processes at once: drawing one keeps a core busy for a second or two.

Each worker is a fresh interpreter that reads its figures from a file, draws them into the run folder and ends. Nothing
is forked, since a model with its threads may be in memory, and the user's own script is not run again, as a pool of
`multiprocessing` would. What a worker could not draw is drawn here, where an error can be seen.
"""

import os
import pickle
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

from anchorscope.progress import Progress
from anchorscope.report.charts.display import Display

_CODE = "import sys; from anchorscope.report.charts.parallel import draw_task; draw_task(sys.argv[1])"


def save_all(figures: Sequence[Display], out: Path, progress: Progress) -> None:
    """Saves every figure into the folder."""
    n_workers = max(1, min(len(figures), _cores()))
    last_first = list(reversed(figures))  # the later ones have more panels, and here is no interpreter to start
    own, *handed_over = [last_first[first::n_workers] for first in range(n_workers)]
    with TemporaryDirectory(prefix="anchorscope-") as folder, ExitStack() as running:
        workers = []
        for number, share in enumerate(handed_over):
            task = Path(folder) / f"{number}.pickle"
            task.write_bytes(pickle.dumps((share, out.resolve())))
            try:
                workers.append((running.enter_context(_worker(task)), share))
            except OSError:  # no memory or no right to start another process
                own = [*own, *share]
        _save(own, out, progress)
        for worker, share in workers:
            if worker.wait() == 0:
                progress.advance(len(share))
            else:
                _save(share, out, progress)


def draw_task(task: str) -> None:
    """What a worker does with its file."""
    share, out = pickle.loads(Path(task).read_bytes())
    for figure in share:
        figure.save(out)


def _cores() -> int:
    """How many cores this process may use: `OMP_NUM_THREADS` at most; one, where no second interpreter can start."""
    if not sys.executable:
        return 1
    there = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    asked = os.environ.get("OMP_NUM_THREADS", "")
    return min(there, int(asked)) if asked.isdigit() and int(asked) else there


def _save(share: Sequence[Display], out: Path, progress: Progress) -> None:
    for figure in share:
        figure.save(out)
        progress.advance(1)


def _worker(task: Path) -> subprocess.Popen[bytes]:
    """A process that draws what a file holds, with the same modules at hand as here."""
    environment = {
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "PYTHONSAFEPATH": "1",
        "POLARS_MAX_THREADS": "1", "OMP_NUM_THREADS": "1",
    }  # fmt: skip
    silent = subprocess.DEVNULL  # what goes wrong is seen when it is drawn here
    return subprocess.Popen(
        [sys.executable, "-c", _CODE, str(task)],
        stdin=silent, stdout=silent, stderr=silent, env={**os.environ, **environment},
    )  # fmt: skip
