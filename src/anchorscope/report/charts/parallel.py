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

_CODE = "import sys; from anchorscope.report.charts.parallel import draw_share; draw_share(sys.argv[1])"


def save_all(figures: Sequence[Display], out: Path, progress: Progress) -> None:
    """Saves every figure into the folder."""
    hands = max(1, min(len(figures), _cores()))
    last_first = list(reversed(figures))  # the later ones have more panels, and here is no interpreter to start
    own, *handed = [last_first[first::hands] for first in range(hands)]
    with TemporaryDirectory(prefix="anchorscope-") as desk, ExitStack() as running:
        helpers = []
        for number, share in enumerate(handed):
            order = Path(desk) / f"{number}.pickle"
            order.write_bytes(pickle.dumps((share, out.resolve())))
            try:
                helpers.append((running.enter_context(_helper(order)), share))
            except OSError:  # no memory or no right to start another process
                own = [*own, *share]
        _save(own, out, progress)
        for helper, share in helpers:
            if helper.wait() == 0:
                progress.advance(len(share))
            else:
                _save(share, out, progress)


def draw_share(order: str) -> None:
    """What a helper does with its file."""
    share, out = pickle.loads(Path(order).read_bytes())
    for figure in share:
        figure.save(out)


def _cores() -> int:
    """How many cores this process may use; one, where no second interpreter can be started."""
    if not sys.executable:
        return 1
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _save(share: Sequence[Display], out: Path, progress: Progress) -> None:
    for figure in share:
        figure.save(out)
        progress.advance(1)


def _helper(order: Path) -> subprocess.Popen[bytes]:
    """A process that draws what a file holds, with the same modules at hand as here."""
    at_hand = {
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "PYTHONSAFEPATH": "1",
        "POLARS_MAX_THREADS": "1", "OMP_NUM_THREADS": "1",
    }  # fmt: skip
    silent = subprocess.DEVNULL  # what goes wrong is seen when it is drawn here
    return subprocess.Popen(
        [sys.executable, "-c", _CODE, str(order)],
        stdin=silent, stdout=silent, stderr=silent, env={**os.environ, **at_hand},
    )  # fmt: skip
