"""Everything about talking to a person: messages, progress with an estimate, mistakes in one line, JSON for programs.

Results go to standard output, everything else to standard error, so that `anchorscope … --json | jq` always works.
On a terminal a step shows a bar; elsewhere (CI, a log file) it shows a plain line every few seconds, with the same
estimate of the time left.
"""

import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, final

from rich.console import Console
from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bars

from anchorscope.errors import UserError
from anchorscope.progress import Progress, Silent

console = Console(stderr=True)
"""For people; standard output is kept for results."""
STOPPED = "stopped; the same command goes on where it stopped"
_JOINERS = "\u200c\u200d"  # they make letters of some scripts, and steer nothing
_on_screen: list["TerminalProgress"] = []  # a bar hides the cursor, so an error has to find it and take it down


def say(text: str, quiet: bool = False) -> None:
    """One message on standard error; never wrapped and never read as markup, so that paths survive."""
    if not quiet:
        lines = "\n".join(map(harmless, text.split("\n")))
        console.print(lines, markup=False, highlight=False, soft_wrap=True)


def harmless(text: str | None) -> str:
    """The text with a sign for every letter that would steer a terminal; as long as before, so that places hold."""
    return "".join(map(_sign, text or ""))


def _sign(letter: str) -> str:
    if letter.isprintable() or letter in _JOINERS:
        return letter
    if letter.isspace():
        return " "
    return chr(0x2400 + ord(letter)) if letter < " " else "\ufffd"


def emit_json(record: Mapping[str, Any]) -> None:
    """The one JSON object on standard output. JSON has no NaN: a number that does not exist becomes null."""
    text = json.dumps(record, default=lambda value: value.tolist() if hasattr(value, "tolist") else str(value))
    sys.stdout.write(json.dumps(json.loads(text, parse_constant=lambda _: None)) + "\n")
    sys.stdout.flush()


def listener(quiet: bool) -> Progress:
    """What a command passes to its long steps."""
    return Silent() if quiet else TerminalProgress()


@contextmanager
def user_errors(stopped: str = STOPPED) -> Iterator[None]:
    """A mistake of the user becomes one line and exit code 2, Ctrl-C one line and 130; our own mistakes pass."""
    try:
        try:
            yield
        finally:
            while _on_screen:
                _on_screen[-1].close()
    except UserError as error:
        say("error: " + " ".join(str(error).split()))
        raise SystemExit(2) from None
    except KeyboardInterrupt:
        say(stopped)
        raise SystemExit(130) from None


def duration(seconds: float) -> str:
    """A span of time as a person says it: `25 s`, `3 min`, `2 h 10 min`."""
    if seconds < 100:
        return f"{max(1, round(seconds))} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60} min"


@final
class TerminalProgress:
    """A bar on a terminal, plain lines elsewhere."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, every: float = 5.0) -> None:
        self._clock, self._every = clock, every
        self._bars: Bars | None = None
        self._title, self._total, self._done, self._began, self._spoke = "", 0, 0, 0.0, 0.0

    def start(self, title: str, total: int) -> None:
        self.close()
        self._title, self._total, self._done = title, total, 0
        self._began = self._spoke = self._clock()
        if not console.is_terminal:
            return say(f"{title}  0/{total}")
        percent = TextColumn("{task.completed}/{task.total}  {task.percentage:.0f} %")
        name, times = TextColumn("{task.description}", markup=False), (TimeElapsedColumn(), TimeRemainingColumn())
        self._bars = Bars(name, BarColumn(), percent, times[0], "elapsed", times[1], "left", console=console)
        self._bars.add_task(title, total=total)
        self._bars.start()
        _on_screen.append(self)

    def advance(self, units: int) -> None:
        self._done += units
        if self._bars is not None:
            self._bars.advance(self._bars.task_ids[0], units)
        elif (now := self._clock()) - self._spoke >= self._every and 0 < self._done < self._total:
            self._spoke = now
            left = (now - self._began) / self._done * (self._total - self._done)
            say(f"{self._line()}  about {duration(left)} left")

    def finish(self) -> None:
        if self._bars is None:
            say(f"{self._line()}  in {duration(self._clock() - self._began)}")
        self.close()

    def note(self, text: str) -> None:
        say(text)

    def close(self) -> None:
        """Take the bar off the screen, whole or not."""
        if self._bars is not None:
            self._bars.stop()
            self._bars = None
            _on_screen.remove(self)

    def _line(self) -> str:
        percent = 100 * self._done // self._total if self._total else 100
        return f"{self._title}  {self._done}/{self._total}  {percent} %"
