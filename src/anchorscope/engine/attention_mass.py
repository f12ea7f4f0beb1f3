"""How much attention each token of an item receives from later ones in the clean run, all layers and heads together.

A token's mass is the sum of the weights, after the softmax, that later tokens give to it; the diagonal, which no cut
takes away, is left out. Every later token of the item counts alike, those of the question and those of the answer;
where only the answer's own tokens lose edges (`direct`), only they are counted. So the mass of a set of tokens is what
cutting them takes away in the first layer that is cut. (Under `outside` the weights among the set itself are counted
too: which those are hangs on the set.)

The clean pass brings it along: beside each layer's attention, its weights are written out, which a fused kernel never
does; they are summed layer by layer and never held together.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor

from anchorscope.engine.rows import BatchRows
from anchorscope.engine.sequences import TokenSequence
from anchorscope.models.attention import Weights


@dataclass(frozen=True)
class AttentionMass:
    """The attention that the tokens of one item receive."""

    first: int
    """Position of the first token that is told of; those before it are shared by all items and not looked at."""
    received: tuple[float, ...]
    """Of each token from there on, summed over layers, heads and later tokens."""

    def of(self, keys: Iterable[int]) -> float:
        """What tokens at these positions receive together."""
        places = [key - self.first for key in keys]
        if any(not 0 <= place < len(self.received) for place in places):
            raise ValueError(f"keys {list(keys)}, and attention is known from {self.first} on, of {len(self.received)}")
        return sum(self.received[place] for place in places)


class AttentionSums:
    """The attention that the tokens of a batch without cuts receive, summed layer by layer as it is run."""

    def __init__(self, sequences: Sequence[TokenSequence], rows: BatchRows, edges: str, device: torch.device) -> None:
        self.items = [row.item for row in rows.rows]
        self.received: Float[Tensor, "row key_pos"] = torch.zeros(0, device=device)
        self._starts = torch.tensor([sequences[item].answer_start for item in self.items], device=device)
        self._rows, self._edges = rows, edges

    @cached_property
    def _counted(self) -> Float[Tensor, "row pos key_pos"]:
        """Which weights count, as 0 and 1."""
        device, n_keys = self.received.device, self.received.shape[1]
        lengths = self._rows.stop - self._rows.first
        queries = self._rows.n_prefix + torch.arange(int(lengths.max()), device=device)
        counts = queries < torch.from_numpy(self._rows.stop).to(device)[:, None]
        if self._edges == "direct":
            counts &= queries >= self._starts[:, None]
        later = queries[:, None] > torch.arange(n_keys, device=device)
        return (counts[:, :, None] & later).float()

    def add(self, weights: Weights) -> None:
        """Adds the weights of a layer."""
        n_rows, n_keys = len(self.items), weights.shape[-1]
        if not len(self.received):
            self.received = torch.zeros(n_rows, n_keys, device=self.received.device)
        counted = self._counted
        together = weights.view(n_rows, -1, counted.shape[1], n_keys).sum(dim=1).to(counted.device)  # all heads
        self.received += (together * counted).sum(dim=1)

    def masses(self, sequences: Sequence[TokenSequence]) -> dict[int, AttentionMass]:
        """By the items' indices; waits for the device."""
        first, received = self._rows.n_prefix, self.received.cpu()
        return {
            item: AttentionMass(first, tuple(row[first : len(sequences[item].ids)].tolist()))
            for item, row in zip(self.items, received, strict=True)
        }
