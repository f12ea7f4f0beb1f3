"""What shards of passes give, where it is more than the engine's own records."""

from dataclasses import dataclass, field

from jaxtyping import Float, Int
from numpy import ndarray
from torch import Tensor

from anchorscope.engine.capture import AnswerStats, AttentionMass, EdgeCounts


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
class ChoicesPart:
    """How likely the chosen tokens are."""

    prompts: Int[ndarray, " prompt"]
    """Indices of the prompts that were run."""
    log_probs: Float[ndarray, "prompt choice"]
