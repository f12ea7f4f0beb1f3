"""How far a job is, and how long it still takes: `step 3 of 9`, and an estimate as soon as one can be made.

What steps took says how fast this machine is at each kind of step; what remains is its usual work at that speed. Until
a step of a kind was measured, nothing is known of its kind, and that is said. Where some of the remaining steps have no
usual cost, the estimate is a lower bound, and that is said too.
"""

import time
from collections.abc import Callable, Sequence

from anchorscope.progress import PlannedStep
from anchorscope.screen.messages import duration

_ENOUGH = 0.05  # of a part: what it took up to there says how long all of it takes


class TimeLeft:
    """One job, as its listener hears of it."""

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
        remaining = [one for name, one in self._steps.items() if name not in self._seconds]
        known = [one for one in remaining if one.cost is not None]
        if any(one.kind not in speeds for one in known if one.cost):
            return "time left unknown"
        spent = {str(name): float(own) for name, own in self._open}
        seconds = sum(max((one.cost or 0) * speeds.get(one.kind, 0.0) - spent.get(one.name, 0), 0) for one in known)
        seconds = max(seconds, self._rest)
        sure = len(known) == len(remaining)
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
