"""The service without HTTP: detectors on one model, a queue in front of it, and what may be asked.

Texts become tokens in a small pool of threads, so that the model thread only runs the model. Whatever is asked for ends
at the deadline, and leaves the queue when nobody waits for it any more.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from anchorscope.answers.generate import TOO_LONG
from anchorscope.detectors.asking import Asking, Wish, Written
from anchorscope.detectors.detector import Detector, asked
from anchorscope.detectors.trained import Score, TrainedDetector
from anchorscope.engine.batching import automatic_tokens
from anchorscope.errors import UserError
from anchorscope.items import Item
from anchorscope.models.language_model import LanguageModel
from anchorscope.serve import errors
from anchorscope.serve.answering import Answering
from anchorscope.serve.errors import ServiceError
from anchorscope.serve.jobs import AskJob, Job, ScoreJob, WorkJob
from anchorscope.serve.keys import Keys
from anchorscope.serve.limits import Limits
from anchorscope.serve.log import ServiceLog
from anchorscope.serve.metrics import Metrics
from anchorscope.serve.model_thread import Loaded, ModelThread
from anchorscope.serve.queue import TokenQueue

T = TypeVar("T")
_MOST_BATCH = 8192  # tokens run together: beyond it a large GPU gains nothing, and whoever comes next waits longer
_PREPARING = 2  # threads that make tokens of texts, and again that wait for chat templates
_WARM_UP = ("What is the capital of Japan?", "Tokyo")
LOADING, READY, DRAINING, FAILED = "loading", "ready", "draining", "failed"


@dataclass(frozen=True)
class Setting:
    """How a service is set up, beside its detectors and its model."""

    limits: Limits = field(default_factory=Limits)
    keys: Keys = field(default_factory=Keys)
    is_public: bool = False
    """Whether other machines can reach it; else only names of this machine are answered to."""
    cores: int | None = None
    """Cores that the model takes; None leaves it to torch."""


@dataclass(frozen=True)
class Scored:
    """What came of a request to score."""

    detector: str
    """Its id."""
    risk: float | None
    """The risk that verdicts are for; None where none was measured."""
    found: "Sequence[Score | ServiceError]"
    """In the order of the items."""


class Service:
    """Detectors of one model, ready to be asked."""

    def __init__(
        self,
        trained: Mapping[str, TrainedDetector],
        load_model: Callable[[], LanguageModel],
        setting: Setting | None = None,
        log: ServiceLog | None = None,
    ) -> None:
        self.trained = dict(trained)
        """By id, as they were read."""
        self.default = next(iter(self.trained))
        """The id of the detector that is asked where none is named."""
        self.setting = setting or Setting()
        self.limits = self.setting.limits
        self.log = log or ServiceLog(quiet=True)
        self.metrics = Metrics()
        self.log.lost = self.metrics.lost_lines.inc
        self.requests = 0
        """Requests that are under way."""
        self.is_draining = False
        self._load_model = load_model
        self._queue = TokenQueue(self.limits.room(_MOST_BATCH), self.limits.queue_seconds)
        self._pool = ThreadPoolExecutor(_PREPARING, thread_name_prefix="prepare")
        self._renderers = ThreadPoolExecutor(_PREPARING, thread_name_prefix="render")
        self.thread = ModelThread(self._load, self._queue, self.metrics, self.log, self.setting.cores)
        self.metrics.queue.set_function(lambda: self._queue.tokens)
        self.metrics.ready.set_function(lambda: float(self.state == READY))

    def start(self) -> None:
        """Begins to load the model."""
        self.thread.start()

    @property
    def state(self) -> str:
        """`loading`, `ready`, `draining` or `failed`."""
        if self.thread.error is not None:
            return FAILED
        if self.is_draining:
            return DRAINING
        return LOADING if self.thread.loaded is None else READY

    @property
    def detectors(self) -> Mapping[str, Detector]:
        """By id; only once the model is loaded."""
        return self._loaded.detectors

    @property
    def lm(self) -> LanguageModel:
        """The model."""
        return self._loaded.lm

    @property
    def model(self) -> str:
        """The model's name."""
        return self.trained[self.default].setting.model

    @property
    def _loaded(self) -> Loaded:
        if self.thread.loaded is None:
            raise errors.loading()
        return self.thread.loaded

    def _load(self) -> Loaded:
        """In the model thread."""
        lm = self._load_model()
        tokens = self.limits.batch_tokens or min(_MOST_BATCH, automatic_tokens(lm))
        self._queue.most = self.limits.room(tokens)
        detectors = {name: Detector(one, lm, tokens) for name, one in self.trained.items()}
        for one in detectors.values():
            one.score(*_WARM_UP)  # the first pass takes longer than all others
        asking = Asking(lm, detectors, tokens)
        return Loaded(lm, detectors, tokens, Answering(asking, self._queue, self.metrics, self.log))

    def refuse_unready(self) -> None:
        """Nothing is taken in before the model is there and once the service ends."""
        if self.state != READY:
            raise errors.loading() if self.state == LOADING else errors.draining()

    def detector_of(self, name: str | None) -> str:
        """The id of the detector that is meant."""
        found = self.default if name is None else name
        if found not in self.trained:
            raise errors.unknown_detector()
        return found

    def refuse_other_model(self, name: str | None) -> None:
        """A request may name the model, or say nothing of it."""
        if name not in (None, "default", self.model):
            raise errors.unknown_model()

    async def score(
        self, pairs: Sequence[tuple[str, str]], detector: str | None = None, risk: float | None = None
    ) -> Scored:
        """Scores of questions with their answers; an item that cannot be scored has its error in its place."""
        name = self.detector_of(detector)
        threshold = self.trained[name].threshold(risk)
        if len(pairs) > self.limits.items:
            raise ServiceError(
                413,
                "too_many_items",
                f"The request has {len(pairs):,} items, at most {self.limits.items:,} are taken; send it in parts.",
                param="items",
            )
        async with self._deadline():
            items = await self._items(self.detectors[name], pairs)
            costs = [self._cost(item, place) for place, item in enumerate(items)]
            job = ScoreJob(tokens=sum(costs), detector=name, risk=risk, items=items, costs=costs)
            found: list[Score | ServiceError] = await self._result(job)
        if all(isinstance(one, ServiceError) for one in found):
            raise next(one for one in found if isinstance(one, ServiceError))
        return Scored(name, None if threshold is None else threshold.risk, found)

    async def run_model(self, cost_tokens: int, work: Callable[[], T]) -> T:
        """Any other work on the model, in its thread, with the same bounds: `cost_tokens` is what it takes of them."""
        async with self._deadline():
            return await self._result(WorkJob(tokens=max(1, cost_tokens), work=work))

    async def prepare(self, work: Callable[[], T]) -> T:
        """Work without the model, off the event loop."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)

    async def render(self, work: Callable[[], T]) -> T:
        """The same for chat templates: each starts a process, and scores must not wait for those."""
        async with self._deadline():
            return await asyncio.get_running_loop().run_in_executor(self._renderers, work)

    async def ask(self, wish: Wish, detector: str | None) -> AsyncIterator[Written]:
        """The pieces of an answer, as they are written; the last one has the score."""
        loop = asyncio.get_running_loop()
        until = loop.time() + self.limits.deadline
        asking = self._loaded.answers.asking
        tokens = await self.prepare(lambda: asking.cost(wish, detector))
        if tokens > self.limits.item_tokens:
            raise self.too_long("messages")
        pieces: asyncio.Queue[Written | None] = asyncio.Queue()
        job = AskJob(tokens=tokens, wish=wish, detector=detector, hear=pieces.put_nowait)
        job.done.add_done_callback(lambda _: pieces.put_nowait(None))
        try:
            self.thread.submit(job)
            while (one := await asyncio.wait_for(pieces.get(), until - loop.time())) is not None:
                if one.error is not None:
                    raise one.error
                yield one
            await job.done  # what went wrong is raised here
        except TimeoutError:
            raise errors.past_deadline(self.limits.deadline) from None
        finally:
            job.forget()
            self._queue.end(job)

    async def _result(self, job: Job) -> Any:
        try:
            self.thread.submit(job)
            return await job.done
        finally:
            job.forget()
            self._queue.end(job)

    @asynccontextmanager
    async def _deadline(self) -> AsyncIterator[None]:
        """Whatever takes longer ends with 504."""
        try:
            async with asyncio.timeout(self.limits.deadline):
                yield
        except TimeoutError:
            raise errors.past_deadline(self.limits.deadline) from None

    async def _items(self, detector: Detector, pairs: Sequence[tuple[str, str]]) -> list[Item]:
        """Questions and answers as tokens."""
        for place, pair in enumerate(pairs):
            for name, text in zip(("question", "answer"), pair, strict=True):
                if len(text) > self.limits.item_characters:
                    raise self.too_long(f"items[{place}].{name}")
        questions = [asked(*pair, place) for place, pair in enumerate(pairs)]
        if detector.trained.setting.exact_tokens == "model":  # the model itself names the key words
            cost = sum(len(question) + len(answer) for question, answer in pairs)
            return await self.run_model(cost, lambda: detector.session.items(questions))
        return await self.prepare(lambda: detector.session.items(questions))

    def _cost(self, item: Item, place: int) -> int:
        tokens = item.answer.needs if item.tokens is None else len(item.located.input_ids)
        if tokens > self.limits.item_tokens and item.answer.status != TOO_LONG:
            raise self.too_long(f"items[{place}]")
        return max(1, min(tokens, self.limits.item_tokens))

    def too_long(self, param: str) -> ServiceError:
        """A text beyond the limit."""
        return ServiceError(
            413, "item_too_long", f"The text has more than {self.limits.item_tokens:,} tokens; shorten it.", param=param
        )

    def stop_admitting(self) -> None:
        """From now on requests are refused; those under way go on."""
        self.is_draining = True

    def close(self, seconds: float = 5.0) -> bool:
        """Ends the model thread; whether it ended in time."""
        self.is_draining = True
        self.thread.abandon()
        for pool in (self._pool, self._renderers):
            pool.shutdown(wait=False, cancel_futures=True)
        ended = not self.thread.is_alive() or self.thread.stop(seconds)
        self.log.close()
        return ended


def by_id(found: Sequence[TrainedDetector]) -> dict[str, TrainedDetector]:
    """Detectors of one model by their names; where two have the same name, with the beginning of their sha256."""
    first = found[0]
    for one in found[1:]:
        theirs, ours = one.setting, first.setting
        if (theirs.fingerprint, theirs.tokenizer) != (ours.fingerprint, ours.tokenizer):
            raise UserError(
                f"The bundles are of different models ({first.name!r} of {ours.model!r}, {one.name!r} of "
                f"{theirs.model!r}); one process serves one model: start another one for the other."
            )
    names = [one.name for one in found]
    ids = [one.name if names.count(one.name) == 1 else f"{one.name}-{(one.sha256 or '')[:8]}" for one in found]
    if len(set(ids)) < len(ids):
        twice = next(one for one in ids if ids.count(one) > 1)
        raise UserError(f"The detector {twice!r} is given twice; name every bundle once.")
    return dict(zip(ids, found, strict=True))
