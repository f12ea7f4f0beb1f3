"""An executor takes shards and gives their parts; here all of them are run in this process, one after the other.

A worker on another machine implements the same: it is handed shards, which are plain data, and hands back parts, which
are plain arrays and records.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any, Protocol

from anchorscope.answers.generate import Answer
from anchorscope.engine.saliency import Saliency
from anchorscope.execute.merge import merge_states
from anchorscope.execute.worker import AnswersPart, Part, SaliencyPart, Shard, StatesPart, Worker
from anchorscope.models.language_model import LanguageModel
from anchorscope.plan.passes import AnswersPass, SaliencyPass, StatesPass
from anchorscope.progress import Progress


class Executor(Protocol):
    """Runs shards."""

    @property
    def n_shards(self) -> int:
        """How many shards a pass is best cut into."""
        ...

    def map(self, shards: Sequence[Shard], progress: Progress) -> Iterator[Part]:
        """The part of each shard, in their order."""
        ...


class LocalExecutor:
    """One worker in this process; the model is loaded when the first shard comes."""

    n_shards = 1

    def __init__(self, load: Callable[[], LanguageModel], lowered: Callable[[int], None] = lambda tokens: None) -> None:
        self._load, self._lowered = load, lowered

    @cached_property
    def worker(self) -> Worker:
        """The worker, with its model."""
        return Worker(self._load(), self._lowered)

    def map(self, shards: Sequence[Shard], progress: Progress) -> Iterator[Part]:
        """The part of each shard, in their order."""
        for shard in shards:
            yield self.worker.run(shard, progress)


def run_states(executor: Executor, work: StatesPass, progress: Progress) -> StatesPart:
    """A whole pass, its parts merged by item and checked: every cut took edges in every layer that it was asked for."""
    parts = [_of(StatesPart, part) for part in executor.map(work.shards(executor.n_shards), progress)]
    return merge_states(parts)


def run_answers(executor: Executor, work: AnswersPass, progress: Progress) -> list[Answer]:
    """Answers to all questions of a pass."""
    (part,) = executor.map(work.shards(executor.n_shards), progress)
    return _of(AnswersPart, part).answers


def run_saliency(executor: Executor, work: SaliencyPass, progress: Progress) -> Saliency:
    """Saliency of all items of a pass."""
    (part,) = executor.map(work.shards(executor.n_shards), progress)
    return _of(SaliencyPart, part).found


def _of(kind: type[Any], part: Part) -> Any:
    assert isinstance(part, kind), f"a worker gave {type(part).__name__} where {kind.__name__} was due"
    return part
