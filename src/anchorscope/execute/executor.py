"""An executor runs shards of passes and gives their parts: in this process or on workers, with the same bits.

Nothing else is run on workers: probes are fitted, and tables made, in the process of the command.
"""

import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from anchorscope.errors import UserError
from anchorscope.execute.numerics import NumericsClass, differences, numerics_of
from anchorscope.execute.worker import Part, Shard, Worker
from anchorscope.files import partial_name
from anchorscope.models.language_model import LanguageModel, ModelIdentity
from anchorscope.models.sources import ModelFiles
from anchorscope.plan.passes import Planner, planner_for
from anchorscope.progress import Progress


@dataclass(frozen=True)
class Description:
    """What is needed of a loaded model to plan everything else without it."""

    identity: ModelIdentity
    planner: Planner
    """With the number of tokens that its memory suggests."""
    numerics: NumericsClass
    """What the last digits depend on."""
    files: ModelFiles = field(default_factory=dict)
    """The files that it was loaded from; none where it was given in memory, or drawn at random."""


def describe(lm: LanguageModel) -> Description:
    """Called right after the model was loaded."""
    return Description(lm.identity(), planner_for(lm), numerics_of(lm))


class Executor(ABC):
    """Runs shards. The defaults are those of one process, which hands states over in memory."""

    is_local: bool = False
    """Whether shards run in this process."""
    folder: Path | None = None
    """Where workers write states and other large tensors; None where they are handed back."""
    lowered: Callable[[int], None] = staticmethod(lambda tokens: None)
    """Called where memory ran out: from now on this many tokens run together."""
    _begun_with: Callable[[], NumericsClass | None] = staticmethod(lambda: None)

    def begin_run(
        self,
        work: Path,
        lowered: Callable[[int], None],
        begun_with: Callable[[], NumericsClass | None],
    ) -> None:
        """What follows belongs to a run, whose states go to a folder in `work`; `begun_with` is the numerics class of
        one that is resumed."""
        self.lowered = lowered
        self._begun_with = begun_with
        self.folder = None if self.is_local else work / partial_name("states")

    def check_numerics(self) -> None:
        """Before the first shard: refuses to resume a run that was begun with other numerics."""
        begun_with, self._begun_with = self._begun_with(), lambda: None
        other = (
            ""
            if begun_with is None
            else differences(self.describe().numerics, begun_with)
        )
        if other:
            raise UserError(
                f"This run was begun with other numerics: {other}; its numbers would be of two kinds. Resume it where "
                f"it was begun, or start over with --fresh."
            )

    def divide(self, work: Any) -> Sequence[Any]:
        """The shards of a pass: its batches; one process runs it whole, which gives the same bits."""
        return [work]

    def forget_states(self) -> None:
        """Removes what workers wrote to `folder`."""
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def n_layers(self) -> int:
        return self.describe().planner.n_layers

    def facts(self) -> dict[str, Any] | None:
        """Who ran the passes, for the manifest; None where no worker was needed."""
        return None

    def close(self) -> None:
        self.__dict__.pop("worker", None)

    @abstractmethod
    def describe(self) -> Description:
        """The model that shards run on; it is loaded if it has to be."""

    @abstractmethod
    def map(self, shards: Sequence[Shard], progress: Progress) -> list[Part]:
        """The part of each shard, in their order; raises `MemoryRanOut` where a batch does not fit."""


class LocalExecutor(Executor):
    """One worker in this process; the model is loaded when the first shard comes."""

    is_local = True

    def __init__(
        self,
        load: Callable[[], LanguageModel],
        lowered: Callable[[int], None] = lambda tokens: None,
    ) -> None:
        self._load, self.lowered = load, lowered

    @cached_property
    def worker(self) -> Worker:
        return Worker(self._load())

    @property
    def n_layers(self) -> int:
        return self.worker.lm.n_layers

    @cached_property
    def _description(self) -> Description:
        return describe(self.worker.lm)

    def describe(self) -> Description:
        return self._description

    def map(self, shards: Sequence[Shard], progress: Progress) -> list[Part]:
        self.check_numerics()
        return [self.worker.run(shard, progress) for shard in shards]
