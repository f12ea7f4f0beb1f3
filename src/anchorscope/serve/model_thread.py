"""The one thread that runs the model: batches of scores, other work, and steps of answers, in turn.

No time is spent waiting for a batch to fill: while one is run, the next one's items arrive. After a batch, answers that
are being written get as much time as the batch took, so that neither stands still. A batch that fails is tried again in
halves, down to the one item that cannot be scored; one that memory does not hold is halved, and so are those to come.
"""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from anchorscope.detectors.detector import Detector
from anchorscope.errors import MemoryRanOut, UserError
from anchorscope.models.devices import free_memory, is_device_lost, is_out_of_memory
from anchorscope.models.language_model import LanguageModel
from anchorscope.models.process_settings import threads
from anchorscope.serve.answering import Answering
from anchorscope.serve.errors import draining, failed, item_failed
from anchorscope.serve.jobs import Entry, Job, WorkJob
from anchorscope.serve.log import ServiceLog
from anchorscope.serve.metrics import Metrics
from anchorscope.serve.queue import TokenQueue

_FEWEST_TOKENS = 64  # of a batch, however often memory ran out


@dataclass(frozen=True)
class Loaded:
    """The model with its detectors."""

    lm: LanguageModel
    detectors: Mapping[str, Detector]
    batch_tokens: int
    """Tokens that are run together."""
    answers: Answering
    """Those that the model is writing."""


class ModelThread(threading.Thread):
    """Loads the model and does what waits in the queue, until it is stopped."""

    def __init__(
        self, load: Callable[[], Loaded], queue: TokenQueue, metrics: Metrics, log: ServiceLog, cores: int | None = None
    ) -> None:
        super().__init__(name="model", daemon=True)
        self.queue = queue
        self.batch_tokens = 0
        self.loaded: Loaded | None = None
        self.error: BaseException | None = None
        """Why the model could not be loaded, or why the thread ended."""
        self.is_set_up = threading.Event()
        """Set when the model is loaded, or could not be."""
        self._running: Sequence[Job] = ()
        """The jobs of the batch that is being run."""
        self._load, self._metrics, self._log, self._cores = load, metrics, log, cores

    def submit(self, job: Job) -> "Job":
        """Takes a job in; its `done` is what to wait for."""
        self.queue.put(job)
        return job

    def stop(self, seconds: float) -> bool:
        """Ends after what is being run; whether it has ended in time."""
        self.queue.close()
        self.join(seconds)
        return not self.is_alive()

    def run(self) -> None:
        """The thread's whole life."""
        try:
            with threads(self._cores):
                loaded = self._load()
                self.batch_tokens = loaded.batch_tokens
                self.loaded = loaded
                self.is_set_up.set()
                while self.queue.wait(0 if loaded.answers else None):
                    self._round(loaded)
        except BaseException as error:
            self.error = error
            if not isinstance(error, UserError):
                self._log.fault(error, "model thread")
        finally:
            self.is_set_up.set()

    def _round(self, loaded: Loaded) -> None:
        """A batch or a piece of work, then answers for as long as that took."""
        began = time.monotonic()
        found = self.queue.take(self.batch_tokens)
        self._running = [found] if isinstance(found, WorkJob) else [one.job for one in found or ()]
        if isinstance(found, WorkJob):
            self._work(found)
        elif found is not None:
            self._score(loaded.detectors[found[0].job.detector], found)
        self._running = []
        until = time.monotonic() + (time.monotonic() - began)
        loaded.answers.admit()
        while len(loaded.answers):
            loaded.answers.step()
            if time.monotonic() >= until:
                break
            loaded.answers.admit()

    def _work(self, job: WorkJob) -> None:
        try:
            job.give(job.work())
        except UserError as error:
            job.fail(error)
        except Exception as error:
            if is_device_lost(error):
                raise
            if is_out_of_memory(error):
                free_memory()
            self._log.fault(error, "work")
            job.fail(failed())
        self.queue.release(job)

    def _score(self, detector: Detector, entries: Sequence[Entry]) -> None:
        """Runs a batch, in halves where it fails; every entry gets a score or an error."""
        entries = [one for one in entries if not one.job.is_over]
        if not entries:
            return
        tokens, began = sum(one.tokens for one in entries), time.monotonic()
        try:
            scores = detector.score_items([one.item for one in entries], risk=entries[0].job.risk)
        except Exception as error:
            told = self._what_failed(error, entries)
        else:
            ran = sum(one.tokens for one in entries if one.item.tokens is not None)  # of others nothing is run
            if ran:
                self.queue.rate.add(ran, max(time.monotonic() - began, 1e-6))
            self._metrics.batch_items.observe(len(entries))
            self._metrics.batch_tokens.observe(tokens)
            for entry, score in zip(entries, scores, strict=True):
                self._metrics.items.labels(entry.job.detector).inc()
                self._metrics.verdicts.labels(entry.job.detector, score.verdict).inc()
                entry.job.put(entry.place, score)
                self.queue.release(entry.job, entry.tokens)
            return
        if len(entries) > 1:  # outside the handler: an exception holds on to every tensor of the pass
            half = len(entries) // 2
            self._score(detector, entries[:half])
            self._score(detector, entries[half:])
            return
        self._metrics.failed_items.inc()
        entries[0].job.put(entries[0].place, item_failed(entries[0].place, *told))
        self.queue.release(entries[0].job, entries[0].tokens)

    def _what_failed(self, error: Exception, entries: Sequence[Entry]) -> list[str]:
        """What may be said of it to whoever asked; memory that ran out makes later batches smaller."""
        if is_device_lost(error):
            raise error  # ends the thread, and with it the service: whoever watches it starts another
        if is_out_of_memory(error) or isinstance(error, MemoryRanOut):
            error.__traceback__ = None
            free_memory()
            self._metrics.memory.inc()
            half = sum(one.tokens for one in entries) // 2
            self.batch_tokens = max(_FEWEST_TOKENS, min(self.batch_tokens, half))
            return ["memory does not suffice for it"]
        if len(entries) == 1:
            self._log.fault(error, "item")
        return [str(error).rstrip(".")] if isinstance(error, UserError) else []

    def abandon(self) -> None:
        """Whoever still waits is told that the service ends."""
        begun = () if self.loaded is None else self.loaded.answers.under_way()
        for job in [*self.queue.take_all(), *self._running, *begun]:
            job.fail(draining())
