"""The pass with gradients, planned: how many tokens run together is found from the model's sizes, not on the way."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from jaxtyping import Float
from torch import Tensor

from anchorscope.engine.batching import MOST_AT_ONCE, plan_batches
from anchorscope.engine.sequences import TokenSequence
from anchorscope.plan.passes import Planner


@dataclass(frozen=True)
class SaliencyPass:
    """Sequences to go back through, from a probe's log-odds to the attention weights."""

    sequences: tuple[TokenSequence, ...]
    prefix: tuple[int, ...]
    keys: dict[str, tuple[tuple[int, ...], ...]]
    """Sets of positions whose attention is looked at, item by item."""
    site: str
    """Where the probe reads."""
    layers: tuple[int, ...]
    """The layer that each item's probe reads."""
    weight: Float[Tensor, "item d_model"]
    bias: Float[Tensor, " item"]
    batches: tuple[tuple[int, ...], ...] = ()
    batch_tokens: int = 0
    title: str = "saliency"
    items: tuple[int, ...] = ()
    """What the sequences of a shard are called in the whole pass; empty where this is the whole."""

    @property
    def n_items(self) -> int:
        """How many sequences are run."""
        return sum(len(batch) for batch in self.batches)

    def shards(self) -> "list[SaliencyPass]":
        """One per batch."""
        return [self._shard(batch) for batch in self.batches]

    def _shard(self, batch: tuple[int, ...]) -> "SaliencyPass":
        own = list(batch)
        return replace(
            self,
            sequences=tuple(self.sequences[item] for item in own),
            keys={name: tuple(sets[item] for item in own) for name, sets in self.keys.items()},
            layers=tuple(self.layers[item] for item in own),
            weight=self.weight[own],
            bias=self.bias[own],
            batches=(tuple(range(len(own))),),
            items=batch,
        )

    def lengths(self, n_layers: int) -> list[int]:
        """Tokens that are run for each sequence."""
        return [len(sequence.ids) - len(self.prefix) for sequence in self.sequences]

    def replanned(self, tokens: int, n_layers: int) -> "SaliencyPass":
        """The same work in smaller batches; items that end at the same layer run together."""
        lengths, at_once = self.lengths(n_layers), min(tokens, MOST_AT_ONCE)
        batches = [
            tuple(batch)
            for level in sorted(set(self.layers), reverse=True)
            for batch in plan_batches(lengths, at_once, [at for at, layer in enumerate(self.layers) if layer == level])
        ]
        return replace(self, batches=tuple(batches), batch_tokens=tokens)


def plan_saliency(
    planner: Planner,
    sequences: Sequence[TokenSequence],
    prefix: tuple[int, ...],
    keys: dict[str, tuple[tuple[int, ...], ...]],
    site: str,
    layers: Sequence[int],
    weight: Float[Tensor, "item d_model"],
    bias: Float[Tensor, " item"],
) -> SaliencyPass:
    """The pass, with as many tokens together as the budget and memory with gradients allow."""
    whole = SaliencyPass(tuple(sequences), prefix, keys, site, tuple(layers), weight, bias)
    tokens = planner.batch_tokens
    if planner.memory is not None:
        longest = max(len(sequence.ids) for sequence in sequences)
        tokens = min(tokens, planner.memory.tokens_with_gradients(max(layers) + 1, longest - len(prefix), longest))
    return whole.replanned(tokens, planner.n_layers)
