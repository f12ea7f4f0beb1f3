"""What shards give: plain arrays and records, by the kind of pass."""

from dataclasses import dataclass, field
from typing import Any

from jaxtyping import Float, Int
from numpy import ndarray
from torch import Tensor

from anchorscope.engine.capture import AnswerStats, AttentionMass, EdgeCounts
from anchorscope.engine.decode import Decoded
from anchorscope.engine.saliency import Saliency


@dataclass(frozen=True)
class VariantPart:
    """What one variant of a pass gave."""

    items: Int[ndarray, " item"]
    """Indices of the sequences that were run, in order."""
    logits: Float[ndarray, "item position site probe layer"] | None
    """Log-odds of "truthful", where probes were given; only one of each axis where only one was wanted."""
    states: Float[Tensor, "place layer item d_model"] | None
    """States at the places that were to be kept, in host memory; those of all shards where they are in a file."""
    answers: AnswerStats | None = None
    """Statistics of the items' answer tokens, where they were wanted of all variants."""


@dataclass(frozen=True)
class StatesPart:
    """What a shard of a pass gave."""

    variants: tuple[VariantPart, ...]
    edges: EdgeCounts
    """How many attention edges every variant lost in every layer."""
    log_probs: dict[int, tuple[float, ...]]
    """Log-probabilities of the answer's tokens, by sequence, where they were wanted."""
    attention: dict[int, AttentionMass] = field(default_factory=dict)
    """The attention that tokens receive, by sequence, where it was wanted."""


@dataclass(frozen=True)
class DecodedPart:
    """What the model wrote after each prompt, in their order."""

    texts: list[Decoded]


@dataclass(frozen=True)
class SaliencyPart:
    """Saliency of the items, in order."""

    found: Saliency


@dataclass(frozen=True)
class ChoicesPart:
    """How likely the chosen tokens are."""

    prompts: Int[ndarray, " prompt"]
    """Indices of the prompts that were run."""
    log_probs: Float[ndarray, "prompt choice"]


@dataclass(frozen=True)
class DevicePart:
    """What device work gave."""

    found: Any


Part = StatesPart | DecodedPart | SaliencyPart | ChoicesPart | DevicePart
