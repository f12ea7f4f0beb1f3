"""The thread that runs the model, and the queue in front of it, bounded in time.

Requests of one kind that wait together run together. A request that is larger than a batch goes to the end of the queue
after each part of it.
"""

import math
import secrets
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from anchorscope.answers.generate import TOO_LONG
from anchorscope.answers.template import build_prompts
from anchorscope.datasets.question import Question
from anchorscope.detecting.score import measure_uses
from anchorscope.detectors.detector import Detector, Score, unread_reason
from anchorscope.engine.decode import Sampling
from anchorscope.errors import MemoryRanOut, UserError
from anchorscope.models.devices import free_memory, is_device_lost, is_out_of_memory
from anchorscope.models.language_model import LanguageModel
from anchorscope.models.process_settings import threads
from anchorscope.serve.errors import ServiceError, draining, internal_error
from anchorscope.serve.monitoring import Metrics, ServiceLog
from anchorscope.stats.streams import priorities

_LONGEST_WAIT = 60.0  # seconds after which a client may try again, at most
_BATCH_SHARE = 1 / 3  # of the time that requests may wait: what one batch may take
_QUICK_TOKENS = 512  # that a batch may have however long it takes: smaller ones would waste most of a slow model's time
_NEWEST_SHARE = 0.3  # of the newest batch in the measured rate
_FEWEST_TOKENS = 64  # of a batch, however often memory ran out

Record = dict[str, Any]


def score_records(
    detector: Detector, questions: Sequence[Question], scores: Sequence[Score]
) -> list[Record]:
    """Scores as JSON; where the question came with passages, also whether the answer used them."""
    uses: Sequence[Record] = measure_uses(detector, questions, scores) or [{}] * len(
        scores
    )
    names = ("truth_probability", "log_odds", "verdict", "warnings")
    return [
        {name: score.record()[name] for name in names}
        | (use if question.context else {})
        for question, score, use in zip(questions, scores, uses, strict=True)
    ]


@dataclass(eq=False, kw_only=True)
class Job:
    """One request's work. Its result is a standard future: cancelled where nobody waits for it any more."""

    tokens: int
    """What it takes of a batch, estimated."""
    since: float = field(default_factory=time.monotonic)
    result: "Future[Any]" = field(default_factory=Future)

    def succeed(self, value: Any) -> None:
        with suppress(InvalidStateError):
            self.result.set_result(value)

    def fail(self, error: BaseException) -> None:
        with suppress(InvalidStateError):
            self.result.set_exception(error)

    @property
    def kind(self) -> tuple[Any, ...]:
        """Jobs of one kind can run together."""
        return (id(self),)


@dataclass(eq=False, kw_only=True)
class WorkJob(Job):
    work: Callable[[], Any]


@dataclass(frozen=True)
class Draw:
    """How the tokens of an answer are chosen, and which texts end it."""

    temperature: float = 0.0  # 0 for the likeliest tokens
    top_p: float = 1.0
    seed: int | None = None  # sampled tokens depend on it; None for an unknown seed
    stop: tuple[str, ...] = ()  # the answer ends before the first of these texts


@dataclass(eq=False, kw_only=True)
class AnswerJob(Job):
    detector: str
    question: Question
    longest: int  # tokens of the answer, at most
    draw: Draw
    risk: float | None

    @property
    def kind(self) -> tuple[Any, ...]:
        return (
            "answer",
            self.detector,
            self.risk,
            self.longest,
            self.draw.temperature,
            self.draw.top_p,
        )


@dataclass(frozen=True)
class WrittenAnswer:
    """An answer that the model wrote, with the record of its score."""

    text: str
    # `stop` where the answer ended, `length` where it is as long as it may be
    reason: str
    prompt_tokens: int
    # what the model wrote, blank lines and thinking before the answer included
    new_tokens: int
    score: Record


def write_answers(
    detector: Detector, jobs: Sequence[AnswerJob]
) -> list[WrittenAnswer | UserError]:
    """The answers of jobs of one kind; an error for a question that does not fit."""
    first, session, sampling = jobs[0], detector.session, None
    if first.draw.temperature > 0:
        seeds = [
            secrets.randbits(63) if job.draw.seed is None else job.draw.seed
            for job in jobs
        ]
        numbers = [priorities(seed, "answer asked for", [""])[0] for seed in seeds]
        sampling = Sampling(
            np.array(numbers, dtype=np.uint64), first.draw.temperature, first.draw.top_p
        )
    questions = [job.question for job in jobs]
    prompts = build_prompts(
        session.lm.tokenizer, questions, session.setting.template, session.lm.context
    )
    written = session.items(questions, first.longest, sampling)
    items = list(written)
    for number, (job, item) in enumerate(zip(jobs, written, strict=True)):
        text = item.answer.text
        ends = [end for stop in job.draw.stop if (end := text.find(stop)) >= 0]
        if ends:
            (items[number],) = session.items(
                [replace(job.question, model_answer=text[: min(ends)])]
            )
    records = score_records(
        detector, questions, detector.score_items(items, risk=first.risk)
    )
    return [
        UserError(
            f"The answer cannot be written: {unread_reason(item, session.lm.context)}."
        )
        if item.answer.status == TOO_LONG
        else WrittenAnswer(
            item.answer.text,
            "length" if item.answer.status == "truncated" else "stop",
            len(prompt.ids),
            len(own.answer.before) + len(own.answer.ids),
            record,
        )
        for item, own, prompt, record in zip(
            items, written, prompts, records, strict=True
        )
    ]


@dataclass(eq=False, kw_only=True)
class ScoreJob(Job):
    """Answers to score, with one detector and at one risk."""

    detector: str
    risk: float | None
    questions: Sequence[Question]
    scores: list[Record | ServiceError] = field(default_factory=list)
    """Of the first items; the job is done when there are all."""

    @property
    def kind(self) -> tuple[Any, ...]:
        return ("score", self.detector, self.risk)


class JobQueue:
    """Jobs that wait for the model; safe in threads."""

    def __init__(self, most_seconds: float = math.inf) -> None:
        self.most_seconds = most_seconds
        self.tokens_per_second = math.inf
        """What the model was measured to score."""
        self.unfinished: set[Job] = set()
        """Those that wait or are under way."""
        self._changed = threading.Condition()
        self._jobs: list[Job] = []
        self._closed = False

    @property
    def tokens(self) -> int:
        """Of jobs that wait or are under way."""
        return sum(job.tokens for job in list(self.unfinished))

    def put(self, job: Job) -> None:
        """Takes in a job, or what is left of one."""
        with self._changed:
            self.unfinished.add(job)
            self._jobs.append(job)
            self._changed.notify()
        job.result.add_done_callback(lambda _: self.unfinished.discard(job))

    def note_rate(self, tokens: int, seconds: float) -> None:
        """How fast a batch was; the rate follows the newest ones."""
        rate = tokens / max(seconds, 1e-6)
        before = rate if math.isinf(self.tokens_per_second) else self.tokens_per_second
        self.tokens_per_second = max(
            1.0, (1 - _NEWEST_SHARE) * before + _NEWEST_SHARE * rate
        )

    def wait(self) -> bool:
        """Until there is something to do; False where the queue was closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._jobs)
            return not self._closed

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def quick_tokens(self, batch_tokens: int) -> int:
        """Tokens of a batch that leaves time for those who wait."""
        in_time = self.tokens_per_second * self.most_seconds * _BATCH_SHARE
        return int(min(batch_tokens, max(_QUICK_TOKENS, in_time)))

    def take(self, most_tokens: int) -> list[Any]:
        """The next job with all others of its kind that fit."""
        with self._changed:
            waiting = [job for job in self._jobs if not job.result.done()]
            batch: list[Job] = []
            if waiting:
                room = max(waiting[0].tokens, most_tokens)
                for job in waiting:
                    if job.kind == waiting[0].kind and job.tokens <= room:
                        batch.append(job)
                        room -= job.tokens
            self._jobs = [job for job in waiting if job not in batch]
            oldest = time.monotonic() - self.most_seconds
            late = [
                job
                for job in self._jobs
                if job.since < oldest and not getattr(job, "scores", None)
            ]
        # those that were not begun: an overload ends soon after its cause
        for job in late:
            wait = min(_LONGEST_WAIT, self.tokens / self.tokens_per_second)
            job.fail(
                ServiceError(
                    429,
                    "queue_full",
                    "Too much is waiting; try again later.",
                    retry_after=wait,
                )
            )
        return batch


@dataclass(frozen=True)
class Loaded:
    lm: LanguageModel
    detectors: Mapping[str, Detector]
    batch_tokens: int  # tokens that are run together


class ModelThread(threading.Thread):
    """Loads the model and does what waits in the queue, until it is stopped."""

    def __init__(
        self,
        load: Callable[[], Loaded],
        queue: JobQueue,
        metrics: Metrics,
        log: ServiceLog,
        cores: int | None = None,
    ) -> None:
        """`cores` are those that the model takes."""
        super().__init__(name="model", daemon=True)
        self.queue = queue
        self.batch_tokens = 0
        self.loaded: Loaded | None = None
        self.error: BaseException | None = None
        """Why the model could not be loaded, or why the thread ended."""
        self._load, self._metrics, self._log, self._cores = load, metrics, log, cores

    def abandon(self) -> None:
        """Tells everyone who still waits that the service is ending."""
        for job in list(self.queue.unfinished):
            job.fail(draining())

    def run(self) -> None:
        try:
            with threads(self._cores):
                loaded = self._load()
                self.batch_tokens, self.loaded = loaded.batch_tokens, loaded
                while self.queue.wait():
                    most_tokens = self.queue.quick_tokens(self.batch_tokens)
                    jobs = self.queue.take(most_tokens)
                    if jobs and isinstance(jobs[0], AnswerJob):
                        self._answer_jobs(loaded.detectors[jobs[0].detector], jobs)
                    elif jobs and isinstance(jobs[0], ScoreJob):
                        self._score_jobs(
                            loaded.detectors[jobs[0].detector], jobs, most_tokens
                        )
                    elif jobs:
                        self._work(jobs[0])
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

    def _score_jobs(
        self, detector: Detector, jobs: Sequence[ScoreJob], most_tokens: int
    ) -> None:
        """Scores the items of jobs, or as many of a large one as may run together."""
        rows = [
            (job, number)
            for job in jobs
            for number in range(len(job.scores), len(job.questions))
        ]
        if jobs[0].tokens > most_tokens:  # it came alone
            rows = rows[
                : max(1, len(jobs[0].questions) * most_tokens // jobs[0].tokens)
            ]
        began = time.monotonic()
        results = self._score(
            detector, [job.questions[number] for job, number in rows], jobs[0]
        )
        tokens = sum(job.tokens // len(job.questions) for job, _ in rows)
        self.queue.note_rate(tokens, time.monotonic() - began)
        for (job, number), result in zip(rows, results, strict=True):
            if isinstance(result, ServiceError):
                result.param = f"items[{number}]"
            else:
                self._metrics.items.labels(job.detector, result["verdict"]).inc()
            job.scores.append(result)
        for job in jobs:
            if len(job.scores) == len(job.questions):
                job.succeed(job.scores)
            else:
                self.queue.put(job)

    def _score(
        self, detector: Detector, questions: Sequence[Question], job: ScoreJob
    ) -> list[Record | ServiceError]:
        """A score or an error for each question, in halves where a batch fails."""
        try:
            scores = detector.score_items(
                detector.session.items(questions), risk=job.risk
            )
            self._metrics.batch_items.observe(len(questions))
            return [*score_records(detector, questions, scores)]
        except Exception as error:
            failure = self._public(error, "item")
        # outside the handler: an exception holds on to every tensor of the pass
        if len(questions) > 1:
            if isinstance(failure, ServiceError) and failure.code == "out_of_memory":
                tokens = job.tokens * len(questions) // len(job.questions)
                self.batch_tokens = max(
                    _FEWEST_TOKENS, min(self.batch_tokens, tokens // 2)
                )
            half = len(questions) // 2
            return [
                *self._score(detector, questions[:half], job),
                *self._score(detector, questions[half:], job),
            ]
        self._metrics.failed_items.inc()
        reason = (
            str(failure).rstrip(".")
            if isinstance(failure, UserError)
            else "the model gave no score for it"
        )
        return [
            ServiceError(
                422, "item_failed", f"This item could not be scored: {reason}."
            )
        ]

    def _answer_jobs(self, detector: Detector, jobs: Sequence[AnswerJob]) -> None:
        """Writes the answers of chats; what goes wrong goes wrong for all of them."""
        try:
            answers = write_answers(detector, jobs)
        except Exception as error:
            failure = self._public(error, "chat")
            for job in jobs:
                job.fail(failure)
            return
        for job, answer in zip(jobs, answers, strict=True):
            if isinstance(answer, UserError):
                job.fail(answer)
            else:
                self._metrics.generated_tokens.inc(answer.new_tokens)
                job.succeed(answer)
