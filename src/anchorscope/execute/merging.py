"""Parts of a pass put together as they come: every row is copied once, to its place, while others are computed.

A thread of its own does it, so that whoever gives the parts can go on handing out work: the rows of one part lie all
over the whole, and the first one makes the system find memory for all of it.
"""

from collections import deque
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from anchorscope.engine.answer_stats import AnswerStats
from anchorscope.engine.capture import EdgeCounts, refuse_idle_cuts
from anchorscope.execute.parts import StatesPart, VariantPart
from anchorscope.models.transfers import copy_rows, empty_on_host

WAITING = 4
"""Parts that wait to be put to their places."""


def merge_states(parts: Iterable[StatesPart], n_items: int) -> StatesPart:
    """The whole pass, checked: every cut took edges in every layer that it was asked for; one part is the whole."""
    only: StatesPart | None = None
    merged: list[_Variant] = []
    edges: EdgeCounts | None = None
    log_probs: dict[int, tuple[float, ...]] = {}
    with ThreadPoolExecutor(1, "merging") as thread:
        waiting: deque[Future[None]] = deque()

        def add(part: StatesPart) -> None:
            waiting.append(thread.submit(_add, merged, part))
            while waiting and (len(waiting) > WAITING or waiting[0].done()):
                waiting.popleft().result()

        for part in parts:
            # A sum is new memory: the part's own would hold on to all that came with it.
            edges = EdgeCounts.sum([part.edges] if edges is None else [edges, part.edges])
            log_probs |= part.log_probs
            if only is None and not merged:
                only = part
                continue
            if only is not None:
                merged = [_Variant(n_items) for _ in part.variants]
                add(only)
                only = None
            add(part)
        for one in waiting:
            one.result()
    assert edges is not None, "a pass without parts"
    refuse_idle_cuts(edges)
    return only if only is not None else StatesPart(tuple(one.whole() for one in merged), edges, log_probs)


def _add(merged: "list[_Variant]", part: StatesPart) -> None:
    for into, one in zip(merged, part.variants, strict=True):
        into.add(one)


@dataclass
class _Variant:
    """One variant of all parts so far, by the number of the item."""

    n_items: int
    is_there: NDArray[np.bool_] = field(init=False)
    logits: NDArray[Any] | None = None
    states: Tensor | None = None
    answers: list[AnswerStats] = field(default_factory=list)
    order: list[NDArray[np.int64]] = field(default_factory=list)
    """The items that these are of, part by part."""

    def __post_init__(self) -> None:
        self.is_there = np.zeros(self.n_items, dtype=np.bool_)

    def add(self, part: VariantPart) -> None:
        """Copies what a part has to its place."""
        assert not self.is_there[part.items].any(), "two parts have the same item"
        self.is_there[part.items] = True
        if part.logits is not None:
            if self.logits is None:
                self.logits = np.empty((self.n_items, *part.logits.shape[1:]), dtype=part.logits.dtype)
            self.logits[part.items] = part.logits
        if part.states is not None:
            if self.states is None:
                places, layers, _, width = part.states.shape
                self.states = empty_on_host((places, layers, self.n_items, width), part.states.dtype)
            copy_rows(self.states, part.items, part.states)
        if part.answers is not None:
            self.answers.append(part.answers)
            self.order.append(part.items)

    def whole(self) -> VariantPart:
        """All items that there are, in their order; where every item is there, nothing is copied again."""
        items = np.flatnonzero(self.is_there)
        some = len(items) < self.n_items
        logits, states = self.logits, self.states
        return VariantPart(
            items,
            logits[items] if some and logits is not None else logits,
            states[:, :, torch.from_numpy(items)] if some and states is not None else states,
            AnswerStats.join(self.answers).take(np.argsort(np.concatenate(self.order))) if self.answers else None,
        )
