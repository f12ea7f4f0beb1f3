"""Progress on a terminal: two bars, of the whole job and of what is being done; a plain line now and then elsewhere.

In a log or a pipe the same is told in lines: one when a part begins and ends, and one every few seconds in between.
"""

import time
from collections.abc import Callable, Sequence
from typing import final

from rich.progress import BarColumn, TaskID, TextColumn
from rich.progress import Progress as Bars

from anchorscope.progress import PlannedStep
from anchorscope.screen import messages
from anchorscope.screen.messages import duration, harmless, say
from anchorscope.screen.time_left import TimeLeft

_on_screen: list["TerminalProgress"] = []  # a bar hides the cursor, so an error has to find it and take it down
_LEAST_WIDTH = 60  # columns: with fewer there is no room for a bar beside the words


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
