"""The service without HTTP: detectors of one model, what may be asked of them, and its limits.

A route calls `score`, `answer` or `run_model`; each puts a job into the queue of the model thread and waits for it, at
most until the deadline. A job that nobody waits for any more is cancelled.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

from anchorscope.datasets.question import asked
from anchorscope.detectors.answer_batch import AnswerRequest, Piece
from anchorscope.detectors.bundle import read_bundle
from anchorscope.detectors.bundle_files import DEMO as DEMO
from anchorscope.detectors.detector import Detector, model_for
from anchorscope.detectors.features import refuse_unknown
from anchorscope.detectors.trained import Score, TrainedDetector
from anchorscope.engine.batching import memory_facts
from anchorscope.errors import UserError
from anchorscope.models.language_model import LanguageModel
from anchorscope.models.loading import DTYPES, checked_device, choose_device
from anchorscope.serve.errors import ServiceError, draining, loading, past_deadline, unknown_model
from anchorscope.serve.model_thread import (
    AnswerJob,
    Job,
    JobQueue,
    Loaded,
    ModelThread,
    ScoreJob,
    WorkJob,
    text_too_long,
)
from anchorscope.serve.monitoring import Metrics, ServiceLog

T = TypeVar("T")
_MOST_BATCH = 8192  # tokens run together: beyond it a large GPU gains nothing, and the next request waits longer
_BATCHES_WAITING = 16
_CHARACTERS = 16  # of one token, at most, in texts worth reading: longer ones are refused unread
_WARM_UP = ("What is the capital of Japan?", "Tokyo")
LOADING, READY, DRAINING, FAILED = "loading", "ready", "draining", "failed"


@dataclass(frozen=True)
class Limits:
    """What a request may take. The usual ones are options of `anchorscope serve`."""

    items: int = 256
    """Items of one request."""
    item_tokens: int = 4096
    """Tokens of one item or chat, prompt and answer together."""
    answer_tokens: int = 512
    """Tokens that the model may write for one request."""
    body_bytes: int = 2 * 2**20
    """Bytes of one request's body."""
    queue_tokens: int | None = None
    """Tokens that may be waiting and under way, estimated from characters; None: those of 16 batches."""
    queue_seconds: float = 3.0
    """Seconds that a request waits for its turn before it is refused."""
    batch_tokens: int | None = None
    """Tokens that are run together; None: what suits the device."""
    deadline: float = 60.0
    """Seconds from a request's last byte to its answer."""
    read_seconds: float = 15.0
    """Seconds that a client has for its headers, and again for its body."""
    requests: int = 256
    """Requests under way together."""

    def __post_init__(self) -> None:
        for limit in fields(self):
            value = getattr(self, limit.name)
            if value is not None and not value > 0:
                raise UserError(f"The limit {limit.name} is {value:g}, and a limit is above 0; give a larger one.")

    def waiting_tokens(self, batch_tokens: int) -> int:
        """Tokens that may wait, for batches of this size."""
        return self.queue_tokens or max(_BATCHES_WAITING * batch_tokens, self.item_tokens)


@dataclass(frozen=True)
class Scored:
    """What came of a request to score."""

    detector: str
    """Its id."""
    risk: float | None
    """The risk that verdicts are for; None where none was measured."""
    results: "Sequence[Score | ServiceError]"
    """In the order of the items."""


class Service:
    """Detectors of one model, ready to be asked."""

    def __init__(
        self,
        trained: Mapping[str, TrainedDetector],
        load_model: Callable[[], LanguageModel],
        limits: Limits | None = None,
        log: ServiceLog | None = None,
        cores: int | None = None,
    ) -> None:
        """`trained` are detectors by id, the first of them the default; `cores` are those that the model takes."""
        self.trained = dict(trained)
        self.default = next(iter(self.trained))
        self.model = self.trained[self.default].setting.model
        """The model's name."""
        self.limits = limits or Limits()
        self.log = log or ServiceLog(quiet=True)
        self.metrics = Metrics()
        self.log.on_lost_line = self.metrics.lost_lines.inc
        self.requests = 0
        """Requests that are under way."""
        self.is_draining = False
        self.queue = JobQueue(self.limits.waiting_tokens(_MOST_BATCH), self.limits.queue_seconds)
        self.thread = ModelThread(self._load, self.queue, self.limits.item_tokens, self.metrics, self.log, cores)
        self._load_model = load_model
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="prepare")
        self._token_counts: dict[str, tuple[int, float]] = {}
        """By detector: an item's own tokens beside question and answer, and tokens of a character of these."""
        self.metrics.queue.set_function(lambda: self.queue.tokens)
        self.metrics.ready.set_function(lambda: float(self.state == READY))

    def _load(self) -> Loaded:
        """The model with its detectors, warm; runs in the model thread."""
        lm, limit = self._load_model(), self.limits.batch_tokens
        memory = memory_facts(lm)
        tokens = min(_MOST_BATCH, memory.tokens) if limit is None else limit
        self.queue.most_tokens = self.limits.waiting_tokens(tokens)
        detectors = {name: Detector(trained, lm, tokens) for name, trained in self.trained.items()}
        for name, detector in detectors.items():
            items = detector.session.items([asked(*_WARM_UP)])
            detector.score_items(items)  # the first pass takes longer than all others
            located, text = items[0].located, "".join(_WARM_UP)
            own = len(lm.tokenizer(text, add_special_tokens=False)["input_ids"])
            self._token_counts[name] = len(located.input_ids) - located.prefix_length - own, own / len(text)
        return Loaded(lm, detectors, tokens, memory.slots)

    @property
    def state(self) -> str:
        """`loading`, `ready`, `draining` or `failed`."""
        if self.thread.error is not None:
            return FAILED
        if self.is_draining:
            return DRAINING
        return LOADING if self.thread.loaded is None else READY

    @property
    def loaded(self) -> Loaded:
        """The model with its detectors."""
        if self.thread.loaded is None:
            raise loading()
        return self.thread.loaded

    def refuse_unready(self) -> None:
        """Nothing is taken in before the model is loaded, and nothing once the service is ending."""
        if self.state != READY:
            raise loading() if self.state == LOADING else draining()

    def detector_id(self, name: str | None) -> str:
        """The id of the detector that a request names, or of the default."""
        if name is not None and name not in self.trained:
            message = "This detector is not served here; GET /v1/detectors lists those that are."
            raise ServiceError(404, "detector_not_found", message, param="detector")
        return self.default if name is None else name

    def refuse_other_model(self, name: str | None) -> None:
        """A request may name the model, or leave it out."""
        if name not in (None, "default", self.model):
            raise unknown_model()

    def refuse_long_text(self, text: str, param: str) -> None:
        """A text that cannot fit the tokens is not read at all."""
        if len(text) > self.limits.item_tokens * _CHARACTERS:
            raise text_too_long(self.limits.item_tokens, param)

    async def score(
        self, pairs: Sequence[tuple[str, str]], detector: str | None = None, risk: float | None = None
    ) -> Scored:
        """Scores of questions with their answers; an item that cannot be scored has an error in its place."""
        name = self.detector_id(detector)
        threshold = self.trained[name].threshold(risk)
        if len(pairs) > self.limits.items:
            message = (
                f"The request has {len(pairs):,} items, at most {self.limits.items:,} are taken; send it in parts."
            )
            raise ServiceError(413, "too_many_items", message, param="items")
        for number, (question, answer) in enumerate(pairs):
            self.refuse_long_text(question, f"items[{number}].question")
            self.refuse_long_text(answer, f"items[{number}].answer")
        questions = [asked(*pair, number) for number, pair in enumerate(pairs)]
        beside, per_character = self._token_counts[name]
        tokens = len(pairs) * (1 + max(0, beside)) + int(
            per_character * sum(len(text) for pair in pairs for text in pair)
        )
        results = await self._run(ScoreJob(tokens=tokens, detector=name, risk=risk, questions=questions))
        failed = [result for result in results if isinstance(result, ServiceError)]
        if len(failed) == len(results):
            raise failed[0]
        return Scored(name, None if threshold is None else threshold.risk, results)

    async def run_model(self, tokens: int, work: Callable[[], T]) -> T:
        """Any other work on the model, in its thread, within the same limits; `tokens` is what it may take."""
        result: T = await self._run(WorkJob(tokens=max(1, tokens), work=work))
        return result

    async def prepare(self, work: Callable[[], T]) -> T:
        """Work on texts without the model, off the event loop."""
        async with self._deadline():
            return await asyncio.get_running_loop().run_in_executor(self._pool, work)

    async def answer(self, request: AnswerRequest) -> AsyncIterator[Piece]:
        """The pieces of an answer as the model writes them; the last one has the score."""
        if request.tokens > self.limits.item_tokens:
            raise text_too_long(self.limits.item_tokens, "messages")
        loop = asyncio.get_running_loop()
        until = loop.time() + self.limits.deadline
        pieces: asyncio.Queue[Piece | None] = asyncio.Queue()

        def pass_on(piece: Piece | None) -> None:
            with suppress(RuntimeError):  # the loop was closed
                loop.call_soon_threadsafe(pieces.put_nowait, piece)

        job = AnswerJob(tokens=request.tokens, request=request, on_piece=pass_on)
        job.result.add_done_callback(lambda _: pass_on(None))
        try:
            self.queue.put(job)
            while (piece := await asyncio.wait_for(pieces.get(), until - loop.time())) is not None:
                yield piece
            job.result.result()  # raises what went wrong
        except TimeoutError:
            raise past_deadline(self.limits.deadline) from None
        finally:
            job.result.cancel()

    async def _run(self, job: Job) -> Any:
        """The result of a job; leaving the `await` in any way cancels what was not begun."""
        async with self._deadline():
            self.queue.put(job)
            return await asyncio.wrap_future(job.result)

    @asynccontextmanager
    async def _deadline(self) -> AsyncIterator[None]:
        """Everything that takes longer ends with 504."""
        try:
            async with asyncio.timeout(self.limits.deadline):
                yield
        except TimeoutError:
            raise past_deadline(self.limits.deadline) from None

    def close(self, seconds: float = 5.0) -> bool:
        """Ends the model thread; whether it ended in time."""
        self.is_draining = True
        self.thread.abandon()
        self._pool.shutdown(wait=False, cancel_futures=True)
        ended = self.thread.stop(seconds)
        self.log.close()
        return ended


def make_service(
    bundles: Sequence[Path],
    limits: Limits,
    log: ServiceLog,
    *,
    model: str | None = None,
    device: str = "auto",
    dtype: str = "auto",
    cores: int | None = None,
) -> Service:
    """The service of some bundles, all checked; the model is loaded when the service starts."""
    trained = by_id([read_bundle(bundle) for bundle in bundles])
    for detector in trained.values():
        refuse_unknown(detector.needs, detector.setting.n_layers)
    if dtype != "auto" and dtype not in DTYPES:
        raise UserError(f"Unknown dtype {dtype!r}; allowed: auto, {', '.join(DTYPES)}.")
    chosen = choose_device(device)
    checked_device(chosen)
    first = next(iter(trained.values()))
    own_cores = 1 if cores is None and chosen == "cpu" else cores  # beside other work, two threads were slower than one
    return Service(trained, lambda: model_for(first, model, None, chosen, dtype), limits, log, own_cores)


def by_id(detectors: Sequence[TrainedDetector]) -> dict[str, TrainedDetector]:
    """Detectors of one model by name; where two have the same name, with the beginning of their sha256."""
    first = detectors[0]
    for other in detectors[1:]:
        theirs, ours = other.setting, first.setting
        if (theirs.fingerprint, theirs.tokenizer) != (ours.fingerprint, ours.tokenizer):
            raise UserError(
                f"The bundles are of different models ({first.name!r} of {ours.model!r}, {other.name!r} of "
                f"{theirs.model!r}); one process serves one model: start another one for the other."
            )
    names = [one.name for one in detectors]
    ids = [one.name if names.count(one.name) == 1 else f"{one.name}-{(one.sha256 or '')[:8]}" for one in detectors]
    twice = next((name for name in ids if ids.count(name) > 1), None)
    if twice is not None:
        raise UserError(f"The detector {twice!r} is given twice; name every bundle once.")
    return dict(zip(ids, detectors, strict=True))
