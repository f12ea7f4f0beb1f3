"""What the engine's tests share: items with a common beginning, one pass over them, and the definition of a cut."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from anchorscope.engine.batching import plan_batches
from anchorscope.engine.capture import EdgeCounts, capture, refuse_idle_cuts
from anchorscope.engine.forward import NO_PREFIX, Prefix, compute_prefix
from anchorscope.engine.rows import tokens_of
from anchorscope.engine.sequences import CLEAN, SITES, Cut, TokenSequence, Variant
from anchorscope.models.language_model import LanguageModel

SHARED = (256, 81, 12, 200, 33, 7)
"""The tokens that all items begin with."""
LENGTHS = (15, 22, 31, 18, 27)
"""All longer than the sliding window of 8; different, so that batches are padded."""
ATTENTION, MLP, RESIDUAL = (
    SITES.index(site) for site in ("attention", "mlp", "residual")
)


def make_items() -> list[TokenSequence]:
    """Items that are read at their first four own tokens and at their last five."""
    generator = torch.Generator().manual_seed(11)
    items = []
    for length in LENGTHS:
        own = torch.randint(0, 256, (length - len(SHARED),), generator=generator)
        read_at = (*range(6, 10), *range(length - 5, length))
        items.append(
            TokenSequence(
                (*SHARED, *own.tolist()), answer_start=length - 3, read_at=read_at
            )
        )
    return items


def make_cuts(items: Sequence[TokenSequence], edges: str = "all") -> list[Cut]:
    """Two keys per item: one that has positions before it, one within eight tokens of the whole answer."""
    return [Cut(keys=(8, len(item.ids) - 6), edges=edges) for item in items]


def shared_prefix(lm: LanguageModel) -> Prefix:
    return compute_prefix(lm, SHARED)


def captured(
    lm: LanguageModel,
    items: Sequence[TokenSequence],
    prefix: Prefix = NO_PREFIX,
    variants: Sequence[Variant] = (CLEAN,),
    tokens: int = 10_000,
    batches: Sequence[Sequence[int]] | None = None,
    **others: Any,
) -> tuple[dict[tuple[int, int], Tensor], EdgeCounts]:
    """States of every (variant, item) of one pass, planned by length unless batches are given; the edges lost."""
    if batches is None:
        lengths = [
            tokens_of(one, at, variants, prefix.length, lm.n_layers)
            for at, one in enumerate(items)
        ]
        batches = plan_batches(
            lengths, tokens, [item for item, length in enumerate(lengths) if length]
        )
    states: dict[tuple[int, int], Tensor] = {}

    def receive(variant: int, batch: list[int], part: Tensor) -> None:
        states.update(
            {
                (variant, item): one.clone()
                for item, one in zip(batch, part, strict=True)
            }
        )

    edges = capture(lm, items, prefix, batches, receive, variants, **others)()
    refuse_idle_cuts(edges)
    return states, edges


def run(
    lm: LanguageModel,
    items: Sequence[TokenSequence],
    prefix: Prefix = NO_PREFIX,
    cuts: Sequence[Cut] | None = None,
    batches: Sequence[Sequence[int]] | None = None,
) -> Tensor:
    """States [item, position, site, layer, d_model] of one pass; all items in one batch unless told otherwise."""
    variant = CLEAN if cuts is None else Variant(dict(enumerate(cuts)))
    states, _ = captured(
        lm, items, prefix, [variant], batches=batches or [range(len(items))]
    )
    return torch.stack([states[0, index] for index in range(len(items))])


def together(
    lm: LanguageModel,
    items: Sequence[TokenSequence],
    variants: Sequence[Variant],
    prefix: Prefix,
    tokens: int = 10_000,
) -> dict[tuple[int, int], Tensor]:
    return captured(lm, items, prefix, variants, tokens)[0]


def loses(item: TokenSequence, cut: Cut, query: int, key: int) -> bool:
    """The definition (docs/method.md), one edge at a time: whether this query may no longer attend to this key."""
    if key not in cut.keys or query <= key:
        return False
    if cut.edges == "outside":
        return query not in cut.keys
    if cut.edges == "direct":
        return query >= item.answer_start
    return True


def assert_same(found: Tensor, wanted: Tensor) -> None:
    """Equal up to the order of float32 sums."""
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)
