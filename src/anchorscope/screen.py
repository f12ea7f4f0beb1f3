"""What a person sees in a terminal or a log: messages, progress, and the answer card."""

import sys
import textwrap
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal

from rich.console import Console
from rich.progress import BarColumn, TextColumn
from rich.progress import Progress as Bars
from rich.text import Text

from anchorscope.progress import PlannedStep, Progress, Silent

if TYPE_CHECKING:
    from anchorscope.report.answer_card import AnswerCard

console = Console(stderr=True, force_jupyter=False)
"""For messages; standard output is kept for results."""
_JOINERS = "\u200c\u200d"  # they make letters of some scripts, and steer nothing
_bars: list[
    Bars
] = []  # on the screen: a bar hides the cursor, so an error has to take it down
_LEAST_WIDTH = 60  # columns: with fewer there's no room for a bar beside the words
_WIDEST_CARD = 100  # columns
_EVERY = 5.0  # seconds between lines where there is no bar
_TRUST_STYLES = {"yes": "green", "partly": "yellow", "no": "red"}


def say(text: str, quiet: bool = False) -> None:
    """One message on standard error, neither wrapped nor read as markup, so that paths survive."""
    if not quiet:
        lines = "\n".join(map(harmless, text.split("\n")))
        console.print(lines, markup=False, highlight=False, soft_wrap=True)


def harmless(text: str | None) -> str:
    """The text with a visible sign for every control character, equally long."""
    return "".join(map(_sign, text or ""))


def _sign(letter: str) -> str:
    if letter.isprintable() or letter in _JOINERS:
        return letter
    if letter.isspace():
        return " "
    return chr(0x2400 + ord(letter)) if letter < " " else "\ufffd"


def duration(seconds: float) -> str:
    """`25 s`, `3 min`, `2 h 10 min`."""
    if seconds < 100:
        return f"{max(1, round(seconds))} s"
    minutes = round(seconds / 60)
    return (
        f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60} min"
    )


@contextmanager
def showing(progress: Progress | Literal["auto"] | None) -> Iterator[Progress]:
    """The listener to report to; `auto` is a bar in a terminal, lines in a notebook, else nothing."""
    if progress == "auto":
        progress = ScreenProgress() if _in_notebook() or sys.stderr.isatty() else None
    try:
        yield progress or Silent()
    finally:
        clear_screen()  # a bar hides the cursor


def _in_notebook() -> bool:
    ipython = sys.modules.get("IPython")
    return (
        ipython is not None
        and getattr(ipython.get_ipython(), "kernel", None) is not None
    )


def clear_screen() -> None:
    """Removes a remaining bar."""
    while _bars:
        _bars.pop().stop()


class ScreenProgress(Progress):
    """A bar on a terminal; elsewhere a line when a part begins and ends, and every few seconds.

    How long a job still takes comes from the speed of its earlier steps of each kind.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._since = clock, clock()
        self._steps: dict[str, PlannedStep] = {}
        self._seconds: dict[str, float] = {}  # of steps that exist
        self._n_made = 0
        self._dataset = ""  # that of the current step, where there are several
        self.seconds_of_part = 0.0  # that the current part of the current step still takes, at its own speed
        self._title, self._total, self._done, self._began, self._shown = (
            "",
            0,
            0,
            0.0,
            0.0,
        )

    def plan(self, steps: Sequence[PlannedStep]) -> None:
        """The job's steps; a later plan replaces this one, and what was made since the first still counts.

        An empty plan ends the job: what comes has neither a number nor a dataset.
        """
        self._dataset = ""
        self._steps = {step.name: step for step in steps}
        self._seconds = {
            step.name: step.seconds for step in steps if step.seconds is not None
        }

    def begin(self, step: str) -> None:
        self.seconds_of_part = 0.0
        if step in self._steps:
            datasets = {name.rpartition("/")[0] for name in self._steps} - {""}
            self._dataset = step.rpartition("/")[0] if len(datasets) > 1 else ""
        self._seconds.pop(step, None)  # it was damaged, and is made again

    def done(self, step: str) -> None:
        """A step took the time since the one before it was done; one that wasn't begun came with another."""
        now, self.seconds_of_part = self._clock(), 0.0
        if step in self._steps and step not in self._seconds:
            self._n_made += 1
            self._seconds[step] = now - self._since
        self._since = now

    def _remaining(self) -> list[PlannedStep]:
        return [step for name, step in self._steps.items() if name not in self._seconds]

    def step(self) -> str:
        """`step 3 of 9`, or `step 3 of 9 (popqa)` of several datasets; empty if none are planned, or all are made."""
        remaining = len(self._remaining())
        of_dataset = f" ({self._dataset})" if self._dataset else ""
        return (
            f"step {self._n_made + 1} of {self._n_made + remaining}{of_dataset}"
            if remaining
            else ""
        )

    def left(self) -> str:
        """`about 2 min left`; `at least` if some steps have no usual cost; empty while a speed is unknown."""
        remaining = self._remaining()
        if not remaining:
            return ""
        made = [self._steps[name] for name in self._seconds if self._steps[name].cost]
        costed, seconds = (
            [step for step in remaining if step.cost is not None],
            self._since - self._clock(),
        )
        for kind in {step.kind for step in costed if step.cost}:
            usual = sum(step.cost or 0.0 for step in made if step.kind == kind)
            if not usual:
                return ""
            speed = (
                sum(self._seconds[step.name] for step in made if step.kind == kind)
                / usual
            )
            seconds += speed * sum(
                step.cost or 0.0 for step in costed if step.kind == kind
            )
        seconds = max(seconds, self.seconds_of_part)
        if seconds < 1:
            return ""
        return f"{'about' if len(costed) == len(remaining) else 'at least'} {duration(seconds)} left"

    def start(self, title: str, total: int) -> None:
        clear_screen()
        self._title, self._total, self._done = harmless(title), total, 0
        self._began = self._shown = self._clock()
        step = self.step()
        line = f"{step}: {self._title}" if step else self._title
        # a notebook's kernel claims to be a terminal
        if _in_notebook() or not console.is_terminal:
            return say(f"{line}  0/{total}")
        bar = [BarColumn(bar_width=24)] if console.width >= _LEAST_WIDTH else []
        name, rest = (
            TextColumn(f"{{task.{field}}}", markup=False)
            for field in ("description", "fields[rest]")
        )
        bars = Bars(name, *bar, rest, console=console, transient=True)
        bars.add_task(line, total=total, rest=f"0/{total}")
        bars.start()
        _bars.append(bars)

    def advance(self, units: int) -> None:
        self._done += units
        now = self._clock()
        seconds = self.seconds_of_part = (
            (now - self._began) / max(self._done, 1) * (self._total - self._done)
        )
        is_due = now - self._shown >= _EVERY and 0 < self._done < self._total
        if not _bars and not is_due:
            return
        whole = self.left()
        rest = (
            f"  about {duration(seconds)} left" if 0 < self._done < self._total else ""
        )
        rest += f"; whole run: {whole}" if whole else ""
        if _bars:
            _bars[-1].update(
                _bars[-1].task_ids[0],
                advance=units,
                rest=f"{self._done}/{self._total}{rest}",
            )
        else:
            self._shown = now
            say(self._line() + rest)

    def finish(self) -> None:
        for bars in _bars:
            bars.refresh()  # a short part would go before it was ever seen
        clear_screen()
        say(f"{self._line()}  in {duration(self._clock() - self._began)}")

    def note(self, text: str) -> None:
        say(text)

    def _line(self) -> str:
        percent = 100 * self._done // self._total if self._total else 100
        dataset = f"{self._dataset}: " if self._dataset else ""
        return f"{dataset}{self._title}  {self._done}/{self._total}  {percent}%"


def card_text(card: "AnswerCard", width: int) -> Text:
    """The card as lines of at most `width` columns; a command has its own line and is never wrapped."""
    width, lines = max(min(width, _WIDEST_CARD), 20), list[Text]()

    def add(text: str, style: str = "", first: str = "", indent: str = "    ") -> None:
        wrapper = textwrap.TextWrapper(
            width, first, indent, break_on_hyphens=False, break_long_words=False
        )
        lines.extend(Text(line, style) for line in wrapper.wrap(harmless(text)) or [""])

    add(card.model, "dim", indent="")
    add(card.sentence, "bold", indent="")
    if card.trust is not None:
        add(card.trust.words(), _TRUST_STYLES[card.trust.verdict])
    if card.bars:
        add("")
    for bar in card.bars:
        add(f"{bar.label}: {bar.text}", "", "  ")
    if card.warnings:
        lines += [Text(), Text("Before you believe it", "bold")]
    for warning in card.warnings:
        add(warning, "", "  - ")
    if card.next_steps:
        lines += [Text(), Text("Next steps", "bold")]
    for step in card.next_steps:
        add(step.why, "", "  - ")
        if step.command:
            lines.append(Text(f"      {harmless(step.command)}"))
    return Text("\n").join(lines)
