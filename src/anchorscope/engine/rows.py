"""What one batch runs: a row per item and variant, each only from the first position that its cut changes.

Everything before that position is as in the clean run, whatever is cut: so every item has one clean row, as long as
others need it, and the rows of its variants begin where they differ. A variant whose layers begin higher up joins in
at its first layer, with the clean row's stream: what lies below is not computed again.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from anchorscope.engine.sequences import NO_CUT, Cut, TokenSequence, Variant
from anchorscope.errors import InterventionNotApplied


@dataclass(frozen=True)
class Row:
    """Some positions of one item, run under one cut."""

    item: int
    first: int
    """The first position that is run."""
    stop: int
    """After the last position that is run."""
    cut: Cut = NO_CUT
    """Empty in a clean row."""
    opens: int = 0
    """The layer at which the row begins, and its cut with it."""
    closes: int = 0
    """The first layer that is not cut any more."""


@dataclass(frozen=True)
class Reading:
    """The items that one variant runs in a batch, and where each one's states are."""

    items: tuple[int, ...]
    rows: tuple[int, ...]


class BatchRows:
    """The rows of a batch, clean ones first, then in the order in which they begin; their tokens stand in one line."""

    def __init__(
        self,
        sequences: Sequence[TokenSequence],
        items: Sequence[int],
        variants: Sequence[Variant],
        n_prefix: int,
        n_layers: int,
    ) -> None:
        clean, changed = [], []  # rows, and (variant, row)
        for item in items:
            others, needed = _item_rows(sequences[item], item, variants, n_prefix, n_layers)
            changed += others
            if needed > n_prefix:
                clean.append(Row(item, n_prefix, needed))
        changed.sort(key=lambda one: one[1].opens)
        self.rows = [*clean, *(row for _, row in changed)]
        self.n_prefix = n_prefix
        self.variant = np.array([-1] * len(clean) + [variant for variant, _ in changed])
        """The variant of each row; -1 for a clean one, which may serve several."""
        self.first = np.array([row.first for row in self.rows])
        self.stop = np.array([row.stop for row in self.rows])
        self.opens = np.array([row.opens for row in self.rows])
        self.closes = np.array([row.closes for row in self.rows])
        self.own = np.concatenate([[0], np.cumsum(self.stop - self.first)])
        """Place of each row's first token; the number of all tokens at the end."""
        clean_row = {row.item: place for place, row in enumerate(clean)}
        self.clean = self.own[[clean_row.get(row.item, 0) for row in self.rows]]
        """Place of the first token of its item's clean row."""
        row_of = {(variant, row.item): len(clean) + place for place, (variant, row) in enumerate(changed)}
        self.readings = []
        for index, variant in enumerate(variants):
            run = tuple(item for item in items if variant.runs(item))
            self.readings.append(Reading(run, tuple(row_of.get((index, item), clean_row.get(item, 0)) for item in run)))

    def positions(self) -> Tensor:
        """Position of every token of the rows that begin with the first layer."""
        at_once = self.rows[: self.open_at(0)]
        return torch.from_numpy(np.concatenate([np.arange(row.first, row.stop) for row in at_once]))

    def open_at(self, layer: int) -> int:
        """How many rows, the first ones, run in a layer."""
        return int((self.opens <= layer).sum())

    def cut_at(self, layer: int) -> NDArray[np.bool_]:
        """Which of the rows that run in a layer lose edges there."""
        open_rows = self.open_at(layer)
        return (self.opens[:open_rows] <= layer) & (layer < self.closes[:open_rows])

    def token_indices(self, rows: NDArray[np.int64], positions: NDArray[np.int64], layer: int) -> NDArray[np.int64]:
        """Places of positions [row, …] as rows see them in a layer: their own tokens, or the clean row's before."""
        column = (slice(None), *([None] * (positions.ndim - 1)))
        first, opens = self.first[rows][column], self.opens[rows][column]
        own, clean = self.own[rows][column], self.clean[rows][column]
        is_own = (positions >= first) & (opens <= layer)
        return np.where(is_own, own + positions - first, clean + positions - self.n_prefix)

    def joining(self, layer: int) -> NDArray[np.int64] | None:
        """Places in the stream that the rows which begin in the middle, at this layer, start from."""
        if layer == 0 or not (self.opens == layer).any():
            return None
        new = np.flatnonzero(self.opens == layer)
        starts = self.clean[new] + self.first[new] - self.n_prefix
        lengths = self.stop[new] - self.first[new]
        return np.concatenate([np.arange(start, start + n) for start, n in zip(starts, lengths, strict=True)])


def _item_rows(
    sequence: TokenSequence, item: int, variants: Sequence[Variant], n_prefix: int, n_layers: int
) -> tuple[list[tuple[int, Row]], int]:
    """The rows with cuts of one item, and up to where its clean row is needed."""
    rows, needed, n = [], n_prefix, len(sequence.ids)
    for index, variant in enumerate(variants):
        if not variant.runs(item):
            continue
        cut = variant.cut(item)
        if not cut.keys:
            needed = n
            continue
        refuse_lost_cut(sequence, cut, n_prefix)
        layers = range(n_layers) if variant.layers is None else variant.layers
        if layers.step != 1 or not 0 <= layers.start < layers.stop <= n_layers:
            raise InterventionNotApplied(f"a cut is asked for in layers {layers}, and there are 0 to {n_layers - 1}")
        row = Row(item, cut.first_query(sequence), n, cut, layers.start, layers.stop)
        rows.append((index, row))
        # One that begins in the middle starts from the clean stream at all of its positions.
        needed = max(needed, n if row.opens else row.first)
    return rows, needed


def tokens_of(
    sequence: TokenSequence, item: int, variants: Sequence[Variant], n_prefix: int, n_layers: int
) -> int:
    """How many tokens run for an item, all variants together; 0 where none runs it."""
    rows, needed = _item_rows(sequence, item, variants, n_prefix, n_layers)
    return needed - n_prefix + sum(row.stop - row.first for _, row in rows)


def refuse_lost_cut(sequence: TokenSequence, cut: Cut, n_prefix: int) -> None:
    """A cut that names keys which are not run, or which nobody comes after, must not pass for one that was made."""
    if min(cut.keys) < n_prefix or max(cut.keys) >= len(sequence.ids):
        # A key inside the shared prefix would have to be cut from the prefix's own later tokens, and those are not run.
        raise InterventionNotApplied(
            f"a cut names keys {cut.keys}, and only {n_prefix} to {len(sequence.ids) - 1} are run; "
            f"keys inside the shared prefix need a run without it"
        )
    if cut.first_query(sequence) >= len(sequence.ids):
        raise InterventionNotApplied(f"cutting keys {cut.keys} ({cut.edges}) takes no attention edge from its item")
