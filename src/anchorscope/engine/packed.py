"""Attention over the rows of a batch whose tokens stand in one line, without padding between them.

Only attention needs the rows apart: it gathers each row's queries, and its keys from the shared prefix, from the
item's clean row and from the row itself. All other parts of a block run on the line as it is.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import chain

import numpy as np
import torch
from torch import Tensor

from anchorscope.engine.keys_values import Prefix
from anchorscope.engine.masks import MASK_WIDTH, CutRows, additive, visible
from anchorscope.engine.rows import BatchRows
from anchorscope.engine.sequences import TokenSequence
from anchorscope.models.attention import masked_attention, per_group
from anchorscope.models.language_model import LanguageModel

Keep = Callable[[int, Tensor, Tensor], None]
"""Given a layer's keys and values of all tokens, [token, head, d_head]."""


@dataclass(frozen=True)
class _Plan:
    """Who sees what in one layer, on its device."""

    shape: tuple[int, int, int]
    """Rows, queries and keys of a row."""
    even: bool
    """Whether all rows are equally long, so that queries need no gathering."""
    queries: Tensor
    """Place of each row's queries, [row · pos]."""
    back: Tensor
    """Where in [row · pos] each token of the line is."""
    keys: Tensor
    """Place of each row's keys among prefix and tokens, [row · key_pos]."""
    mask: Tensor
    """To add to the scores, [row, pos, key_pos]."""
    lost: Tensor | None
    """How many edges each row's cut takes here, [row]; None where nothing is to be cut."""
    masks: dict[int, Tensor] = field(default_factory=dict)
    """The mask for heads that share their keys, by how many do."""

    def mask_for(self, groups: int) -> Tensor:
        """The mask as attention wants it, made once."""
        if groups not in self.masks:
            self.masks[groups] = per_group(self.mask, groups)
        return self.masks[groups]


class Packed:
    """The attention of one batch, layer by layer."""

    def __init__(
        self,
        lm: LanguageModel,
        sequences: Sequence[TokenSequence],
        rows: BatchRows,
        prefix: Prefix,
        keep: Keep | None = None,
    ) -> None:
        self.lm, self.rows, self.prefix, self.keep = lm, rows, prefix, keep
        self.n_keys = -(-int(rows.stop.max()) // MASK_WIDTH) * MASK_WIDTH
        starts = [sequences[row.item].answer_start for row in rows.rows]
        self.cuts = CutRows.of([row.cut for row in rows.rows], starts, self.n_keys, lm.device)
        self.plans: dict[tuple[object, ...], _Plan] = {}
        self.lost: dict[int, Tensor] = {}
        """Edges that each layer's attention was really computed without, per row."""
        at_once = rows.rows[: rows.open_at(0)]
        ids = chain.from_iterable(sequences[row.item].ids[row.first : row.stop] for row in at_once)
        self.ids = torch.from_numpy(np.fromiter(ids, dtype=np.int64))
        self.positions = rows.positions()

    def enter(self, layer: int) -> Tensor | None:
        """Makes ready for a layer; the places in the stream that rows which begin here start from, if any do."""
        self.layer = layer
        device, window = self.lm.layer_device(layer), self.lm.sliding_window(layer)
        n_rows, cut = self.rows.open_at(layer), self.rows.cut_at(layer)
        known = (n_rows, cut.tobytes(), window, device)
        if known not in self.plans:
            self.plans[known] = self._plan(n_rows, torch.from_numpy(cut), window, device)
        self.plan = self.plans[known]
        joining = self.rows.joining(layer)
        return None if joining is None else torch.from_numpy(joining)

    def attend(self, query: Tensor, key: Tensor, value: Tensor, scaling: float, softcap: float | None) -> Tensor:
        """Attention of all tokens in this layer, [token, head, d_head]."""
        if self.keep is not None:
            self.keep(self.layer, key, value)
        plan, (rows, n, n_keys) = self.plan, self.plan.shape
        heads, key_heads, d_head = query.shape[1], key.shape[1], query.shape[2]
        gathered = query if plan.even else query.index_select(0, plan.queries)
        found = masked_attention(
            gathered.reshape(rows, n, heads, d_head),
            self._with_prefix(key, self.prefix.keys).index_select(0, plan.keys).view(rows, n_keys, key_heads, d_head),
            self._with_prefix(value, self.prefix.values).index_select(0, plan.keys).view(rows, n_keys, key_heads, -1),
            plan.mask_for(heads // key_heads),
            scaling,
            softcap,
        ).reshape(rows * n, heads, -1)
        if plan.lost is not None:
            self.lost[self.layer] = plan.lost
        return found if plan.even else found.index_select(0, plan.back)

    def _with_prefix(self, own: Tensor, shared: tuple[Tensor, ...]) -> Tensor:
        return torch.cat((shared[self.layer], own)) if self.prefix.length else own

    def _plan(self, n_rows: int, cut: Tensor, window: int | None, device: torch.device) -> _Plan:
        rows, here, n_prefix = self.rows, self.lm.device, self.prefix.length
        first, stop = (torch.from_numpy(part[:n_rows]).to(here)[:, None] for part in (rows.first, rows.stop))
        own, clean = (torch.from_numpy(part[:n_rows]).to(here)[:, None] for part in (rows.own, rows.clean))
        lengths = rows.stop[:n_rows] - rows.first[:n_rows]
        n, total = int(lengths.max()), int(rows.own[n_rows])
        offsets = torch.arange(n, device=here)
        queries = first + offsets  # positions
        key = torch.arange(self.n_keys, device=here)
        places = torch.where(key < first, clean + key - n_prefix, own + key - first) + n_prefix
        places = torch.where(key < n_prefix, key, places).masked_fill(key >= stop, 0)
        allowed = visible(queries, self.n_keys, window)
        lost = None
        if bool(cut.any()):  # known on the host
            cuts = CutRows(self.cuts.keys[:n_rows], self.cuts.edges[:n_rows], self.cuts.answer_start[:n_rows])
            removed = cuts.removed(queries) & cut.to(here)[:, None, None] & (queries < stop)[:, :, None]
            lost = (removed & allowed).sum(dim=(1, 2))
            allowed = allowed & ~removed
        allowed = allowed | (queries >= stop)[:, :, None]  # nobody reads beyond a row's end, but numbers must be there
        back = np.repeat(np.arange(n_rows) * n - rows.own[:n_rows], lengths) + np.arange(total)
        return _Plan(
            shape=(n_rows, n, self.n_keys),
            even=n * n_rows == total,
            queries=(own + offsets).clamp(max=total - 1).reshape(-1).to(device),
            back=torch.from_numpy(back).to(device),
            keys=places.reshape(-1).to(device),
            mask=additive(allowed, self.lm.dtype).to(device),
            lost=lost,
        )
