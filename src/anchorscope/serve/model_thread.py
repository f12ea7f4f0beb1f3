"""The thread that runs the model, and the queue in front of it: bounded in tokens and in time.

Items of several requests are scored in one batch, one item of every request before the second of any. Nothing waits for
a batch to fill: while one runs, the next one's items arrive. Chats that wait together are decoded together; a few such
batches may be under way, and each gets a token in turn. After a batch of scores, chats get as much time as it took.
"""

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from anchorscope.answers.generate import TOO_LONG
from anchorscope.datasets.question import Question
from anchorscope.detectors.answer_batch import AnswerBatch, AnswerRequest, Piece
from anchorscope.detectors.detector import Detector
from anchorscope.detectors.trained import Score
from anchorscope.errors import MemoryRanOut, UserError
from anchorscope.items import Item
from anchorscope.models.devices import free_memory, is_device_lost, is_out_of_memory
from anchorscope.models.language_model import LanguageModel
from anchorscope.models.process_settings import threads
from anchorscope.serve.errors import ServiceError, draining, internal_error, queue_full
from anchorscope.serve.monitoring import Metrics, ServiceLog

_LONGEST_WAIT = 60.0  # seconds that a client is told to wait, at most
_BATCH_SHARE = 1 / 3  # of the time that requests may wait: what one batch may take
_FEW_ITEMS = 8  # that a batch may have however long it takes: smaller ones would waste most of a slow model's time
_NEWEST_SHARE = 0.3  # of the newest batch in the measured rate
_FEWEST_TOKENS = 64  # of a batch, however often memory ran out
_CHAT_BATCHES = 4  # under way together


@dataclass(eq=False, kw_only=True)
class Job:
    """One request's work. Its result is a standard future: cancelled where nobody waits for it any more."""

    tokens: int
    """What it takes of the queue's room."""
    since: float = field(default_factory=time.monotonic)
    result: "Future[Any]" = field(default_factory=Future)

    def succeed(self, value: Any) -> None:
        """Passes the result on, if somebody still waits for it."""
        with suppress(InvalidStateError):
            self.result.set_result(value)

    def fail(self, error: BaseException) -> None:
        """Passes on why there is none."""
        with suppress(InvalidStateError):
            self.result.set_exception(error)


@dataclass(eq=False, kw_only=True)
class WorkJob(Job):
    """Any work on the model."""

    work: Callable[[], Any]


@dataclass(eq=False, kw_only=True)
class AnswerJob(Job):
    """An answer that the model writes."""

    request: AnswerRequest
    on_piece: Callable[[Piece], None]
    """Called in the model thread."""


@dataclass(eq=False, kw_only=True)
class ScoreJob(Job):
    """Answers to score, with one detector and at one risk."""

    detector: str
    risk: float | None
    questions: Sequence[Question]
    scores: "dict[int, Score | ServiceError]" = field(default_factory=dict)
    taken: int = 0
    """How many items were handed out, in their order."""

    @property
    def kind(self) -> tuple[str, float | None]:
        """Items of jobs of one kind can be run together."""
        return self.detector, self.risk

    def put(self, number: int, score: Score | ServiceError) -> None:
        """One item's result; with the last one the job is done."""
        self.scores[number] = score
        if len(self.scores) == len(self.questions):
            self.succeed([self.scores[number] for number in range(len(self.questions))])


@dataclass(frozen=True)
class Entry:
    """One item of a job."""

    job: ScoreJob
    number: int

    @property
    def question(self) -> Question:
        """The question with its answer."""
        return self.job.questions[self.number]

    @property
    def tokens(self) -> int:
        """Its share of the job's tokens."""
        return self.job.tokens // len(self.job.questions)


class JobQueue:
    """Jobs that wait for the model; safe in threads."""

    def __init__(self, most_tokens: int, most_seconds: float = math.inf) -> None:
        self.most_tokens, self.most_seconds = most_tokens, most_seconds
        self.tokens = 0
        """Of jobs that wait or are under way."""
        self.tokens_per_second = math.inf
        """What the model was measured to score."""
        self.unfinished: set[Job] = set()
        self._changed = threading.Condition()
        self._jobs: deque[ScoreJob | WorkJob] = deque()
        self._answers: deque[AnswerJob] = deque()
        self._closed = False

    def put(self, job: Job) -> None:
        """Takes a job in, or refuses it with the seconds after which there will be room."""
        with self._changed:
            if job.tokens > self.most_tokens:
                message = f"The request has about {job.tokens:,} tokens, and the queue holds {self.most_tokens:,}"
                raise ServiceError(413, "request_too_large", f"{message}; send it in parts.")
            if self.tokens + job.tokens > self.most_tokens:
                raise queue_full(self._seconds(self.tokens + job.tokens - self.most_tokens))
            self.tokens += job.tokens
            self.unfinished.add(job)
            if isinstance(job, AnswerJob):
                self._answers.append(job)
            elif isinstance(job, ScoreJob | WorkJob):
                self._jobs.append(job)
            self._changed.notify()
        job.result.add_done_callback(lambda _: self._remove(job))

    def _remove(self, job: Job) -> None:
        with self._changed:
            self.unfinished.discard(job)
            self.tokens -= job.tokens

    def _seconds(self, tokens: int) -> float:
        return min(_LONGEST_WAIT, tokens / self.tokens_per_second)

    def note_rate(self, tokens: int, seconds: float) -> None:
        """How fast a batch was; the rate follows the newest ones."""
        rate = tokens / max(seconds, 1e-6)
        before = rate if math.isinf(self.tokens_per_second) else self.tokens_per_second
        self.tokens_per_second = max(1.0, (1 - _NEWEST_SHARE) * before + _NEWEST_SHARE * rate)

    def wait(self, block: bool) -> bool:
        """Until there is something to do, or at once; False where the queue was closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._jobs or self._answers, None if block else 0)
            return not self._closed

    def close(self) -> None:
        """Ends the waiting of the model thread."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def take(self, batch_tokens: int) -> WorkJob | list[Entry]:
        """What is next: one piece of work, or a batch of items for one detector; empty where nothing waits."""
        with self._changed:
            self._jobs = deque(job for job in self._jobs if not job.result.done())
            if self._jobs and isinstance(first := self._jobs[0], WorkJob):
                self._jobs.popleft()
                return first
            batch = self._take_items(batch_tokens)
            self._refuse_late(self._jobs)
            return batch

    def _take_items(self, batch_tokens: int) -> list[Entry]:
        """Items in turn: one of every request, then the next of each."""
        batch: list[Entry] = []
        used, later = 0, deque[ScoreJob | WorkJob]()
        quick = self.tokens_per_second * self.most_seconds * _BATCH_SHARE
        while self._jobs:
            job = self._jobs.popleft()
            if isinstance(job, WorkJob) or (batch and job.kind != batch[0].job.kind):
                later.append(job)
                continue
            entry = Entry(job, job.taken)
            used += entry.tokens
            if batch and (used > batch_tokens or (used > quick and len(batch) >= _FEW_ITEMS)):
                later.append(job)
                break
            batch.append(entry)
            job.taken += 1
            if job.taken < len(job.questions):
                self._jobs.append(job)
        self._jobs.extendleft(reversed(later))
        return batch

    def _refuse_late(self, waiting: Sequence[Job]) -> None:
        """Refuses jobs that have waited too long without being begun: an overload ends soon after its cause."""
        oldest = time.monotonic() - self.most_seconds
        for job in [job for job in waiting if job.since < oldest and not (isinstance(job, ScoreJob) and job.taken)]:
            job.fail(queue_full(self._seconds(self.tokens)))

    def take_answers(self, room: int, alone: bool) -> list[AnswerJob]:
        """Chats to decode together, as far as there is room for them; the first one in any case where it is alone."""
        with self._changed:
            waiting = [job for job in self._answers if not job.result.done()]
            batch: list[AnswerJob] = []
            for job in waiting:
                if job.request.kind == waiting[0].request.kind and (job.tokens <= room or (alone and not batch)):
                    batch.append(job)
                    room -= job.tokens
            self._answers = deque(job for job in waiting if job not in batch)
            self._refuse_late(self._answers)
            return batch


@dataclass(frozen=True)
class Loaded:
    """The model with its detectors."""

    lm: LanguageModel
    detectors: Mapping[str, Detector]
    batch_tokens: int
    """Tokens that are run together."""
    chat_tokens: int
    """Tokens of chats that memory holds at a time."""


class ModelThread(threading.Thread):
    """Loads the model and does what waits in the queue, until it is stopped."""

    def __init__(
        self,
        load: Callable[[], Loaded],
        queue: JobQueue,
        item_tokens: int,
        metrics: Metrics,
        log: ServiceLog,
        cores: int | None = None,
    ) -> None:
        """Items of more than `item_tokens` are refused; `cores` are those that the model takes."""
        super().__init__(name="model", daemon=True)
        self.queue = queue
        self.batch_tokens = 0
        self.loaded: Loaded | None = None
        self.error: BaseException | None = None
        """Why the model could not be loaded, or why the thread ended."""
        self._load, self._item_tokens, self._metrics, self._log, self._cores = load, item_tokens, metrics, log, cores
        self._chats: list[tuple[AnswerBatch, list[AnswerJob]]] = []

    def stop(self, seconds: float) -> bool:
        """Ends after what is being run; whether it has ended in time."""
        self.queue.close()
        if self.is_alive():
            self.join(seconds)
        return not self.is_alive()

    def abandon(self) -> None:
        """Tells everyone who still waits that the service is ending."""
        for job in list(self.queue.unfinished):
            job.fail(draining())

    def run(self) -> None:
        """The thread's whole life."""
        try:
            with threads(self._cores):
                loaded = self._load()
                self.batch_tokens, self.loaded = loaded.batch_tokens, loaded
                while self.queue.wait(block=not self._chats):
                    began = time.monotonic()
                    work = self.queue.take(self.batch_tokens)
                    if isinstance(work, WorkJob):
                        self._work(work)
                    elif work:
                        self._score(loaded.detectors[work[0].job.detector], work)
                    self._advance_chats(loaded, until=2 * time.monotonic() - began)
        except BaseException as error:
            self.error = error
            if not isinstance(error, UserError):
                self._log.fault(error, "model thread")

    def _work(self, job: WorkJob) -> None:
        try:
            job.succeed(job.work())
        except Exception as error:
            job.fail(self._public(error, "work"))

    def _public(self, error: Exception, where: str) -> Exception:
        """What a client may know of an error; a lost device ends the thread, and with it the service."""
        if is_device_lost(error):
            raise error
        if isinstance(error, UserError | ServiceError):
            return error
        if is_out_of_memory(error) or isinstance(error, MemoryRanOut):
            error.__traceback__ = None  # it holds on to every tensor of the pass
            free_memory()
            self._metrics.memory_ran_out.inc()
            message = "Memory does not suffice for what is under way; try again later, or with less at once."
            return ServiceError(503, "out_of_memory", message, retry_after=5)
        self._log.fault(error, where)
        return internal_error()

    def _score(self, detector: Detector, entries: Sequence[Entry]) -> None:
        """Scores a batch, in halves where it fails; every entry gets a score or an error."""
        entries = [entry for entry in entries if not entry.job.result.done()]
        if not entries:
            return
        began, tokens = time.monotonic(), sum(entry.tokens for entry in entries)
        try:
            items = detector.session.items([entry.question for entry in entries])
            fitting = [n for n, item in enumerate(items) if _count_tokens(item) <= self._item_tokens]
            scores = detector.score_items([items[n] for n in fitting], risk=entries[0].job.risk)
        except Exception as error:
            failure = self._public(error, "item")
        else:
            self.queue.note_rate(tokens, time.monotonic() - began)
            self._metrics.batch_items.observe(len(entries))
            results: dict[int, Score] = dict(zip(fitting, scores, strict=True))
            for n, entry in enumerate(entries):
                if n in results:
                    self._metrics.items.labels(entry.job.detector, results[n].verdict).inc()
                param = f"items[{entry.number}]"
                entry.job.put(entry.number, results.get(n) or text_too_long(self._item_tokens, param))
            return
        if len(entries) > 1:  # outside the handler: an exception holds on to every tensor of the pass
            if isinstance(failure, ServiceError) and failure.code == "out_of_memory":
                self.batch_tokens = max(_FEWEST_TOKENS, min(self.batch_tokens, tokens // 2))
            half = len(entries) // 2
            self._score(detector, entries[:half])
            self._score(detector, entries[half:])
            return
        self._metrics.failed_items.inc()
        reason = str(failure).rstrip(".") if isinstance(failure, UserError) else "the model gave no score for it"
        message = f"This item could not be scored: {reason}."
        entry = entries[0]
        entry.job.put(entry.number, ServiceError(422, "item_failed", message, param=f"items[{entry.number}]"))

    def _advance_chats(self, loaded: Loaded, until: float) -> None:
        """A token more for every chat, again and again until that time."""
        while True:
            self._start_chats(loaded)
            for chat in list(self._chats):
                if not self._step(*chat):
                    self._chats.remove(chat)
            if not self._chats or time.monotonic() >= until:
                return

    def _start_chats(self, loaded: Loaded) -> None:
        room = loaded.chat_tokens - sum(job.tokens for _, jobs in self._chats for job in jobs)
        while len(self._chats) < _CHAT_BATCHES and (jobs := self.queue.take_answers(room, alone=not self._chats)):
            batch = AnswerBatch(loaded.lm, [job.request for job in jobs], self.batch_tokens)
            self._chats.append((batch, jobs))
            room -= sum(job.tokens for job in jobs)

    def _step(self, batch: AnswerBatch, jobs: Sequence[AnswerJob]) -> bool:
        """One token more for the chats of a batch; whether there are more to come."""
        for row, job in enumerate(jobs):
            if job.result.done():
                batch.drop(row)
        if batch.is_over:
            return False
        try:
            pieces = batch.step()
        except Exception as error:  # a step belongs to all of them
            failure = self._public(error, "chat")
            for job in jobs:
                job.fail(failure)
            return False
        for piece in pieces:
            job = jobs[piece.row]
            job.on_piece(piece)
            if piece.reason is None:
                continue
            self._metrics.generated_tokens.inc(piece.new_tokens)
            if piece.error is None:
                job.succeed(None)
            else:
                job.fail(piece.error)
        return not batch.is_over


def _count_tokens(item: Item) -> int:
    """Tokens of an item; one beyond the model's context is not run, and its score says so."""
    if item.answer.status == TOO_LONG:
        return 0
    return item.answer.needs if item.tokens is None else len(item.located.input_ids)


def text_too_long(most_tokens: int, param: str) -> ServiceError:
    """A text beyond the limit."""
    message = f"The text has more than {most_tokens:,} tokens; shorten it."
    return ServiceError(413, "item_too_long", message, param=param)
