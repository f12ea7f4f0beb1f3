"""The implementations that are timed: each does all of the work in its own manner, and all give the same states.

They are made by name when they are first needed; one whose package is not installed says how to get it.
"""

from importlib import import_module
from importlib.util import find_spec
from typing import Protocol

from torch import Tensor

from anchorscope.bench.workload import Workload
from anchorscope.models.language_model import LanguageModel


class CannotDo(Exception):
    """An implementation cannot do a thing; the text says why and, where there is a remedy, what it is."""


class Implementation(Protocol):
    """One way to do the work. States come back in host memory, in the model's own precision."""

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


HOMES = {
    "anchorscope": ("own", "Own", None),
    "plain": ("plain", "Plain", None),
    "plain-batched": ("plain", "PlainBatched", None),
    "transformer-lens": ("libraries", "WithTransformerLens", "transformer_lens"),
    "nnsight": ("libraries", "WithNnsight", "nnsight"),
}
"""File, class, and the package that an implementation needs beyond this one's own."""


def is_foreign(name: str) -> bool:
    """Whether an implementation is another library's."""
    return HOMES[name][2] is not None


def make(name: str, lm: LanguageModel) -> Implementation:
    """An implementation, ready to run on a loaded model."""
    file, kind, needs = HOMES[name]
    if needs is not None and find_spec(needs) is None:
        raise CannotDo(f"{needs} is not installed; get it with: pip install 'anchorscope[bench]'")
    try:
        implementation: Implementation = getattr(import_module(f"anchorscope.bench.implementations.{file}"), kind)(lm)
    except ImportError as error:
        raise CannotDo(f"{needs or name} cannot be imported here ({str(error).splitlines()[0]})") from error
    return implementation
