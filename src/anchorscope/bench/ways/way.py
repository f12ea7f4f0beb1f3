"""What a way is: the same work, done in one manner, giving the same states."""

from typing import Protocol

from torch import Tensor

from anchorscope.bench.workload import Workload


class CannotDo(Exception):
    """A way that cannot do a thing; the text says why and, where there is a remedy, what it is."""


class Way(Protocol):
    """One manner to do the work. States come back in host memory, in the model's own precision."""

    name: str

    def tune(self, workload: Workload) -> str:
        """Finds what is fastest here (the batch size) before anything is measured, and tells it in words."""

    def knockout(self, workload: Workload) -> Tensor:
        """What attention adds at the last token, clean and with the cut in every layer, [2, layer, item, d_model]."""

    def single_layer(self, workload: Workload) -> Tensor:
        """The same with the cut in one layer, [cut layer, layer, item, d_model]; layers below the cut stay zero."""

    def tokens(self, work: str, workload: Workload) -> float:
        """Tokens that really run through all blocks; one that runs through half of them counts half."""

    def close(self) -> None:
        """Gives back what it holds of the model."""
