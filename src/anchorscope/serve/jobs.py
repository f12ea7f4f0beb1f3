"""What a request wants of the model: answers scored, a piece of model work, or an answer written.

A job is made in the event loop and done in the model thread. Results go back through the loop; nothing is given to a
job whose request has ended.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from anchorscope.detectors.asking import Wish, Written
from anchorscope.detectors.trained import Score
from anchorscope.items import Item
from anchorscope.serve.errors import ServiceError


@dataclass(eq=False, kw_only=True)
class Job:
    """One request's work."""

    tokens: int
    """What it takes of the queue's room in all."""
    since: float = 0.0
    """When the queue took it in, by `time.monotonic`."""
    held: int = 0
    """What it holds of it now; the queue's own account."""
    loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)
    done: "asyncio.Future[Any]" = field(init=False)
    is_over: bool = False
    """Whether nobody waits any more: the client has gone, or the deadline has passed."""

    def __post_init__(self) -> None:
        self.done = self.loop.create_future()

    def give(self, result: Any) -> None:
        """The result, from whichever thread."""
        self._in_loop(lambda: None if self.done.done() else self.done.set_result(result))

    def fail(self, error: BaseException) -> None:
        """Why there is none."""
        self._in_loop(lambda: None if self.done.done() else self.done.set_exception(error))

    def forget(self) -> None:
        """Nobody asks for the result any more; called in the loop."""
        if not self.done.cancel() and not self.done.cancelled():
            self.done.exception()  # looked at, or asyncio would tell it on the terminal

    def _in_loop(self, call: Callable[[], None]) -> None:
        if self.loop.is_closed():
            return
        self.loop.call_soon_threadsafe(call)


@dataclass(eq=False, kw_only=True)
class WorkJob(Job):
    """Any other work on the model."""

    work: Callable[[], Any]


@dataclass(eq=False, kw_only=True)
class ScoreJob(Job):
    """Answers to score, with one detector and at one risk."""

    detector: str
    risk: float | None
    items: Sequence[Item]
    costs: Sequence[int]
    """Tokens of each item."""
    found: "list[Score | ServiceError | None]" = field(init=False)
    taken: int = 0
    """How many items were handed out, in their order."""
    finished: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        self.found = [None] * len(self.items)

    @property
    def kind(self) -> tuple[str, float | None]:
        """Items of jobs of one kind can be run together."""
        return self.detector, self.risk

    def put(self, place: int, result: Score | ServiceError) -> None:
        """One item's result; with the last one the job is done."""
        self.found[place] = result
        self.finished += 1
        if self.finished == len(self.items):
            self.give(self.found)


@dataclass(eq=False, kw_only=True)
class AskJob(Job):
    """An answer that the model writes, and scores where a question was asked."""

    wish: Wish
    detector: str | None
    hear: Callable[[Written], None]
    """Called in the loop with every piece."""

    def tell(self, written: Written) -> None:
        """A piece, from the model thread."""
        self._in_loop(lambda: self.hear(written))


@dataclass(frozen=True)
class Entry:
    """One item of a job."""

    job: ScoreJob
    place: int

    @property
    def item(self) -> Item:
        """What is scored."""
        return self.job.items[self.place]

    @property
    def tokens(self) -> int:
        """What it takes."""
        return self.job.costs[self.place]
