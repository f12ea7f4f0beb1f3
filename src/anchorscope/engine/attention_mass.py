"""How much attention each token of an item receives from later ones in the clean run, all layers and heads together.

A token's mass is the sum of the weights, after the softmax, that later tokens give to it; the diagonal, which no cut
takes away, is left out. Every later token of the item counts alike, those of the question and those of the answer;
where only the answer's own tokens lose edges (`direct`), only they are counted. So the mass of a set of tokens is what
cutting them takes away in the first layer that is cut. (Under `outside` the weights among the set itself are counted
too: which those are hangs on the set.)

One pass over the items as they are, with the weights written out, which a fused kernel never does; they are summed
layer by layer and never held together.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from anchorscope.engine.batching import Budget, run_in_batches
from anchorscope.engine.forward import not_finite, run_layers
from anchorscope.engine.keys_values import Prefix
from anchorscope.engine.packed import Packed
from anchorscope.engine.rows import BatchRows
from anchorscope.engine.sequences import CLEAN, TokenSequence
from anchorscope.models.attention import Weights
from anchorscope.models.language_model import LanguageModel
from anchorscope.progress import Progress, Silent


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


def attention_mass(
    lm: LanguageModel,
    sequences: Sequence[TokenSequence],
    prefix: Prefix,
    batches: Sequence[Sequence[int]],
    edges: str = "all",
    budget: Budget | None = None,
    progress: Progress | None = None,
    title: str = "attention mass",
) -> dict[int, AttentionMass]:
    """The attention that the own tokens of every item of the batches receive, by the item's index."""
    listener = progress or Silent()
    found: dict[int, AttentionMass] = {}

    def run(batch: list[int]) -> None:
        received = _Batch(lm, sequences, prefix, batch, edges).received.cpu()
        for item, row in zip(batch, received, strict=True):
            own = row[prefix.length : len(sequences[item].ids)]
            found[item] = AttentionMass(prefix.length, tuple(own.tolist()))
        if not bool(torch.isfinite(received).all()):
            raise not_finite(lm)
        listener.advance(len(batch))

    listener.start(title, sum(len(batch) for batch in batches))
    run_in_batches(batches, lambda: [len(one.ids) - prefix.length for one in sequences], budget, run)
    listener.finish()
    return found


class _Batch:
    """One batch, run clean."""

    def __init__(
        self, lm: LanguageModel, sequences: Sequence[TokenSequence], prefix: Prefix, batch: list[int], edges: str
    ) -> None:
        rows = BatchRows(sequences, batch, [CLEAN], prefix.length, lm.n_layers)
        packed = Packed(lm, sequences, rows, prefix, watch=self._watch)
        n, n_keys = int((rows.stop - rows.first).max()), packed.n_keys
        queries = prefix.length + torch.arange(n, device=lm.device)
        stop = torch.from_numpy(rows.stop).to(lm.device)
        starts = torch.tensor([sequences[item].answer_start for item in batch], device=lm.device)
        counts = queries < stop[:, None]
        if edges == "direct":
            counts &= queries >= starts[:, None]
        later = queries[:, None] > torch.arange(n_keys, device=lm.device)
        self.counted = (counts[:, :, None] & later).float()
        """Which weights count, [row, pos, key_pos], as 0 and 1."""
        self.received: Float[Tensor, "row key_pos"] = torch.zeros(len(batch), n_keys, device=lm.device)
        # Nothing is read: of the last block a single token is run, as some blocks cannot be run on none.
        run_layers(lm, packed.ids, packed.positions, packed, lambda *_: None, read=torch.zeros(1, dtype=torch.long))

    def _watch(self, layer: int, weights: Weights) -> None:
        rows, n, n_keys = self.counted.shape
        together = weights.view(rows, -1, n, n_keys).sum(dim=1).to(self.counted.device)  # all heads
        self.received += (together * self.counted).sum(dim=1)
