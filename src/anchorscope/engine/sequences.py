"""What the engine is given: token sequences, and what to cut in them. Positions are absolute indices into `ids`."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from anchorscope.errors import UserError

SITES = ("attention", "mlp", "residual")
"""Where states are read: what attention adds, what the feed-forward part adds, the stream after the block."""
EDGES = ("all", "outside", "direct")
"""Which later queries lose a cut key: all; those outside the cut keys; those of the answer only."""
HOW = ("mask", "zero")
"""How an edge is cut: masked before the softmax, so that the rest renormalises; or its weight set to 0 after it."""


@dataclass(frozen=True)
class TokenSequence:
    ids: tuple[int, ...]
    answer_start: int
    read_at: tuple[int, ...]
    """The positions whose states are wanted, the same number for every item."""


@dataclass(frozen=True)
class Cut:
    """Attention edges to remove from one item's run, or to weaken or strengthen, in every cut layer.

    A token's attention to itself is never changed.
    """

    keys: tuple[int, ...]
    """Positions that later ones no longer attend to, or attend to less or more."""
    edges: str = "all"
    how: str = "mask"
    heads: tuple[int, ...] | None = None
    """The query heads that lose the edges; None for all."""
    alpha: float = -1.0
    """Scores of the edges get + log(1 + alpha) before the softmax: −1 removes them, 0 changes nothing, above 0
    strengthens."""

    def __post_init__(self) -> None:
        if self.edges not in EDGES or self.how not in HOW:  # a plug-in's
            raise UserError(
                f"A cut has edges {self.edges!r} and how {self.how!r}; allowed: {', '.join((*EDGES, *HOW))}. Change "
                f"the intervention that makes it."
            )
        if not -1 <= self.alpha < math.inf:
            raise UserError(
                f"A cut has alpha {self.alpha!r}; allowed: −1 (removes edges), or a number above it that is finite. "
                f"Change the intervention that makes it."
            )

    @property
    def changes(self) -> bool:
        return bool(self.keys) and self.alpha != 0

    @property
    def bias(self) -> float:
        return -math.inf if self.alpha == -1 else math.log1p(self.alpha)

    def first_query(self, sequence: TokenSequence) -> int:
        """The first position that loses an edge; the length if none does."""
        if not self.changes:
            return len(sequence.ids)
        first = min(self.keys) + 1
        if self.edges == "direct":
            return max(first, sequence.answer_start)
        if self.edges == "outside":
            keys = set(self.keys)
            return next(
                position
                for position in range(first, max(keys) + 2)
                if position not in keys
            )
        return first

    def takes_edges(self, sequence: TokenSequence, window: int | None) -> bool:
        """Whether a layer with this window has any of the cut edges; the nearest query decides."""
        if window is None:
            return True
        keys = set(self.keys)
        for key in self.keys:
            query = (
                max(key + 1, sequence.answer_start)
                if self.edges == "direct"
                else key + 1
            )
            while self.edges == "outside" and query in keys:
                query += 1
            if query < min(len(sequence.ids), key + window):
                return True
        return False


@dataclass(frozen=True)
class Patch:
    """States of one item's run to replace, at the entry of one layer, by another item's clean ones."""

    positions: tuple[int, ...]
    """Positions of the item whose states are replaced, in order, each once."""
    donor: int
    """Index of the item that gives its states; may be the item itself."""
    donor_positions: tuple[int, ...]
    """As many."""


@dataclass(frozen=True)
class Variant:
    """One way to run the items: clean, or with a cut each, in some layers or in all, or with a patch each."""

    cuts: Mapping[int, Cut] | None = None
    """The cut of each item that is run; None for the clean run of all."""
    layers: range | None = None
    """The layers that lose the edges; None for all. A patch is made at the entry of the first."""
    patches: Mapping[int, Patch] | None = None
    """The patch of each item that is run, without cuts; None where none is patched."""

    def cut(self, item: int) -> Cut:
        """An item's cut; an empty one in the clean run."""
        return NO_CUT if self.cuts is None else self.cuts[item]

    def patch(self, item: int) -> Patch | None:
        return None if self.patches is None else self.patches[item]

    def runs(self, item: int) -> bool:
        named = self.cuts if self.patches is None else self.patches
        return named is None or item in named

    def take(self, index_of: Mapping[int, int], items: Sequence[int]) -> "Variant":
        """The same for some of the items; `place` maps them to their new indices."""
        cuts, patches = self.cuts, self.patches
        if cuts is not None:
            cuts = {index_of[item]: cuts[item] for item in items if item in cuts}
        if patches is not None:
            patches = {
                index_of[item]: replace(
                    patches[item], donor=index_of[patches[item].donor]
                )
                for item in items
                if item in patches
            }
        return replace(self, cuts=cuts, patches=patches)


NO_CUT = Cut(keys=())
CLEAN = Variant()


def shared_prefix_length(
    sequences: Sequence[Sequence[int]], limits: Sequence[int]
) -> int:
    """How many leading tokens all sequences share, at most `limits[i]` of each; one token of each remains to run."""
    if not sequences:
        return 0
    first = sequences[0]
    length = min(
        min(limits), *(len(sequence) - 1 for sequence in sequences), len(first)
    )
    for sequence in sequences[1:]:
        while length and tuple(sequence[:length]) != tuple(first[:length]):
            length -= 1
    return length


def refuse_unread_positions(sequences: Sequence[TokenSequence], n_prefix: int) -> None:
    """A negative index relative to the prefix would silently read another token."""
    for sequence in sequences:
        if not all(
            n_prefix <= position < len(sequence.ids) for position in sequence.read_at
        ):
            raise ValueError(
                f"positions {sequence.read_at} cannot be read: only {n_prefix} to {len(sequence.ids) - 1} are run"
            )
