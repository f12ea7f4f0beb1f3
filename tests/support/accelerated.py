"""Workers for tests that say that they have an accelerator, and compute on this machine's processor."""

import pickle
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from anchorscope.execute.executor import Description, LocalExecutor
from anchorscope.execute.ray_executor import WarmModels
from anchorscope.execute.worker import Part, Shard
from anchorscope.models.language_model import LanguageModel
from anchorscope.plan.passes import DeviceWork
from anchorscope.progress import Progress

NAME = "Accelerator 3000"


class Accelerated(LocalExecutor):
    """Shards and parts travel as they do between machines; work on the accelerator is done on the processor."""

    is_local = False

    def divide(self, work: Any) -> Sequence[Any]:
        return work.shards()

    def __init__(self, load: Callable[[], LanguageModel], **told: Any) -> None:
        super().__init__(load, **told)
        self.asked: list[DeviceWork] = []
        """What had to be done on the accelerator."""

    def describe(self) -> Description:
        found = super().describe()
        return replace(found, numerics=replace(found.numerics, device=NAME))

    def map(self, shards: Sequence[Shard], progress: Progress) -> list[Part]:
        parts = []
        for shard in shards:
            came = pickle.loads(pickle.dumps(shard))
            if isinstance(came, DeviceWork):
                self.asked.append(came)
                came = replace(came, device="cpu")
            parts.append(pickle.loads(pickle.dumps(self.worker.run(came, progress))))
        return parts


class AcceleratedModels(WarmModels):
    def __init__(self, load: Callable[[], LanguageModel]) -> None:
        super().__init__()
        self.accelerated = Accelerated(load)

    def executor(self, choice: Any, job: Any, progress: Any) -> Accelerated:
        return self.accelerated
