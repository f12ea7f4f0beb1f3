"""An executor runs shards and gives their parts: in this process, in several, or on a cluster, with the same bits."""

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from anchorscope.execute.numerics import NumericsClass, numerics_of
from anchorscope.execute.parts import Part
from anchorscope.execute.worker import Shard, Worker
from anchorscope.models.language_model import LanguageModel, ModelIdentity
from anchorscope.plan.passes import Planner, planner_for
from anchorscope.progress import Progress


@dataclass(frozen=True)
class Description:
    """What has to be known of a loaded model, so that everything else can be planned without it."""

    identity: ModelIdentity
    planner: Planner
    """With the number of tokens that its memory suggests."""
    numerics: NumericsClass
    """What the last digits hang on."""


def describe(lm: LanguageModel) -> Description:
    """Asked right after the model was loaded."""
    return Description(lm.identity(), planner_for(lm), numerics_of(lm))


@runtime_checkable
class Executor(Protocol):
    """Runs shards."""

    folder: Path | None
    """Where workers write states and other large tensors; None where they are handed back."""

    @property
    def n_workers(self) -> int:
        """How many shards can run at the same time."""
        ...

    def divide(self, work: Any) -> Sequence[Any]:
        """What a pass is divided into: its batches; one process runs it whole, which gives the same bits."""
        ...

    @property
    def n_layers(self) -> int:
        """How many blocks the model has."""
        ...

    def lowered(self, tokens: int) -> None:
        """Memory ran out: from now on so many tokens run together."""
        ...

    def forget_states(self) -> None:
        """Removes what workers wrote to `folder`."""
        ...

    def describe(self) -> Description:
        """The model that shards run on; it is loaded for that if it has to be."""
        ...

    def map(self, shards: Sequence[Shard], progress: Progress) -> Generator[Part, None, None]:
        """The part of each shard, in their order; raises `MemoryRanOut` where a batch does not fit."""
        ...


@runtime_checkable
class ShardFolder(Protocol):
    """What an executor needs of the run folder that it works for."""

    @property
    def work(self) -> Path:
        """Where steps are."""

    def tell(self, what: str) -> None:
        """Something that the user has to know."""


@runtime_checkable
class Workers(Protocol):
    """Workers that several runs may share."""

    def for_run(
        self, folder: ShardFolder, lowered: Callable[[int], None], expected: Callable[[], NumericsClass | None]
    ) -> Executor:
        """The executor of one run; `lowered` is told where memory ran out, `expected` tells what it was begun with."""
        ...

    def counts(self) -> dict[str, Any] | None:
        """What became of shards and workers, for the manifest."""
        ...


class LocalExecutor:
    """One worker in this process; the model is loaded when the first shard comes."""

    folder: Path | None = None
    n_workers = 1

    def __init__(self, load: Callable[[], LanguageModel], lowered: Callable[[int], None] = lambda tokens: None) -> None:
        self._load, self._lowered = load, lowered

    def lowered(self, tokens: int) -> None:
        """Memory ran out: from now on so many tokens run together."""
        self._lowered(tokens)

    def divide(self, work: Any) -> Sequence[Any]:
        """The pass, whole."""
        return [work]

    def forget_states(self) -> None:
        """There are none: states are handed over."""

    @cached_property
    def worker(self) -> Worker:
        """The worker, with its model."""
        return Worker(self._load())

    @property
    def n_layers(self) -> int:
        """How many blocks the model has."""
        return self.worker.lm.n_layers

    def describe(self) -> Description:
        """The model that shards run on."""
        return describe(self.worker.lm)

    def map(self, shards: Sequence[Shard], progress: Progress) -> Generator[Part, None, None]:
        """The part of each shard, in their order."""
        for shard in shards:
            yield self.worker.run(shard, progress)
