"""How much a loss depends on attention edges: |A · ∂L/∂A| per layer and head, summed over sets of edges.

A is a weight after the softmax; to first order, A · ∂L/∂A is what the loss would lose if that weight were 0. Queries
are the answer's tokens, keys are sets named by the caller. The pass is the clean one, with gradients to the attention
weights and nowhere else. Each layer's weights are summed as soon as their gradient exists, so that the gradients of all
layers are never held together.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Float32
from numpy.typing import NDArray
from torch import Tensor

from anchorscope.engine.forward import Packed, Prefix, not_finite, run_layers
from anchorscope.engine.rows import BatchRows
from anchorscope.engine.sequences import (
    CLEAN,
    SITES,
    TokenSequence,
    refuse_unread_positions,
)
from anchorscope.errors import InterventionNotApplied
from anchorscope.models.families import BlockOutput
from anchorscope.models.language_model import LanguageModel
from anchorscope.progress import Progress, Silent

ALL = "all"

Loss = Callable[
    [list[int], Float[Tensor, "item position site layer d_model"]],
    Float[Tensor, " item"],
]
"""From items and their states, up to the highest layer that one needs: each item's loss. Tensors multiplied with the
states must not have been made in inference mode (clone them)."""


@dataclass(frozen=True)
class Saliency:
    values: Float32[np.ndarray, "item set layer head"]
    """Heads as the queries have them; 0 above the layer that an item's loss reads."""
    sets: tuple[str, ...]
    """Names of the sets of keys: those asked for, then `ALL`."""

    def of(self, name: str) -> Float32[np.ndarray, "item layer head"]:
        return self.values[:, self.sets.index(name)]


# a caller may be in it, and nothing that was made there can be gone back through
@torch.inference_mode(False)
def saliency(
    lm: LanguageModel,
    sequences: Sequence[TokenSequence],
    prefix: Prefix,
    keys: Mapping[str, Sequence[tuple[int, ...]]],
    loss: Loss,
    tops: Sequence[int],
    batches: Sequence[Sequence[int]],
    progress: Progress | None = None,
    title: str = "saliency",
) -> Saliency:
    """Saliency of every item: from each of its sets of keys to the queries of its answer.

    Queries are the positions from `answer_start` to the last one read, or that one alone if it lies before the answer.
    `tops` are the layers that each item's loss reads: no block above a batch's highest is run.
    """
    refuse_unread_positions(sequences, prefix.length)
    lm = lm.without_learning()
    copies = (
        tuple(tensor.clone() for tensor in part)
        for part in (prefix.keys, prefix.values)
    )
    # torch can't go back through tensors made in inference mode
    prefix = Prefix(prefix.ids, *copies)
    listener = progress or Silent()
    listener.start(title, len(sequences))
    by_item: dict[int, NDArray[np.float32]] = {}
    for batch in batches:
        layers = max(tops[item] for item in batch) + 1
        values = _Batch(lm, sequences, prefix, keys, loss, layers, list(batch)).back()
        by_item.update(zip(batch, values, strict=True))
        listener.advance(len(batch))
    listener.finish()
    stacked = np.stack([by_item[item] for item in range(len(sequences))])
    if not np.isfinite(stacked).all():
        raise not_finite(lm)
    return Saliency(stacked, (*keys, ALL))


def refuse_no_gradient(measured: Saliency) -> Saliency:
    """Raises where the loss depends on no attention weight of any item."""
    if not measured.values.any():
        raise InterventionNotApplied(
            "no attention weight of any item has a gradient: the loss does not depend on them"
        )
    return measured


class _Sums:
    """Sums a layer's weights with their gradients; knows nothing of their graph."""

    def __init__(self, queries: Tensor, sets: Tensor, lm: LanguageModel) -> None:
        self.queries, self.sets = queries, sets
        """Which queries of a row count, [row, pos], and which keys are in each set, [row, set, key_pos], as 0 and 1."""
        self.found = torch.zeros(
            *sets.shape[:2], lm.n_layers, lm.n_heads, device=sets.device
        )
        """[row, set, layer, head]."""

    def add(self, layer: int, weights: Tensor, gradient: Tensor) -> None:
        """A layer's |A · ∂L/∂A|, from [row, key_head, group · pos, key_pos]."""
        rows, n, n_keys = len(weights), self.queries.shape[1], weights.shape[-1]
        # heads of one group follow each other
        single = (weights * gradient).abs_().view(rows, -1, n, n_keys)
        per_key = torch.einsum("rhqk,rq->rhk", single, self.queries.to(single.device))
        self.found[:, :, layer] = torch.einsum(
            "rhk,rsk->rsh", per_key.to(self.sets.device), self.sets
        )


class _Batch:
    def __init__(
        self,
        lm: LanguageModel,
        all_sequences: Sequence[TokenSequence],
        prefix: Prefix,
        keys: Mapping[str, Sequence[tuple[int, ...]]],
        loss: Loss,
        layers: int,
        batch: list[int],
    ) -> None:
        self.lm, self.layers = lm, layers
        sequences = [all_sequences[item] for item in batch]
        rows = BatchRows(all_sequences, batch, [CLEAN], prefix.length, lm.n_layers)
        packed = Packed(lm, all_sequences, rows, prefix, watch=self._watch)
        queries = _queries(
            sequences, prefix.length, int((rows.stop - rows.first).max())
        )
        sets = _key_sets(
            [[sets[item] for item in batch] for sets in keys.values()],
            sequences,
            packed.n_keys,
        )
        device = self.lm.device
        self.sums = _Sums(
            torch.from_numpy(queries).to(device),
            torch.from_numpy(sets).to(device),
            self.lm,
        )
        self.tokens_read = rows.token_indices(
            np.arange(len(batch)), np.array([item.read_at for item in sequences]), 0
        )
        self.first_weights = torch.empty(0)
        self.read: list[Tensor] = []
        """States of each layer at the positions that are read."""
        read = torch.from_numpy(self.tokens_read).flatten()
        run_layers(
            self.lm,
            packed.ids,
            packed.positions,
            packed,
            self._visit,
            read=read,
            layers=self.layers,
            gradients=True,
        )
        with torch.enable_grad():
            self.losses = loss(batch, torch.stack(self.read, dim=3))

    def back(self) -> NDArray[np.float32]:
        """From each loss back to the weights; [item, set, layer, head]."""
        # What is wanted comes through the hooks on the way; items do not know each other, so one sum serves all.
        torch.autograd.grad(self.losses.sum(), [self.first_weights], allow_unused=True)
        return self.sums.found.cpu().numpy()

    def _watch(self, weights: Tensor) -> Tensor:
        layer = len(self.read)  # states of a layer are read after its attention
        if layer == 0:  # nothing below it is asked for a gradient
            self.first_weights = weights.requires_grad_()
        values, sums = (
            weights.detach(),
            self.sums,
        )  # not the batch, which holds the graph: the two would never be freed
        weights.register_hook(lambda gradient: sums.add(layer, values, gradient))
        return weights

    def _visit(self, layer: int, output: BlockOutput) -> None:
        indices = torch.from_numpy(self.tokens_read).to(output.residual.device)
        # of the last block there is nothing but what is read
        if layer == self.layers - 1:
            indices = torch.arange(self.tokens_read.size, device=indices.device).view(
                self.tokens_read.shape
            )
        states = torch.stack(
            [getattr(output, name)[0, indices] for name in SITES], dim=2
        )
        self.read.append(states.to(self.lm.device))


def _queries(
    sequences: Sequence[TokenSequence], n_prefix: int, n: int
) -> NDArray[np.float32]:
    chosen = np.zeros((len(sequences), n), dtype=np.float32)
    for row, sequence in enumerate(sequences):
        last = max(sequence.read_at)
        chosen[
            row, min(sequence.answer_start, last) - n_prefix : last + 1 - n_prefix
        ] = 1
    return chosen


def _key_sets(
    named: Sequence[Sequence[tuple[int, ...]]],
    sequences: Sequence[TokenSequence],
    n_keys: int,
) -> NDArray[np.float32]:
    chosen = np.zeros((len(sequences), len(named) + 1, n_keys), dtype=np.float32)
    for row, sequence in enumerate(sequences):
        for index, sets in enumerate(named):
            chosen[row, index, list(sets[row])] = 1
        chosen[row, -1, : len(sequence.ids)] = 1
    return chosen
