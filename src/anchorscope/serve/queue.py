"""Where jobs wait for the model: bounded in tokens and in time, batches formed across requests.

Scores and other work are taken in turn, one item of every request before the second of any: a request of one item does
not wait for the two hundred of another. A batch is as long as fits into a part of the time that requests may wait. Who
has waited too long when a batch is full is refused and told when to come again: so an overload is over soon after it
ends. The room that a job takes is given back item by item, and whole when its request ends, however it ends.
"""

import math
import threading
import time
from collections import deque
from collections.abc import Sequence

from anchorscope.serve.errors import queue_full, too_large
from anchorscope.serve.jobs import AskJob, Entry, Job, ScoreJob, WorkJob

_SLOWEST, _LONGEST_WAIT = 1.0, 60.0
_HALF_LIFE = 10.0  # seconds of work after which what was measured counts half
_BATCH_SHARE = 1 / 3  # of the time that requests may wait: what one batch may take
_FEW_ITEMS = 8  # that a batch may have however long it takes: smaller ones would waste most of a slow model's time


class Rate:
    """Tokens per second of the model, over its last seconds of work."""

    def __init__(self) -> None:
        self._tokens = self._seconds = 0.0

    def add(self, tokens: int, seconds: float) -> None:
        """What was just done; of a stall no more is remembered than of other work."""
        part = min(1.0, _HALF_LIFE / seconds)
        kept = 0.5 ** (part * seconds / _HALF_LIFE)
        self._tokens = self._tokens * kept + part * tokens
        self._seconds = self._seconds * kept + part * seconds

    @property
    def per_second(self) -> float:
        """Tokens; as many as you like where nothing is known yet."""
        return max(self._tokens / self._seconds, _SLOWEST) if self._seconds > 0 else math.inf

    def wait(self, tokens: int) -> float:
        """Seconds that so many tokens will take, at most a minute."""
        return min(_LONGEST_WAIT, tokens / self.per_second)


class TokenQueue:
    """Jobs that wait; safe in threads."""

    def __init__(self, most_tokens: int, most_seconds: float = math.inf) -> None:
        self.most, self.most_seconds = most_tokens, most_seconds
        self.rate = Rate()
        """Of scores."""
        self._changed = threading.Condition()
        self._turns: deque[ScoreJob | WorkJob] = deque()
        self._asks: deque[AskJob] = deque()
        self._tokens = 0
        self._closed = False

    @property
    def tokens(self) -> int:
        """What waits and what is under way."""
        return self._tokens

    def put(self, job: Job) -> None:
        """Takes a job in, or refuses it with the seconds after which there will be room."""
        with self._changed:
            if job.tokens > self.most:
                raise too_large(job.tokens, self.most)
            too_many = self._tokens + job.tokens - self.most
            if too_many > 0:
                raise queue_full(self.rate.wait(too_many))
            job.held, job.since = job.tokens, time.monotonic()
            self._tokens += job.held
            if isinstance(job, AskJob):
                self._asks.append(job)
            elif isinstance(job, ScoreJob | WorkJob):
                self._turns.append(job)
            self._changed.notify()

    def _refuse_late(self, waiting: Sequence[Job]) -> None:
        """Those of whom nothing was begun, although they have waited as long as they may."""
        before = time.monotonic() - self.most_seconds
        late = [job for job in waiting if job.since < before and not (isinstance(job, ScoreJob) and job.taken)]
        for job in late:
            job.is_over = True
            job.fail(queue_full(self.rate.wait(self._tokens)))

    def release(self, job: Job, tokens: int | None = None) -> None:
        """Gives back the room of a part of a job, or of all that is left of it."""
        with self._changed:
            given = job.held if tokens is None else min(tokens, job.held)
            job.held -= given
            self._tokens -= given

    def end(self, job: Job) -> None:
        """Nobody waits for the job any more: what of it was not begun never will be."""
        with self._changed:
            job.is_over = True
            self._changed.notify()  # an answer under way is dropped
        self.release(job)

    def wait(self, seconds: float | None = None) -> bool:
        """Until there is something to do; False where the queue was closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._turns or self._asks, seconds)
            return not self._closed

    def close(self) -> None:
        """Whoever waits for work may go."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def take_asks(self) -> list[AskJob]:
        """All answers that are wanted and that somebody still waits for."""
        with self._changed:
            found = [job for job in self._asks if not job.is_over]
            self._asks.clear()
            return found

    def take_all(self) -> list[Job]:
        """Everything that waits; nothing is left."""
        with self._changed:
            found: list[Job] = [*self._turns, *self._asks]
            self._turns.clear()
            self._asks.clear()
            return found

    def put_back(self, jobs: list[AskJob]) -> None:
        """Answers for which there was no room yet; they stay first, as long as they may wait."""
        with self._changed:
            self._refuse_late(jobs)
            self._asks.extendleft(job for job in reversed(jobs) if not job.is_over)

    def take(self, batch_tokens: int) -> WorkJob | list[Entry] | None:
        """What is next: one piece of work, or a batch of items for one detector; None where nothing waits."""
        with self._changed:
            found = self._next(batch_tokens)
            self._refuse_late(self._turns)
            return found

    def _next(self, batch_tokens: int) -> WorkJob | list[Entry] | None:
        batch: list[Entry] = []
        left, waiting = batch_tokens, len(self._turns)
        soon = batch_tokens - self.rate.per_second * self.most_seconds * _BATCH_SHARE  # then it has taken long enough
        kind: tuple[str, float | None] | None = None
        others: list[ScoreJob | WorkJob] = []
        while self._turns:
            job = self._turns.popleft()
            if job.is_over:
                continue
            if isinstance(job, WorkJob):
                if not batch and not others:
                    return job
                others.append(job)
                continue
            fits = (job.costs[job.taken] <= left and (left > soon or len(batch) < _FEW_ITEMS)) or not batch
            if (kind is not None and job.kind != kind) or not fits:
                others.append(job)
                continue
            kind = job.kind
            entry = Entry(job, job.taken)
            job.taken += 1
            batch.append(entry)
            left -= entry.tokens
            if job.taken < len(job.items):
                self._turns.append(job)
        self._turns.extend(others)
        assert batch or not waiting or not self._turns, "what waits is taken"
        return batch or None
