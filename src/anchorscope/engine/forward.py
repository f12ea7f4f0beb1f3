"""One batch through the decoder layers, with the engine's own attention. Everything that runs a model uses
`run_layers`.

The tokens of all rows stand in one line, without padding. Only attention (`Packed`) needs the rows apart: it gathers
each row's queries, and its keys from the shared prefix, the item's clean row and the row itself. Masks are causal,
within a layer's window, and minus infinity where an edge is cut, so that the rest renormalises exactly. The diagonal
always stays, so no row is empty.

Edges whose weight is set to 0 after the softmax are kept apart, and a mask has a head dimension only where heads
differ. A weakened or strengthened edge has a finite number in the mask, added after the soft cap.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from itertools import chain
from typing import Protocol

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from torch import Tensor

from anchorscope.engine.rows import BatchRows, Joining
from anchorscope.engine.sequences import CLEAN, EDGES, Cut, TokenSequence
from anchorscope.errors import InterventionNotApplied, UserError
from anchorscope.models.devices import to_device
from anchorscope.models.families import (
    Attends,
    BlockOutput,
    Edit,
    Keys,
    Queries,
    Weights,
    attention_weights,
    masked_attention,
    per_group,
)
from anchorscope.models.language_model import LanguageModel
from anchorscope.models.process_settings import attention_kernels

MASK_WIDTH = 8
"""Keys are padded to a multiple of this: masked kernels want aligned rows."""
LOGITS_AT_ONCE = 2**28
"""Tokens × vocabulary computed by the head at a time: a gigabyte of float32."""


@dataclass(frozen=True)
class Prefix:
    """Keys and values of the tokens that all items share, one pair per layer."""

    ids: tuple[int, ...]
    keys: tuple[Float[Tensor, "pos key_head d_head"], ...]
    values: tuple[Float[Tensor, "pos key_head d_value"], ...]

    @property
    def length(self) -> int:
        return len(self.ids)


NO_PREFIX = Prefix(ids=(), keys=(), values=())


@dataclass(frozen=True)
class CutRows:
    """The cuts of a batch's rows: on the device for masks, in host memory for planning."""

    keys: Bool[Tensor, "row key_pos"]
    edges: Int[Tensor, " row"]
    answer_start: Int[Tensor, " row"]
    bias: Float[Tensor, " row"]
    """Added to the scores of the edges; minus infinity where they are cut."""
    heads: Bool[Tensor, "row head"] | None
    """The query heads that lose edges; None for all, in every row."""
    is_zeroed: Bool[np.ndarray, " row"]
    """Whether weights are set to 0 after the softmax, instead of a mask before it."""
    is_biased: Bool[np.ndarray, " row"]
    is_by_head: Bool[np.ndarray, " row"]

    @classmethod
    def of(
        cls,
        cuts: Sequence[Cut],
        answer_starts: Sequence[int],
        n_keys: int,
        n_heads: int,
        device: torch.device,
    ) -> "CutRows":
        keys = np.zeros((len(cuts), n_keys), dtype=bool)
        cut_keys = np.fromiter(
            chain.from_iterable(cut.keys for cut in cuts), dtype=np.int64
        )
        keys[
            np.repeat(np.arange(len(cuts)), [len(cut.keys) for cut in cuts]), cut_keys
        ] = True
        bias = np.array([cut.bias for cut in cuts], dtype=np.float32)
        is_by_head = np.array([cut.heads is not None for cut in cuts])
        return cls(
            keys=to_device(keys, device),
            edges=to_device(np.array([EDGES.index(cut.edges) for cut in cuts]), device),
            answer_start=to_device(np.array(answer_starts), device),
            bias=to_device(bias, device),
            heads=_heads(cuts, n_heads, device) if is_by_head.any() else None,
            is_zeroed=np.array([cut.how == "zero" for cut in cuts]),
            is_biased=np.isfinite(bias),
            is_by_head=is_by_head,
        )

    def removed(
        self, queries: Int[Tensor, "row pos"]
    ) -> Bool[Tensor, "row pos key_pos"]:
        """The edges that are lost, weakened or strengthened, for queries at these positions of the first rows."""
        n_rows, n_keys = len(queries), self.keys.shape[1]
        keys, kinds = self.keys[:n_rows], self.edges[:n_rows, None, None]
        later = queries[:, :, None] > torch.arange(n_keys, device=queries.device)
        among_keys = keys.gather(1, queries.clamp(max=n_keys - 1))
        later &= ~((kinds == EDGES.index("outside")) & among_keys[:, :, None])
        before_answer = (queries < self.answer_start[:n_rows, None])[:, :, None]
        later &= ~((kinds == EDGES.index("direct")) & before_answer)
        return later & keys[:, None, :]


def _heads(cuts: Sequence[Cut], n_heads: int, device: torch.device) -> Tensor:
    chosen = np.zeros((len(cuts), n_heads), dtype=bool)
    for row, cut in enumerate(cuts):
        if cut.heads is not None and max(cut.heads) >= n_heads:
            raise InterventionNotApplied(
                f"a cut names heads {cut.heads}, and there are 0 to {n_heads - 1}"
            )
        chosen[row, slice(None) if cut.heads is None else list(cut.heads)] = True
    return to_device(chosen, device)


def visible(
    queries: Int[Tensor, "row pos"], n_keys: int, window: int | None
) -> Bool[Tensor, "row pos key_pos"]:
    """Which keys queries at these positions may see."""
    key = torch.arange(n_keys, device=queries.device)
    query = queries[:, :, None]
    allowed = key <= query
    return allowed if window is None else allowed & (key > query - window)


def additive(
    allowed: Bool[Tensor, "*edge"], dtype: torch.dtype
) -> Float[Tensor, "*edge"]:
    return torch.zeros(allowed.shape, dtype=dtype, device=allowed.device).masked_fill_(
        ~allowed, float("-inf")
    )


Keep = Callable[[int, Keys, Keys], object]
Weigh = Callable[[Weights], None]
"""Called with the weights of each layer, computed on the side: the pass itself is unchanged."""


@dataclass(frozen=True)
class _Plan:
    shape: tuple[int, int, int]
    even: bool
    """Whether all rows are equally long, so that queries need no gathering."""
    queries: Int[Tensor, " row_pos"]
    """Index in the line of each row's queries."""
    back: Int[Tensor, " token"]
    """Index among all rows' queries of each token of the line."""
    keys: Int[Tensor, " row_key_pos"]
    """Index of each row's keys among prefix and tokens."""
    mask: Float[Tensor, "row pos key_pos"] | Float[Tensor, "row head pos key_pos"]
    """Added to the scores; per head where heads differ."""
    zeroed: (
        Bool[Tensor, "row pos key_pos"] | Bool[Tensor, "row head pos key_pos"] | None
    )
    """The weights to set to 0; None for none."""
    lost: Int[Tensor, " row"] | None
    """How many edges each row's cut removes or biases here; None where nothing is cut."""
    masks: dict[tuple[str, int], Tensor] = field(default_factory=dict)
    """Mask and zeroed weights for heads that share keys, by group size."""

    def mask_for(self, groups: int) -> Tensor:
        return self._made_once("mask", self.mask, groups)

    def edit_for(self, groups: int) -> Edit | None:
        """What happens to the weights after the softmax; None for nothing."""
        if self.zeroed is None:
            return None
        zeroed = self._made_once("zeroed", self.zeroed, groups)
        return lambda weights: weights.masked_fill_(zeroed, 0)

    def _made_once(self, name: str, mask: Tensor, groups: int) -> Tensor:
        if (name, groups) not in self.masks:
            self.masks[name, groups] = per_group(mask, groups)
        return self.masks[name, groups]


class Packed:
    """The attention of one batch, layer by layer; `watch` sees each layer's weights before they are used."""

    def __init__(
        self,
        lm: LanguageModel,
        sequences: Sequence[TokenSequence],
        rows: BatchRows,
        prefix: Prefix,
        keep: Keep | None = None,
        watch: Edit | None = None,
        weigh: Weigh | None = None,
    ) -> None:
        self.lm, self.rows, self.prefix, self.keep, self.watch, self.weigh = (
            lm,
            rows,
            prefix,
            keep,
            watch,
            weigh,
        )
        self.n_keys = -(-int(rows.stop.max()) // MASK_WIDTH) * MASK_WIDTH
        starts = [sequences[row.item].answer_start for row in rows.rows]
        cuts = [row.cut for row in rows.rows]
        self.cuts = CutRows.of(cuts, starts, self.n_keys, lm.n_heads, lm.device)
        self.plans: dict[tuple[object, ...], _Plan] = {}
        self.lost: dict[int, Tensor] = {}
        """Edges that each layer's attention was computed without, or with a bias, per row."""
        self.ids = torch.from_numpy(rows.ids(sequences))
        self.positions = rows.positions()

    def enter(self, layer: int) -> Joining | None:
        """Prepares a layer; the tokens of rows that begin here, if any."""
        self.layer = layer
        device, window = self.lm.layer_device(layer), self.lm.sliding_window(layer)
        key = (self.rows.stretch(layer), window, device)
        if key not in self.plans:
            n_rows, cut = self.rows.open_at(layer), self.rows.cut_at(layer)
            # Masks for single heads are many times larger: only the last is kept.
            self.plans = {
                name: plan for name, plan in self.plans.items() if plan.mask.dim() < 4
            }
            self.plans[key] = self._plan(n_rows, cut, window, device)
        self.plan = self.plans[key]
        return self.rows.joining(layer)

    def attend(
        self,
        query: Queries,
        key: Keys,
        value: Keys,
        scaling: float,
        softcap: float | None,
    ) -> Float[Tensor, "token head d_value"]:
        if self.keep is not None:
            self.keep(self.layer, key, value)
        plan, (rows, n, n_keys) = self.plan, self.plan.shape
        heads, key_heads, d_head = query.shape[1], key.shape[1], query.shape[2]
        gathered = query if plan.even else query.index_select(0, plan.queries)
        queries = gathered.reshape(rows, n, heads, d_head)
        keys, values = (
            (torch.cat((shared[self.layer], own)) if shared else own)
            .index_select(0, plan.keys)
            .view(rows, n_keys, key_heads, -1)
            for own, shared in ((key, self.prefix.keys), (value, self.prefix.values))
        )
        mask = plan.mask_for(heads // key_heads)
        edit = plan.edit_for(heads // key_heads) if self.watch is None else self.watch
        attended = masked_attention(
            queries, keys, values, mask, scaling, softcap, edit
        ).reshape(rows * n, heads, -1)
        if self.weigh is not None:
            self.weigh(attention_weights(queries, keys, mask, scaling, softcap))
        if plan.lost is not None:
            self.lost[self.layer] = plan.lost
        return attended if plan.even else attended.index_select(0, plan.back)

    def _plan(
        self,
        n_rows: int,
        cut: NDArray[np.bool_],
        window: int | None,
        device: torch.device,
    ) -> _Plan:
        rows, lm_device, n_prefix = self.rows, self.lm.device, self.prefix.length
        first, stop = (
            to_device(part[:n_rows], lm_device)[:, None]
            for part in (rows.first, rows.stop)
        )
        own, clean = (
            to_device(part[:n_rows], lm_device)[:, None]
            for part in (rows.own, rows.clean)
        )
        lengths = rows.stop[:n_rows] - rows.first[:n_rows]
        n, total = int(lengths.max()), int(rows.own[n_rows])
        offsets = torch.arange(n, device=lm_device)
        queries = first + offsets  # positions
        key = torch.arange(self.n_keys, device=lm_device)
        indices = (
            torch.where(key < first, clean + key - n_prefix, own + key - first)
            + n_prefix
        )
        indices = torch.where(key < n_prefix, key, indices).masked_fill(key >= stop, 0)
        allowed = visible(queries, self.n_keys, window)
        beyond = (queries >= stop)[:, :, None]
        lost = zeroed = bias = None
        if cut.any():
            cuts = self.cuts
            removed = (
                cuts.removed(queries)
                & to_device(cut, lm_device)[:, None, None]
                & ~beyond
            )
            lost = (removed & allowed).sum(dim=(1, 2))
            zeroed_rows, biased_rows = (
                cut & cuts.is_zeroed[:n_rows],
                cut & cuts.is_biased[:n_rows],
            )
            if (cut & cuts.is_by_head[:n_rows]).any():
                assert cuts.heads is not None
                removed = removed[:, None] & cuts.heads[:n_rows, :, None, None]
                allowed, beyond = allowed[:, None], beyond[:, None]
            per_row = (-1, *[1] * (removed.dim() - 1))
            if zeroed_rows.any():
                is_zeroed = to_device(zeroed_rows, lm_device).view(per_row)
                zeroed, removed = removed & is_zeroed, removed & ~is_zeroed
            if biased_rows.any():
                is_biased = to_device(biased_rows, lm_device).view(per_row)
                bias = torch.where(
                    removed & is_biased,
                    cuts.bias[:n_rows].to(self.lm.dtype).view(per_row),
                    0,
                )
                removed = removed & ~is_biased
            allowed = allowed & ~removed
        # values beyond a row's end are never read, but must be finite
        allowed = allowed | beyond
        mask = additive(allowed, self.lm.dtype)
        if bias is not None:
            mask += bias
        back = np.repeat(
            np.arange(n_rows) * n - rows.own[:n_rows], lengths
        ) + np.arange(total)
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


Visit = Callable[[int, BlockOutput], None]


class BatchAttention(Attends, Protocol):
    def enter(self, layer: int) -> Joining | None:
        """Prepares a layer; the tokens that join there, if any."""


def run_layers(
    lm: LanguageModel,
    ids: Int[Tensor, " token"],
    positions: Int[Tensor, " token"],
    attention: BatchAttention,
    visit: Visit | None = None,
    compiled: bool = False,
    read: Int[Tensor, " read"] | None = None,
    layers: int | None = None,
    gradients: bool = False,
) -> Float[Tensor, "1 read d_model"]:
    """Runs tokens in one line through all blocks, or the first `layers`; the stream after the last.

    `read` names the indices wanted of the last block: after its attention only they are run. `compiled` blocks pay for
    large models. With `gradients` torch keeps what the backward pass needs.
    """
    last = (lm.n_layers if layers is None else layers) - 1
    lm.refuse_unknown_tokens(ids)
    rotary: dict[str, tuple[Tensor, Tensor] | None] = {}
    with (
        torch.enable_grad() if gradients else torch.inference_mode(),
        nullcontext()
        if compiled
        else attention_kernels(),  # compiled: much work in few shapes, cuDNN may plan
    ):
        ids, positions = (
            to_device(ids, lm.device)[None],
            to_device(positions, lm.device)[None],
        )
        stream = lm.embed(ids, positions)
        for layer in range(last + 1):
            joining = attention.enter(layer)
            if joining is not None:
                starts = to_device(joining.places, stream.device)
                stream = torch.cat((stream, stream[:, starts]), dim=1)
                own = to_device(joining.positions, positions.device)
                positions = torch.cat((positions, own[None]), dim=1)
                rotary.clear()
            kind = lm.rotary_kind(layer)
            if kind not in rotary:
                rotary[kind] = lm.rotary(layer, stream, positions)
            output = lm.run_block(
                layer,
                stream,
                rotary[kind],
                attention,
                compiled,
                read if layer == last else None,
            )
            if visit is not None:
                visit(layer, output)
            stream = output.residual
    return stream


def compute_prefix(lm: LanguageModel, ids: tuple[int, ...]) -> Prefix:
    """Keys and values of the shared leading tokens, once for all items."""
    if not ids:
        return NO_PREFIX
    pairs: list[tuple[Tensor, Tensor]] = []
    sequences = [TokenSequence(ids, answer_start=len(ids), read_at=())]
    rows = BatchRows(sequences, [0], [CLEAN], 0, lm.n_layers)
    packed = Packed(
        lm,
        sequences,
        rows,
        NO_PREFIX,
        lambda layer, key, value: pairs.append((key.clone(), value.clone())),
    )
    run_layers(lm, packed.ids, packed.positions, packed)
    keys, values = zip(*pairs, strict=True)
    return Prefix(ids, keys, values)


def logits_in_parts(
    lm: LanguageModel, stream: Float[Tensor, "token d_model"]
) -> Iterator[Float[Tensor, "part vocab"]]:
    """Next-token logits in float32, in parts: all at once would fill the memory."""
    for part in stream.split(max(1, LOGITS_AT_ONCE // int(lm.config.vocab_size))):
        yield lm.logits(part).float()


def not_finite(lm: LanguageModel) -> UserError:
    """NaN and infinity would spread into every later number."""
    return UserError(
        f"The states of model {lm.name!r} contain NaN or infinity in {str(lm.dtype).removeprefix('torch.')}; "
        f"try --dtype float32 or bfloat16, or check the weights."
    )
