"""Answers that the model writes for requests: who waits, who is under way, what each step gave.

All of it runs in the model thread, between batches of scores.
"""

from collections.abc import Sequence

from anchorscope.detectors.asking import Asking, Written
from anchorscope.errors import UserError
from anchorscope.models.devices import free_memory, is_device_lost, is_out_of_memory
from anchorscope.serve.errors import failed
from anchorscope.serve.jobs import AskJob
from anchorscope.serve.log import ServiceLog
from anchorscope.serve.metrics import Metrics
from anchorscope.serve.queue import TokenQueue


class Answering:
    """Jobs that have a ticket, and those that wait for one."""

    def __init__(self, asking: Asking, queue: TokenQueue, metrics: Metrics, log: ServiceLog) -> None:
        self.asking = asking
        self._queue, self._metrics, self._log = queue, metrics, log
        self._jobs: dict[int, AskJob] = {}

    def __len__(self) -> int:
        return len(self._jobs)

    def under_way(self) -> Sequence[AskJob]:
        """The jobs that have begun."""
        return list(self._jobs.values())

    def admit(self) -> None:
        """Answers that are wanted begin, as far as there is room; those that nobody waits for end."""
        for old, job in list(self._jobs.items()):
            if job.is_over:
                self.asking.drop(old)
                del self._jobs[old]
        waiting = self._queue.take_asks()
        for place, job in enumerate(waiting):
            try:
                ticket = self.asking.join(job.wish, job.detector)
            except Exception as error:
                self._fail(job, error, "join")
                continue
            if ticket is None:
                self._queue.put_back(waiting[place:])
                return
            self._jobs[ticket] = job

    def step(self) -> None:
        """One token more for every answer."""
        try:
            written = self.asking.step()
        except Exception as error:  # a step belongs to all: none of them can be trusted to go on
            if is_device_lost(error):
                raise
            for ticket, job in list(self._jobs.items()):
                self.asking.drop(ticket)
                self._fail(job, error, "step")
                del self._jobs[ticket]
            return
        for one in written:
            self._heard(one)

    def _heard(self, one: Written) -> None:
        job = self._jobs.get(one.ticket)
        if job is None:
            return
        job.tell(one)
        if one.reason is None and one.error is None:
            return
        del self._jobs[one.ticket]
        self._metrics.written.inc(one.new_tokens)
        if one.score is not None and job.detector is not None:
            self._metrics.items.labels(job.detector).inc()
            self._metrics.verdicts.labels(job.detector, one.score.verdict).inc()
        job.give(None)
        self._queue.release(job)

    def _fail(self, job: AskJob, error: Exception, where: str) -> None:
        if isinstance(error, UserError):
            return job.fail(error)
        if is_out_of_memory(error):
            error.__traceback__ = None  # it holds on to the tensors of the step
            free_memory()
            self._metrics.memory.inc()
        self._log.fault(error, where)
        job.fail(failed())
