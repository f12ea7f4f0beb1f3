"""What one batch runs: a row per item and variant, each only from the first position that its cut changes.

Everything before that position is as in the clean run: so every item has one clean row, as long as others need it. A
variant whose layers begin higher up joins at its first layer, with the clean row's stream. A patched row joins
likewise, and takes the stream of some positions from its donor's clean row; donors run clean in the same batch. At the
first layer the stream is made of token embeddings, so a patched row begins with its donor's tokens there.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from anchorscope.engine.sequences import NO_CUT, Cut, Patch, TokenSequence, Variant
from anchorscope.errors import InterventionNotApplied


class Row(NamedTuple):
    """Some positions of one item, run under one cut."""

    item: int
    first: int
    stop: int
    cut: Cut = NO_CUT
    opens: int = 0
    """The layer at which the row, and its cut, begins."""
    closes: int = 0
    """The first layer that is no longer cut."""
    patch: Patch | None = None
    """The states that it takes from another item where it begins."""


@dataclass(frozen=True)
class Joining:
    places: NDArray[np.int64]
    """Indices in the stream that they start from."""
    positions: NDArray[np.int64]
    """Their own positions."""


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
        changed: list[tuple[int, Row]] = []  # (variant, row)
        needed: dict[int, int] = {}
        for item in items:
            others, upto = _item_rows(
                sequences[item], item, variants, n_prefix, n_layers
            )
            changed += others
            for who, stop in upto.items():
                if stop > len(sequences[who].ids):
                    raise InterventionNotApplied(
                        f"a patch takes states of position {stop - 1}, which its donor lacks"
                    )
                needed[who] = max(stop, needed.get(who, n_prefix))
        clean = [
            Row(item, n_prefix, stop)
            for item, stop in needed.items()
            if stop > n_prefix
        ]
        changed.sort(key=lambda pair: pair[1].opens)
        self.rows = [*clean, *(row for _, row in changed)]
        self.n_prefix = n_prefix
        self.variant = np.array([-1] * len(clean) + [variant for variant, _ in changed])
        """The variant of each row; -1 for a clean one, which may serve several."""
        columns = zip(
            *((row.first, row.stop, row.opens, row.closes) for row in self.rows),
            strict=True,
        )
        self.first, self.stop, self.opens, self.closes = map(np.array, columns)
        self._turns = np.union1d(self.opens, self.closes).tolist()
        self.own = np.concatenate([[0], np.cumsum(self.stop - self.first)])
        """Index of each row's first token; the number of all tokens at the end."""
        clean_row = {row.item: index for index, row in enumerate(clean)}
        self.clean_start = {
            row.item: int(self.own[index]) for index, row in enumerate(clean)
        }
        self.clean = self.own[[clean_row.get(row.item, 0) for row in self.rows]]
        row_of = {
            (variant, row.item): len(clean) + index
            for index, (variant, row) in enumerate(changed)
        }
        self.readings = []
        for index, variant in enumerate(variants):
            run = tuple(filter(variant.runs, items))
            self.readings.append(
                Reading(
                    run,
                    tuple(
                        row_of.get((index, item), clean_row.get(item, 0))
                        for item in run
                    ),
                )
            )

    def positions(self) -> Tensor:
        """Position of every token of the rows that begin with the first layer."""
        at_once = self.open_at(0)
        return torch.from_numpy(all_between(self.first[:at_once], self.stop[:at_once]))

    def stretch(self, layer: int) -> int:
        """The number of a layer's stretch: in all its layers the same rows run and lose edges."""
        return bisect_right(self._turns, layer)

    def open_at(self, layer: int) -> int:
        """How many rows, the first ones, run in a layer."""
        return int((self.opens <= layer).sum())

    def cut_at(self, layer: int) -> NDArray[np.bool_]:
        """Which of the rows that run in a layer lose edges there."""
        open_rows = self.open_at(layer)
        return (self.opens[:open_rows] <= layer) & (layer < self.closes[:open_rows])

    def token_indices(
        self, rows: NDArray[np.int64], positions: NDArray[np.int64], layer: int
    ) -> NDArray[np.int64]:
        """Indices of positions [row, …] as rows see them in a layer: their own tokens, or the clean row's before."""
        column = (slice(None), *([None] * (positions.ndim - 1)))
        first, opens = self.first[rows][column], self.opens[rows][column]
        own, clean = self.own[rows][column], self.clean[rows][column]
        is_own = (positions >= first) & (opens <= layer)
        return np.where(
            is_own, own + positions - first, clean + positions - self.n_prefix
        )

    def joining(self, layer: int) -> Joining | None:
        """The tokens of the rows that begin at this later layer; None if none does."""
        if layer == 0 or not (self.opens == layer).any():
            return None
        places, positions = [], []
        for new in np.flatnonzero(self.opens == layer).tolist():
            row = self.rows[new]
            positions.append(np.arange(row.first, row.stop))
            places.append(self.clean[new] + positions[-1] - self.n_prefix)
            if row.patch is not None:
                taken = (
                    self.clean_start[row.patch.donor]
                    + np.array(row.patch.donor_positions)
                    - self.n_prefix
                )
                places[-1][np.array(row.patch.positions) - row.first] = taken
        return Joining(np.concatenate(places), np.concatenate(positions))

    def ids(self, sequences: Sequence[TokenSequence]) -> NDArray[np.int64]:
        """Token ids of the rows that begin with the first layer; of a patched one, its donor's."""
        at_once = self.rows[: self.open_at(0)]
        tokens = chain.from_iterable(
            sequences[row.item].ids[row.first : row.stop] for row in at_once
        )
        ids = np.fromiter(tokens, dtype=np.int64, count=int(self.own[len(at_once)]))
        for start, row in zip(self.own.tolist(), at_once, strict=False):
            if row.patch is not None:
                donor = sequences[row.patch.donor].ids
                taken = [donor[position] for position in row.patch.donor_positions]
                ids[start + np.array(row.patch.positions) - row.first] = taken
        return ids


def all_between(first: NDArray[np.int64], stop: NDArray[np.int64]) -> NDArray[np.int64]:
    """All whole numbers from each first to before its stop, concatenated."""
    lengths = stop - first
    ends = np.cumsum(lengths)
    return np.arange(lengths.sum()) + np.repeat(first - (ends - lengths), lengths)


def _item_rows(
    sequence: TokenSequence,
    item: int,
    variants: Sequence[Variant],
    n_prefix: int,
    n_layers: int,
) -> tuple[list[tuple[int, Row]], dict[int, int]]:
    """The changed rows of one item, and how far clean rows are needed: its own and its donors'."""
    rows, needed, n = [], {item: n_prefix}, len(sequence.ids)
    for index, variant in enumerate(variants):
        if not variant.runs(item):
            continue
        cut, patch = variant.cut(item), variant.patch(item)
        if not cut.changes and patch is None:
            needed[item] = n
            continue
        layers = range(n_layers) if variant.layers is None else variant.layers
        if layers.step != 1 or not 0 <= layers.start < layers.stop <= n_layers:
            raise InterventionNotApplied(
                f"a change is asked for in layers {layers}, and there are 0 to {n_layers - 1}"
            )
        if patch is None:
            row = Row(
                item,
                _first_query(sequence, cut, n_prefix),
                n,
                cut,
                layers.start,
                layers.stop,
            )
        else:
            refuse_lost_patch(sequence, patch, n_prefix)
            row = Row(item, min(patch.positions), n, opens=layers.start, patch=patch)
            if row.opens:
                needed[patch.donor] = max(
                    needed.get(patch.donor, n_prefix), max(patch.donor_positions) + 1
                )
        rows.append((index, row))
        # One that begins in the middle starts from the clean stream at all of its positions.
        needed[item] = max(needed[item], n if row.opens else row.first)
    return rows, needed


def tokens_of(
    sequence: TokenSequence,
    item: int,
    variants: Sequence[Variant],
    n_prefix: int,
    n_layers: int,
) -> int:
    """How many tokens run for an item, all variants and donors together; 0 if none runs it."""
    rows, needed = _item_rows(sequence, item, variants, n_prefix, n_layers)
    return sum(stop - n_prefix for stop in needed.values()) + sum(
        row.stop - row.first for _, row in rows
    )


def _first_query(sequence: TokenSequence, cut: Cut, n_prefix: int) -> int:
    """The first position that loses an edge; a cut that removes nothing is refused."""
    if min(cut.keys) < n_prefix or max(cut.keys) >= len(sequence.ids):
        # A key inside the shared prefix would have to be cut from the prefix's own later tokens, and those are not run.
        raise InterventionNotApplied(
            f"a cut names keys {cut.keys}, and only {n_prefix} to {len(sequence.ids) - 1} are run; "
            f"keys inside the shared prefix need a run without it"
        )
    first = cut.first_query(sequence)
    if first >= len(sequence.ids):
        raise InterventionNotApplied(
            f"cutting keys {cut.keys} ({cut.edges}) takes no attention edge from its item"
        )
    return first


def refuse_lost_patch(sequence: TokenSequence, patch: Patch, n_prefix: int) -> None:
    """States of the shared prefix aren't run here, so they can be neither replaced nor given."""
    if min(*patch.positions, *patch.donor_positions, n_prefix) < n_prefix or max(
        patch.positions
    ) >= len(sequence.ids):
        raise InterventionNotApplied(
            f"a patch names positions {patch.positions} and {patch.donor_positions} of its donor, and only those from "
            f"{n_prefix} on are run, up to {len(sequence.ids) - 1} of the item"
        )
