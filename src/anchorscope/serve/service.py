"""The service without HTTP: detectors of one model, what may be asked of them, and its limits.

A route calls `score`, `answer` or `run_model`; each puts a job into the queue of the model thread and waits for it. A
job that nobody waits for any more, because the deadline has passed, is cancelled.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from anchorscope.datasets.question import Question
from anchorscope.detectors.bundle import TrainedDetector, read_bundle
from anchorscope.detectors.bundle_files import DEMO as DEMO
from anchorscope.detectors.detector import Detector, model_for
from anchorscope.engine.batching import memory_facts
from anchorscope.errors import UserError
from anchorscope.models.language_model import LanguageModel
from anchorscope.models.loading import choose_device
from anchorscope.serve.errors import ServiceError
from anchorscope.serve.model_thread import (
    AnswerJob,
    Draw,
    JobQueue,
    Loaded,
    ModelThread,
    Record,
    ScoreJob,
    WorkJob,
    WrittenAnswer,
)
from anchorscope.serve.monitoring import Metrics, ServiceLog

T = TypeVar("T")
_MOST_BATCH = 8192  # tokens run together: beyond it a large GPU gains nothing, and the next request waits longer
# of a token: few, so that batches are estimated too large rather than too small
_CHARACTERS = 3
_WARM_UP = ("What is the capital of Japan?", "Tokyo")
LOADING, READY, DRAINING, FAILED = "loading", "ready", "draining", "failed"


@dataclass(frozen=True)
class Limits:
    """What a request may take. The usual ones are options of `anchorscope serve`."""

    item_tokens: int = 4096  # tokens of one item, estimated from its characters
    answer_tokens: int = 512  # tokens that the model may write for one request
    body_bytes: int = 2 * 2**20  # bytes of one request's body
    # seconds that a request waits for its turn before it is refused
    queue_seconds: float = 3.0
    # tokens that are run together; None: what suits the device
    batch_tokens: int | None = None
    deadline: float = 60.0  # seconds from a request's last byte to its answer
    # seconds that a client has for its headers, and again for its body
    read_seconds: float = 15.0
    requests: int = 256  # requests under way together


class Service:
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
        self.requests = 0
        """Requests that are under way."""
        self.is_draining = False
        self.queue = JobQueue(self.limits.queue_seconds)
        self.thread = ModelThread(self._load, self.queue, self.metrics, self.log, cores)
        self._load_model = load_model

    def _load(self) -> Loaded:
        """The model with its detectors, warm; runs in the model thread."""
        lm = self._load_model()
        tokens = self.limits.batch_tokens or min(_MOST_BATCH, memory_facts(lm).tokens)
        detectors = {
            name: Detector(trained, lm, tokens)
            for name, trained in self.trained.items()
        }
        for detector in detectors.values():
            detector.score(*_WARM_UP)  # the first pass takes longer than all others
        return Loaded(lm, detectors, tokens)

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
        assert self.thread.loaded is not None, (
            "requests are refused while the model is being loaded"
        )
        return self.thread.loaded

    def find_detector(self, model: str | None, name: str | None) -> str:
        """The id of the detector that a request names, or of the default; the model may be named, too."""
        if model not in (None, "default", self.model):
            message = (
                "This model is not served here; GET /v1/models names the one that is."
            )
            raise ServiceError(404, "model_not_found", message, param="model")
        if name not in (None, *self.trained):
            message = "This detector is not served here; GET /v1/detectors lists those that are."
            raise ServiceError(404, "detector_not_found", message, param="detector")
        return name or self.default

    def count_tokens(self, question: Question, param: str) -> int:
        """Tokens of an item, estimated, without the beginning that all prompts share; too many are refused."""
        texts = (
            question.question,
            question.model_answer or "",
            question.thinking or "",
            *question.context,
        )
        tokens = 16 + sum(map(len, texts)) // _CHARACTERS
        if tokens > self.limits.item_tokens:
            message = f"The text has more than {self.limits.item_tokens:,} tokens; shorten it."
            raise ServiceError(413, "item_too_long", message, param=param)
        return tokens

    async def score(
        self, questions: Sequence[Question], detector: str, risk: float | None = None
    ) -> list[Record | ServiceError]:
        """Scores of questions with their answers; an item that cannot be scored has an error in its place."""
        tokens = sum(
            self.count_tokens(question, f"items[{n}]")
            for n, question in enumerate(questions)
        )
        job = ScoreJob(tokens=tokens, detector=detector, risk=risk, questions=questions)
        self.queue.put(job)
        results = await asyncio.wrap_future(job.result)
        failed = [result for result in results if isinstance(result, ServiceError)]
        if len(failed) == len(results):
            raise failed[0]
        return list(results)

    async def run_model(self, tokens: int, work: Callable[[], T]) -> T:
        """Any other work on the model, in its thread, within the same limits; `tokens` is what it may take."""
        job = WorkJob(tokens=tokens, work=work)
        self.queue.put(job)
        result: T = await asyncio.wrap_future(job.result)
        return result

    async def answer(
        self,
        question: Question,
        detector: str,
        longest: int,
        draw: Draw,
        risk: float | None = None,
    ) -> WrittenAnswer:
        """An answer that the model writes, with the record of its score."""
        tokens = self.count_tokens(question, "messages") + longest
        job = AnswerJob(
            tokens=tokens,
            detector=detector,
            question=question,
            longest=longest,
            draw=draw,
            risk=risk,
        )
        self.queue.put(job)
        result: WrittenAnswer = await asyncio.wrap_future(job.result)
        return result

    def close(self, seconds: float = 5.0) -> bool:
        """Ends the model thread; whether it ended in time."""
        self.is_draining = True
        self.thread.abandon()
        self.queue.close()
        if self.thread.is_alive():
            self.thread.join(seconds)
        self.log.close()
        return not self.thread.is_alive()


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
    chosen = choose_device(device)
    first = next(iter(trained.values()))
    own_cores = (
        1 if cores is None and chosen == "cpu" else cores
    )  # beside other work, two threads were slower than one
    return Service(
        trained,
        lambda: model_for(first, model, None, chosen, dtype),
        limits,
        log,
        own_cores,
    )


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
    names = [detector.name for detector in detectors]
    ids = [
        detector.name
        if names.count(detector.name) == 1
        else f"{detector.name}-{(detector.sha256 or '')[:8]}"
        for detector in detectors
    ]
    if len(set(ids)) < len(ids):
        raise UserError(
            f"A detector is given twice ({', '.join(ids)}); name every bundle once."
        )
    return dict(zip(ids, detectors, strict=True))
