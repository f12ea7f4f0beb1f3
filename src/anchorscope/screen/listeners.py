"""Who listens to a job that is called from Python: a notebook's line, a terminal's bars, or nobody."""

import sys
from typing import Literal

from anchorscope.progress import Progress, Silent
from anchorscope.screen.notebook_progress import NotebookProgress, in_notebook
from anchorscope.screen.terminal_progress import TerminalProgress


def chosen_listener(progress: Progress | Literal["auto"] | None) -> Progress:
    """`auto`: a line in a notebook, bars in a terminal, nothing in a script whose output goes elsewhere; None: nothing.

    Any object with the methods of `anchorscope.progress.Progress` is used as it is.
    """
    if progress is None:
        return Silent()
    if progress != "auto":
        return progress
    if in_notebook():
        return NotebookProgress()
    return TerminalProgress() if sys.stderr.isatty() else Silent()
