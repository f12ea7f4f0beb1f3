"""States of all layers at the wanted positions, clean or with attention edges cut, batch by batch.

A state at layer l depends on blocks up to l only, so one pass with the same cut in every layer gives "blocks 0 … l cut"
for every l. Only the wanted positions are kept, and each batch goes to the caller at once: nothing piles up here.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from anchorscope.engine.batching import Budget, plan_batches, run_in_batches
from anchorscope.engine.forward import LayerMasks, refuse_not_finite, run_layers
from anchorscope.engine.keys_values import Prefix
from anchorscope.engine.masks import cut_edges
from anchorscope.engine.sequences import SITES, Cut, TokenSequence
from anchorscope.errors import InterventionNotApplied, UserError
from anchorscope.models.families import BlockOutput
from anchorscope.models.language_model import LanguageModel
from anchorscope.progress import Progress, Silent


@dataclass(frozen=True)
class Work:
    """What one pass over a dataset runs."""

    sequences: Sequence[TokenSequence]
    prefix: Prefix
    batches: Sequence[Sequence[int]]
    """Indices into `sequences`; an item may be left out."""
    cuts: Sequence[Cut] | None = None
    """One per sequence; None for a clean pass."""
    budget: Budget | None = None
    """Lowered where memory runs out; None to begin with the largest batch."""

    @property
    def lengths(self) -> list[int]:
        """Tokens that are run of each sequence."""
        return [len(sequence.ids) - self.prefix.length for sequence in self.sequences]


Receive = Callable[[list[int], Tensor], None]
"""Called per batch with the items' indices and their states, [batch, position, site, layer, d_model], on the device."""


def capture(lm: LanguageModel, work: Work, receive: Receive, title: str, progress: Progress | None = None) -> None:
    """Runs all batches and hands each one's states to `receive`."""
    listener = progress or Silent()
    listener.start(title, sum(len(batch) for batch in work.batches))

    def run(batch: list[int]) -> None:
        states = _run_batch(lm, work, batch)
        refuse_not_finite(states, lm)
        receive(batch, states)
        listener.advance(len(batch))

    run_in_batches(work.batches, work.lengths, work.budget, run)
    listener.finish()


def clean_states(
    lm: LanguageModel,
    sequences: Sequence[TokenSequence],
    prefix: Prefix,
    budget: Budget,
    progress: Progress | None = None,
) -> Tensor:
    """Clean states of all items in host memory, [position, site, layer, item, d_model], to train probes on."""
    batches = plan_batches([len(sequence.ids) - prefix.length for sequence in sequences], budget.tokens)
    n_positions = len(sequences[0].read_at)
    kept = torch.empty(n_positions, len(SITES), lm.n_layers, len(sequences), lm.d_model, dtype=lm.dtype)

    def keep(batch: list[int], states: Tensor) -> None:
        kept[..., batch, :] = states.permute(1, 2, 3, 0, 4).cpu()

    capture(lm, Work(sequences, prefix, batches, budget=budget), keep, "clean states", progress)
    return kept


def _run_batch(lm: LanguageModel, work: Work, batch: list[int]) -> Tensor:
    sequences = [work.sequences[index] for index in batch]
    n_prefix = work.prefix.length
    n_keys = max(len(sequence.ids) for sequence in sequences)
    _refuse_unread_positions(sequences, n_prefix)
    removed = None
    if work.cuts is not None:
        cuts = [work.cuts[index] for index in batch]
        _refuse_keys_outside(sequences, cuts, n_prefix)
        removed = cut_edges(sequences, cuts, n_prefix, n_keys)
        _refuse_cuts_without_edges(cuts, removed)
    masks = LayerMasks(lm, n_keys - n_prefix, n_keys, removed)
    collected = _Collected(lm, sequences, n_prefix)
    positions = torch.arange(n_prefix, n_keys, device=lm.device)[None]
    run_layers(lm, _padded(sequences, n_prefix, n_keys, lm), positions, masks.of, work.prefix, collected.visit)
    if removed is not None and bool(removed.any()):
        _refuse_silent_no_op(masks)
    return collected.states


class _Collected:
    """The states at the wanted positions of one batch, filled layer by layer."""

    def __init__(self, lm: LanguageModel, sequences: Sequence[TokenSequence], n_prefix: int) -> None:
        at = torch.tensor([sequence.read_at for sequence in sequences], device=lm.device) - n_prefix
        self.rows = torch.arange(len(sequences), device=lm.device)[:, None]
        self.at = at
        self.states = torch.empty(*at.shape, len(SITES), lm.n_layers, lm.d_model, dtype=lm.dtype, device=lm.device)

    def visit(self, layer: int, output: BlockOutput) -> None:
        device = output.residual.device  # of this layer; the states come together where the embedding is
        rows, at = self.rows.to(device), self.at.to(device)
        for site, name in enumerate(SITES):
            self.states[:, :, site, layer] = getattr(output, name)[rows, at]


def _padded(sequences: Sequence[TokenSequence], n_prefix: int, n_keys: int, lm: LanguageModel) -> Tensor:
    # Padding stands on the right, where causal attention keeps it from every real token; its id does not matter.
    rows = [list(sequence.ids[n_prefix:]) + [0] * (n_keys - len(sequence.ids)) for sequence in sequences]
    return torch.tensor(rows, device=lm.device)


def _refuse_unread_positions(sequences: Sequence[TokenSequence], n_prefix: int) -> None:
    # An index before the prefix's end would count from the back and quietly read another token.
    for sequence in sequences:
        if not all(n_prefix <= position < len(sequence.ids) for position in sequence.read_at):
            raise ValueError(
                f"positions {sequence.read_at} cannot be read: only {n_prefix} to {len(sequence.ids) - 1} are run"
            )


def _refuse_keys_outside(sequences: Sequence[TokenSequence], cuts: Sequence[Cut], n_prefix: int) -> None:
    # A key inside the shared prefix would have to be cut from the prefix's own later tokens too, and those are not run.
    for sequence, cut in zip(sequences, cuts, strict=True):
        if not all(n_prefix <= key < len(sequence.ids) for key in cut.keys):
            raise InterventionNotApplied(
                f"a cut names keys {cut.keys}, and only {n_prefix} to {len(sequence.ids) - 1} are run; "
                f"keys inside the shared prefix need a run without it"
            )


def _refuse_cuts_without_edges(cuts: Sequence[Cut], removed: Tensor) -> None:
    for cut, lost in zip(cuts, removed.flatten(1).any(dim=1).tolist(), strict=True):
        if cut.keys and not lost:
            raise InterventionNotApplied(f"cutting keys {cut.keys} ({cut.edges}) takes no attention edge from its item")


def _refuse_silent_no_op(masks: LayerMasks) -> None:
    missed = [layer for layer, edges in enumerate(masks.edges_cut) if edges == 0]
    hidden = [layer for layer in missed if not masks.has_edges_to_cut(layer)]
    if hidden:
        raise UserError(
            f"In layers {hidden} the sliding window already hides the question from the answer, so that cutting these "
            f"edges changes nothing there; choose --edges all."
        )
    if missed:
        raise InterventionNotApplied(f"layers {missed} were asked to lose attention edges and lost none")
