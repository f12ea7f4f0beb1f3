"""Workers for tests that say that they have an accelerator, and compute on this machine's processor."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from anchorscope.execute.executor import Description, Executor, LocalExecutor
from anchorscope.plan.passes import DeviceWork

if TYPE_CHECKING:
    from anchorscope.execute.parts import Part
    from anchorscope.execute.worker import Shard
    from anchorscope.models.language_model import LanguageModel
    from anchorscope.progress import Progress

NAME = "Accelerator 3000"


class Accelerated(LocalExecutor):
    """Shards and parts travel as they do between machines; work on the accelerator is done on the processor."""

    folder = None

    def divide(self, work: Any) -> Sequence[Any]:
        return work.shards()

    def forget_states(self) -> None:
        """None were written."""

    def __init__(self, load: Callable[[], LanguageModel], **told: Any) -> None:
        super().__init__(load, **told)
        self.asked: list[DeviceWork] = []
        """What had to be done on the accelerator."""

    def describe(self) -> Description:
        found = super().describe()
        return replace(found, numerics=replace(found.numerics, device=NAME))

    def map(self, shards: Sequence[Shard], progress: Progress) -> Iterator[Part]:
        for shard in shards:
            came = pickle.loads(pickle.dumps(shard))
            if isinstance(came, DeviceWork):
                self.asked.append(came)
                came = replace(came, device="cpu")
            yield pickle.loads(pickle.dumps(self.worker.run(came, progress)))


class AcceleratedGroups:
    """In place of a command's worker groups."""

    def __init__(self, load: Callable[[], LanguageModel]) -> None:
        self._load = load
        self.executor: Accelerated | None = None

    def of(self, choice: Any, job: Any, tell: Any) -> AcceleratedGroups:
        """The group of a model."""
        return self

    def for_run(self, folder: Any, lowered: Callable[[int], None], expected: Any) -> Executor:
        """The executor of a run."""
        self.executor = Accelerated(self._load, lowered=lowered)
        return self.executor

    def counts(self) -> None:
        """Nothing is counted."""
