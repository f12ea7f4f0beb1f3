"""How far a job is, shown on a terminal, in a notebook or in a log.

On a terminal two bars, of the whole job and of what is being done; in a log or a pipe a line when a part begins and
ends, and one every few seconds in between; in a notebook one line with a bar, redrawn in place, and gone when the job
is over.
"""

import html
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, Literal, final

from rich.progress import BarColumn, TaskID, TextColumn
from rich.progress import Progress as Bars

from anchorscope.progress import PlannedStep, Progress, Silent
from anchorscope.screen import messages
from anchorscope.screen.messages import duration, harmless, say

_on_screen: list["TerminalProgress"] = []  # a bar hides the cursor, so an error has to find it and take it down
_LEAST_WIDTH = 60  # columns: with fewer there is no room for a bar beside the words
_ENOUGH = 0.05  # of a part: what it took up to there says how long all of it takes
_LINE = (
    '<div style="font:13px system-ui,sans-serif;display:flex;gap:.8em;align-items:center;flex-wrap:wrap">'
    "<span>{step}</span>{bar}<span>{said}</span></div>"
)


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


def in_notebook() -> bool:
    """Whether this interpreter is a notebook's kernel."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return getattr(shell, "kernel", None) is not None


def clear_screen() -> None:
    """Takes down whatever bars there are."""
    while _on_screen:
        _on_screen[-1].close()


@final
class TerminalProgress:
    """Bars on a terminal, plain lines elsewhere."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, every: float = 5.0) -> None:
        self._clock, self._every = clock, every
        self._time = TimeLeft(clock)
        self._bars: Bars | None = None
        self._whole: TaskID | None = None
        self._part: TaskID | None = None
        self._title, self._total, self._done, self._began, self._spoke = "", 0, 0, 0.0, 0.0

    # The whole job.

    def plan(self, steps: Sequence[PlannedStep]) -> None:
        self._time.plan(steps)

    def begin(self, step: str) -> None:
        self._time.begin(step)

    def done(self, step: str) -> None:
        self._time.done(step)
        self._tell_whole()
        if self._time.is_over:
            self.close()

    # One part of it.

    def start(self, title: str, total: int) -> None:
        self._end_part()
        self._title, self._total, self._done = harmless(title), total, 0
        self._began = self._spoke = self._clock()
        if not messages.console.is_terminal:
            step = self._time.step()
            return say(f"{step}: {title}  0/{total}" if step else f"{title}  0/{total}")
        bars = self._shown()
        self._tell_whole()
        self._part = bars.add_task(self._title, total=total, said=f"0/{total}")

    def advance(self, units: int) -> None:
        self._done += units
        now = self._clock()
        if self._total:
            self._time.within(self._done / self._total, self._rest(now))
        if self._bars is not None and self._part is not None:
            self._bars.update(self._part, advance=units, said=self._said(now))
            if now - self._spoke >= 1:
                self._spoke = now
                self._tell_whole()
        elif now - self._spoke >= self._every and 0 < self._done < self._total:
            self._spoke = now
            whole = self._time.left()
            say(f"{self._line()}  about {duration(self._rest(now))} left" + (f"; whole run: {whole}" if whole else ""))

    def finish(self) -> None:
        say(f"{self._line()}  in {duration(self._clock() - self._began)}")
        self._end_part()

    def note(self, text: str) -> None:
        say(text)

    def close(self) -> None:
        """Take the bars off the screen, whole or not."""
        if self._bars is not None:
            self._bars.stop()
            self._bars = self._whole = self._part = None
            _on_screen.remove(self)

    def _end_part(self) -> None:
        """The part's bar goes; that of the whole job stays until its last step."""
        if self._bars is None:
            return
        if self._part is not None:
            self._bars.refresh()  # a short part would go before it was ever seen
            self._bars.remove_task(self._part)
            self._part = None
        if not self._time.is_planned or self._time.is_over:
            self.close()

    def _shown(self) -> Bars:
        """The bars, on the screen."""
        if self._bars is None:
            bar = [BarColumn(bar_width=24)] if messages.console.width >= _LEAST_WIDTH else []
            name, said = (TextColumn(f"{{task.{one}}}", markup=False) for one in ("description", "fields[said]"))
            self._bars = Bars(name, *bar, said, console=messages.console, transient=True)
            self._bars.start()
            _on_screen.append(self)
        return self._bars

    def _tell_whole(self) -> None:
        if self._bars is None or not self._time.step():
            return
        if self._whole is None:
            self._whole = self._bars.add_task("", total=1, said="")
        text = self._time.left()
        share = self._time.share
        self._bars.update(self._whole, description=self._time.step(), completed=share, said=text)

    def _said(self, now: float) -> str:
        rest = f"  {duration(self._rest(now))} left" if 0 < self._done < self._total else ""
        return f"{self._done}/{self._total}{rest}"

    def _rest(self, now: float) -> float:
        return (now - self._began) / max(self._done, 1) * (self._total - self._done)

    def _line(self) -> str:
        percent = 100 * self._done // self._total if self._total else 100
        return f"{self._title}  {self._done}/{self._total}  {percent} %"


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


class TimeLeft:
    """Which step a job is at, and how long it still takes: `step 3 of 9`, and an estimate once one can be made.

    What steps took says how fast this machine is at each kind of step; what remains is its usual work at that speed.
    Until a step of a kind was measured, nothing is known of its kind, and that is said. Where some of the remaining
    steps have no usual cost, the estimate is a lower bound, and that is said too.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._steps: dict[str, PlannedStep] = {}
        self._seconds: dict[str, float] = {}  # of steps that are there
        self._open: list[list[float | str]] = []  # [step, own seconds so far]: those being made, outermost first
        self._tick = 0.0
        self._to_make: set[str] = set()
        self._made: set[str] = set()
        self._fraction = self._rest = 0.0
        self._began = clock()

    def plan(self, steps: Sequence[PlannedStep]) -> None:
        """Steps that the job has; a later plan knows better, and what was made since the first counts on."""
        self._steps = {step.name: step for step in steps}
        self._seconds = {step.name: step.seconds for step in steps if step.seconds is not None}
        self._to_make = {name for name in self._steps if name not in self._seconds} | self._made

    def begin(self, step: str) -> None:
        """A step is being made."""
        self._count()
        if step in self._seconds:  # one that was damaged, and is made again
            self._seconds.pop(step)
            self._made.discard(step)
            self._to_make.add(step)
        self._open.append([step, 0.0])
        self._fraction = self._rest = 0.0

    def done(self, step: str) -> None:
        """A step was made; one that was not begun came along with another."""
        self._count()
        own = 0.0
        if self._open and self._open[-1][0] == step:
            own = float(self._open.pop()[1])
        if step in self._to_make:
            self._made.add(step)
            self._seconds[step] = own
        self._fraction = self._rest = 0.0

    def within(self, fraction: float, rest: float = 0.0) -> None:
        """How far the present part of the present step is, and the seconds that it still takes at its own speed."""
        self._fraction, self._rest = fraction, rest

    def _count(self) -> None:
        now = self._clock()
        if self._open:
            self._open[-1][1] = float(self._open[-1][1]) + now - self._tick
        self._tick = now

    @property
    def is_planned(self) -> bool:
        """Whether the steps are known."""
        return bool(self._steps)

    @property
    def is_over(self) -> bool:
        """Whether every planned step is there."""
        return self.is_planned and self._to_make == self._made

    @property
    def share(self) -> float:
        """The share of the job's steps that are made."""
        return len(self._made) / len(self._to_make) if self._to_make else 1.0

    @property
    def seconds(self) -> float:
        """Since it began."""
        return self._clock() - self._began

    def step(self) -> str:
        """`step 3 of 9`; nothing where no steps are known, or all are made."""
        made, total = len(self._made), len(self._to_make)
        return f"step {made + 1} of {total}" if made < total else ""

    def left(self) -> str:
        """`about 2 min left`, `at least 2 min left`, or that it is not known."""
        if not self.is_planned or self.is_over:
            return ""
        self._count()
        speeds = self._speeds()
        remaining = [step for name, step in self._steps.items() if name not in self._seconds]
        costed = [step for step in remaining if step.cost is not None]
        if any(step.kind not in speeds for step in costed if step.cost):
            return "time left unknown"
        spent = {str(name): float(own) for name, own in self._open}
        seconds = sum(
            max((step.cost or 0) * speeds.get(step.kind, 0.0) - spent.get(step.name, 0), 0) for step in costed
        )
        seconds = max(seconds, self._rest)
        sure = len(costed) == len(remaining)
        if seconds < 1:
            return "almost done" if sure else "time left unknown"
        return f"{'about' if sure else 'at least'} {duration(seconds)} left"

    def _speeds(self) -> dict[str, float]:
        """Seconds per unit of usual cost, for every kind of which something was measured."""
        spent: dict[str, float] = {}
        usual: dict[str, float] = {}
        for name, seconds in self._seconds.items():
            self._add(spent, usual, self._steps[name], seconds, 1.0)
        if self._open and self._fraction >= _ENOUGH:
            name, own = str(self._open[-1][0]), float(self._open[-1][1])
            # A step may have several parts, so that half of a part is worth less than any whole step.
            if name in self._steps and self._steps[name].kind not in usual:
                self._add(spent, usual, self._steps[name], own, self._fraction)
        return {kind: spent[kind] / usual[kind] for kind in usual if usual[kind] > 0}

    def _add(
        self, spent: dict[str, float], usual: dict[str, float], step: PlannedStep, seconds: float, part: float
    ) -> None:
        if step.cost:
            spent[step.kind] = spent.get(step.kind, 0.0) + seconds
            usual[step.kind] = usual.get(step.kind, 0.0) + part * step.cost
