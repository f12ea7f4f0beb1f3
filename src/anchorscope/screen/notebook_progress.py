"""Progress in a notebook: one line with a bar, drawn anew in its place, and gone when the job is over."""

import html
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, final

from anchorscope.progress import PlannedStep
from anchorscope.screen.messages import duration
from anchorscope.screen.time_left import TimeLeft

_LINE = (
    '<div style="font:13px system-ui,sans-serif;display:flex;gap:.8em;align-items:center;flex-wrap:wrap">'
    "<span>{step}</span>{bar}<span>{said}</span></div>"
)


def in_notebook() -> bool:
    """Whether this interpreter is a notebook's kernel."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return getattr(shell, "kernel", None) is not None


@final
class NotebookProgress:
    """One line in the cell's output."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, every: float = 0.5) -> None:
        self._clock, self._every = clock, every
        self._time = TimeLeft(clock)
        self._line: Any = None  # the handle of what stands in the output
        self._line_now = ""
        self._title, self._total, self._done, self._began, self._drawn = "", 0, 0, 0.0, -every

    def plan(self, steps: Sequence[PlannedStep]) -> None:
        self._time.plan(steps)

    def begin(self, step: str) -> None:
        self._time.begin(step)

    def done(self, step: str) -> None:
        self._time.done(step)
        if self._time.is_over:
            self._show(f"done in {duration(self._time.seconds)}", "", "")

    def start(self, title: str, total: int) -> None:
        self._title, self._total, self._done, self._began = title, total, 0, self._clock()
        self._draw()

    def advance(self, units: int) -> None:
        self._done += units
        if self._total:
            spent = self._clock() - self._began
            self._time.within(self._done / self._total, spent / max(self._done, 1) * (self._total - self._done))
        if self._clock() - self._drawn >= self._every:
            self._draw()

    def finish(self) -> None:
        self._draw()

    def note(self, text: str) -> None:
        sys.stdout.write(f"{text}\n")

    def _draw(self) -> None:
        self._drawn = self._clock()
        step = ": ".join(filter(None, (self._time.step(), self._title)))
        bar = f'<progress max="{max(self._total, 1)}" value="{self._done}"></progress>'
        left = self._time.left()
        self._show(step, bar, f"{self._done}/{self._total}" + (f" · {left}" if left else ""))

    def _show(self, step: str, bar: str, said: str) -> None:
        from IPython.display import HTML, DisplayHandle  # a kernel has it; nothing else here needs it

        self._line_now = _LINE.format(step=html.escape(step), bar=bar, said=html.escape(said))
        line = HTML(self._line_now)
        if self._line is None:
            self._line = DisplayHandle()
            self._line.display(line)
        else:
            self._line.update(line)
