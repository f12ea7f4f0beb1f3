"""Attention over the rows of a batch whose tokens stand in one line, without padding between them.

Only attention needs the rows apart: it gathers each row's queries, and its keys from the shared prefix, from the
item's clean row and from the row itself. All other parts of a block run on the line as it is.

Masks are causal, within a layer's window, without the cut edges. They are floats (a boolean mask is silently added as 0
and 1 under eager attention), and minus infinity where an edge is cut, so that the rest renormalises exactly. The
diagonal always stays: no row is ever empty. Edges whose weight is set to 0 after the softmax are kept apart, and a mask
has a dimension for heads only where some heads are cut and others are not. An edge that is weakened or strengthened has
a finite number in the mask: added after the soft cap, and nothing where causality or a window hides the key anyway.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import chain

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from torch import Tensor

from anchorscope.engine.keys_values import Prefix
from anchorscope.engine.rows import BatchRows, Joining
from anchorscope.engine.sequences import EDGES, Cut, TokenSequence
from anchorscope.errors import InterventionNotApplied
from anchorscope.models.attention import Edit, Keys, Queries, Weights, attention_weights, masked_attention, per_group
from anchorscope.models.devices import to_device
from anchorscope.models.language_model import LanguageModel

MASK_WIDTH = 8
"""Keys are padded to a multiple of this: kernels that take a mask want its rows aligned."""


@dataclass(frozen=True)
class CutRows:
    """The cuts of a batch's rows, as tensors on the device."""

    keys: Bool[Tensor, "row key_pos"]
    """Which positions are cut keys."""
    edges: Int[Tensor, " row"]
    """Index into `EDGES`."""
    answer_start: Int[Tensor, " row"]
    zeroing: Bool[Tensor, " row"]
    """Whether weights are set to 0 after the softmax, instead of a mask before it."""
    bias: Float[Tensor, " row"]
    """What is added to the scores of the edges; minus infinity where they are cut."""
    heads: Bool[Tensor, "row head"] | None
    """The query heads that lose edges; None where all do, in every row."""
    kinds: "CutKinds"
    """The same in the host's memory, where it is asked before anything is computed; of all rows of the batch."""

    @classmethod
    def of(
        cls, cuts: Sequence[Cut], answer_starts: Sequence[int], n_keys: int, n_heads: int, device: torch.device
    ) -> "CutRows":
        """Tensors from the records."""
        keys = np.zeros((len(cuts), n_keys), dtype=bool)
        cut_keys = np.fromiter(chain.from_iterable(cut.keys for cut in cuts), dtype=np.int64)
        keys[np.repeat(np.arange(len(cuts)), [len(cut.keys) for cut in cuts]), cut_keys] = True
        kinds = CutKinds.of(cuts)
        keys_, edges_, starts_, zeroing_, bias_ = (
            to_device(part, device) for part in (keys, kinds.edges, np.array(answer_starts), kinds.zeroing, kinds.bias)
        )
        heads = _heads(cuts, n_heads, device) if kinds.by_head.any() else None
        return cls(keys_, edges_, starts_, zeroing_, bias_, heads, kinds)

    def first(self, rows: int) -> "CutRows":
        """The cuts of the first rows."""
        heads = None if self.heads is None else self.heads[:rows]
        keys, edges, starts = self.keys[:rows], self.edges[:rows], self.answer_start[:rows]
        return CutRows(keys, edges, starts, self.zeroing[:rows], self.bias[:rows], heads, self.kinds)

    def removed(self, queries: Int[Tensor, "row pos"]) -> Bool[Tensor, "row pos key_pos"]:
        """The edges that are lost, weakened or strengthened, for queries at these positions."""
        key = torch.arange(self.keys.shape[1], device=queries.device)
        later = queries[:, :, None] > key
        kinds = self.edges[:, None, None]
        among_keys = self.keys.gather(1, queries.clamp(max=self.keys.shape[1] - 1))
        later &= ~((kinds == EDGES.index("outside")) & among_keys[:, :, None])
        later &= ~((kinds == EDGES.index("direct")) & (queries < self.answer_start[:, None])[:, :, None])
        return later & self.keys[:, None, :]


@dataclass(frozen=True)
class CutKinds:
    """How the cuts of all rows are made, whatever their keys: few kinds, so that each is looked at once."""

    edges: Int[np.ndarray, " row"]
    """Index into `EDGES`."""
    zeroing: Bool[np.ndarray, " row"]
    """Whether weights are set to 0 after the softmax."""
    bias: Float[np.ndarray, " row"]
    """What is added to scores."""
    biasing: Bool[np.ndarray, " row"]
    """Whether edges are weakened or strengthened."""
    by_head: Bool[np.ndarray, " row"]
    """Whether only some heads lose edges."""

    @classmethod
    def of(cls, cuts: Sequence[Cut]) -> "CutKinds":
        """From the records."""
        places: dict[tuple[object, ...], int] = {}
        first: list[Cut] = []  # one cut of each kind

        def kind(cut: Cut) -> int:
            place = places.setdefault((cut.edges, cut.how, cut.alpha, cut.heads is None, cut.changes), len(first))
            if place == len(first):
                first.append(cut)
            return place

        of_row: NDArray[np.int64] = np.fromiter(map(kind, cuts), dtype=np.int64, count=len(cuts))
        found = (
            np.array([EDGES.index(one.edges) for one in first]),
            np.array([one.how == "zero" for one in first]),
            np.array([one.bias for one in first], dtype=np.float32),
            np.array([one.changes and one.alpha != -1 for one in first]),
            np.array([one.heads is not None for one in first]),
        )
        return cls(*(of_kind[of_row] for of_kind in found))


def _heads(cuts: Sequence[Cut], n_heads: int, device: torch.device) -> Tensor:
    chosen = np.zeros((len(cuts), n_heads), dtype=bool)
    for row, cut in enumerate(cuts):
        if cut.heads is not None and max(cut.heads) >= n_heads:
            raise InterventionNotApplied(f"a cut names heads {cut.heads}, and there are 0 to {n_heads - 1}")
        chosen[row, slice(None) if cut.heads is None else list(cut.heads)] = True
    return to_device(chosen, device)


def visible(queries: Int[Tensor, "row pos"], n_keys: int, window: int | None) -> Bool[Tensor, "row pos key_pos"]:
    """Which keys queries at these positions may see."""
    key = torch.arange(n_keys, device=queries.device)
    query = queries[:, :, None]
    allowed = key <= query
    return allowed if window is None else allowed & (key > query - window)


def add_biases(
    mask: Float[Tensor, "row ... key_pos"], biased: Bool[Tensor, "row ... key_pos"], bias: Float[Tensor, " row"]
) -> None:
    """Adds each row's bias to the scores of these edges, in place."""
    mask += torch.where(biased, bias.to(mask.dtype).view(-1, *[1] * (mask.dim() - 1)), 0)


def additive(allowed: Bool[Tensor, "*edge"], dtype: torch.dtype) -> Float[Tensor, "*edge"]:
    """0 where attention is allowed and minus infinity elsewhere."""
    mask = torch.zeros(allowed.shape, dtype=dtype, device=allowed.device)
    return mask.masked_fill_(~allowed, float("-inf"))


Keep = Callable[[int, Keys, Keys], None]
"""Given a layer's keys and values of all tokens."""
Watch = Callable[[int, Weights], None]
"""Given a layer's attention weights, before they are used."""
Weigh = Callable[[Weights], None]
"""Given the weights of each layer in turn, computed on the side: what is run is the same with and without it."""


@dataclass(frozen=True)
class _Plan:
    """Who sees what in one layer, on its device."""

    shape: tuple[int, int, int]
    """Rows, queries and keys of a row."""
    even: bool
    """Whether all rows are equally long, so that queries need no gathering."""
    queries: Int[Tensor, " row_pos"]
    """Index in the line of each row's queries."""
    back: Int[Tensor, " token"]
    """Where among all rows' queries each token of the line is."""
    keys: Int[Tensor, " row_key_pos"]
    """Index of each row's keys among prefix and tokens."""
    mask: Float[Tensor, "row pos key_pos"] | Float[Tensor, "row head pos key_pos"]
    """To add to the scores; per head where some heads are cut and others not."""
    zeroed: Bool[Tensor, "row pos key_pos"] | Bool[Tensor, "row head pos key_pos"] | None
    """The weights to set to 0; None for none."""
    lost: Int[Tensor, " row"] | None
    """How many edges each row's cut takes or biases here; None where nothing is to be cut."""
    masks: dict[tuple[str, int], Tensor] = field(default_factory=dict)
    """Mask and zeroed weights for heads that share their keys, by how many do."""

    def mask_for(self, groups: int) -> Tensor:
        """The mask as attention wants it, made once."""
        return self._made_once("mask", self.mask, groups)

    def edit_for(self, groups: int) -> Edit | None:
        """What happens to the weights after the softmax; None for nothing."""
        if self.zeroed is None:
            return None
        zeroed = self._made_once("zeroed", self.zeroed, groups)
        return lambda weights: weights.masked_fill_(zeroed, 0)

    @property
    def is_large(self) -> bool:
        """Whether it has masks for single heads."""
        return self.mask.dim() == 4

    def _made_once(self, name: str, mask: Tensor, groups: int) -> Tensor:
        if (name, groups) not in self.masks:
            self.masks[name, groups] = per_group(mask, groups)
        return self.masks[name, groups]


class Packed:
    """The attention of one batch, layer by layer."""

    def __init__(
        self,
        lm: LanguageModel,
        sequences: Sequence[TokenSequence],
        rows: BatchRows,
        prefix: Prefix,
        keep: Keep | None = None,
        watch: Watch | None = None,
        weigh: Weigh | None = None,
    ) -> None:
        self.lm, self.rows, self.prefix, self.keep, self.watch, self.weigh = lm, rows, prefix, keep, watch, weigh
        self.n_keys = -(-int(rows.stop.max()) // MASK_WIDTH) * MASK_WIDTH
        starts = [sequences[row.item].answer_start for row in rows.rows]
        cuts = [row.cut for row in rows.rows]
        self.cuts = CutRows.of(cuts, starts, self.n_keys, lm.n_heads, lm.device)
        self.plans: dict[tuple[object, ...], _Plan] = {}
        self.lost: dict[int, Tensor] = {}
        """Edges that each layer's attention was really computed without, or with a bias, per row."""
        self.ids = torch.from_numpy(rows.ids(sequences))
        self.positions = rows.positions()

    def enter(self, layer: int) -> Joining | None:
        """Makes ready for a layer; the tokens of rows that begin here, if any do."""
        self.layer = layer
        device, window = self.lm.layer_device(layer), self.lm.sliding_window(layer)
        known = (self.rows.stretch(layer), window, device)
        if known not in self.plans:
            n_rows, cut = self.rows.open_at(layer), self.rows.cut_at(layer)
            # Masks for single heads are many times larger: only the last is kept.
            self.plans = {name: plan for name, plan in self.plans.items() if not plan.is_large}
            self.plans[known] = self._plan(n_rows, cut, window, device)
        self.plan = self.plans[known]
        return self.rows.joining(layer)

    def attend(
        self, query: Queries, key: Keys, value: Keys, scaling: float, softcap: float | None
    ) -> Float[Tensor, "token head d_value"]:
        """Attention of all tokens in this layer."""
        if self.keep is not None:
            self.keep(self.layer, key, value)
        plan, (rows, n, n_keys) = self.plan, self.plan.shape
        heads, key_heads, d_head = query.shape[1], key.shape[1], query.shape[2]
        gathered = query if plan.even else query.index_select(0, plan.queries)
        queries = gathered.reshape(rows, n, heads, d_head)
        keys, values = (
            self._with_prefix(own, shared).index_select(0, plan.keys).view(rows, n_keys, key_heads, -1)
            for own, shared in ((key, self.prefix.keys), (value, self.prefix.values))
        )
        mask = plan.mask_for(heads // key_heads)
        edit = plan.edit_for(heads // key_heads) if self.watch is None else self._watched
        found = masked_attention(queries, keys, values, mask, scaling, softcap, edit).reshape(rows * n, heads, -1)
        if self.weigh is not None:
            self.weigh(attention_weights(queries, keys, mask, scaling, softcap))
        if plan.lost is not None:
            self.lost[self.layer] = plan.lost
        return found if plan.even else found.index_select(0, plan.back)

    def _watched(self, weights: Weights) -> Weights:
        assert self.watch is not None
        self.watch(self.layer, weights)
        return weights

    def _with_prefix(self, own: Tensor, shared: tuple[Tensor, ...]) -> Tensor:
        return torch.cat((shared[self.layer], own)) if self.prefix.length else own

    def _plan(self, n_rows: int, cut: NDArray[np.bool_], window: int | None, device: torch.device) -> _Plan:
        rows, here, n_prefix = self.rows, self.lm.device, self.prefix.length
        first, stop = (to_device(part[:n_rows], here)[:, None] for part in (rows.first, rows.stop))
        own, clean = (to_device(part[:n_rows], here)[:, None] for part in (rows.own, rows.clean))
        lengths = rows.stop[:n_rows] - rows.first[:n_rows]
        n, total = int(lengths.max()), int(rows.own[n_rows])
        offsets = torch.arange(n, device=here)
        queries = first + offsets  # positions
        key = torch.arange(self.n_keys, device=here)
        indices = torch.where(key < first, clean + key - n_prefix, own + key - first) + n_prefix
        indices = torch.where(key < n_prefix, key, indices).masked_fill(key >= stop, 0)
        allowed = visible(queries, self.n_keys, window)
        beyond = (queries >= stop)[:, :, None]
        lost = zeroed = biased = None
        if cut.any():
            cuts = self.cuts.first(n_rows)
            removed = cuts.removed(queries) & to_device(cut, here)[:, None, None] & ~beyond
            lost = (removed & allowed).sum(dim=(1, 2))
            if (cut & cuts.kinds.by_head[:n_rows]).any():
                assert cuts.heads is not None
                removed = removed[:, None] & cuts.heads[:, :, None, None]
                allowed, beyond = allowed[:, None], beyond[:, None]
            if (cut & cuts.kinds.zeroing[:n_rows]).any():
                is_zeroed = cuts.zeroing.view(-1, *[1] * (removed.dim() - 1))
                zeroed, removed = removed & is_zeroed, removed & ~is_zeroed
            if (cut & cuts.kinds.biasing[:n_rows]).any():
                is_biased = cuts.bias.isfinite().view(-1, *[1] * (removed.dim() - 1))
                biased, removed = removed & is_biased, removed & ~is_biased
            allowed = allowed & ~removed
        allowed = allowed | beyond  # nobody reads beyond a row's end, but numbers must be there
        mask = additive(allowed, self.lm.dtype)
        if biased is not None:
            add_biases(mask, biased, self.cuts.bias[:n_rows])
        back = np.repeat(np.arange(n_rows) * n - rows.own[:n_rows], lengths) + np.arange(total)
        return _Plan(
            shape=(n_rows, n, self.n_keys),
            even=n * n_rows == total,
            queries=(own + offsets).clamp(max=total - 1).reshape(-1).to(device),
            back=to_device(back, device),
            keys=indices.reshape(-1).to(device),
            mask=mask.to(device),
            zeroed=None if zeroed is None else zeroed.to(device),
            lost=lost,
        )
