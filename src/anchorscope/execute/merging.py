"""Parts of a pass put together as they come: every row is copied once, to its place, while others are computed.

A thread of its own does it, so that whoever gives the parts can go on handing out work: the rows of one part lie all
over the whole, and the first one makes the system find memory for all of it.
"""

from collections import deque
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from anchorscope.engine.capture import AnswerStats, AttentionMass, EdgeCounts, refuse_idle_cuts
from anchorscope.execute.parts import StatesPart, VariantPart
from anchorscope.models.devices import copy_rows, empty_on_host

WAITING = 2**30
"""Bytes of states that wait to be put to their places; a part that is larger waits alone."""


def merge_states(parts: Iterable[StatesPart], n_items: int) -> StatesPart:
    """The whole pass, checked: every cut took edges in every layer that it was asked for; one part is the whole."""
    only: StatesPart | None = None
    merged: list[_Variant] = []
    edges: EdgeCounts | None = None
    log_probs: dict[int, tuple[float, ...]] = {}
    attention: dict[int, AttentionMass] = {}
    with _Merging(merged) as merging:
        for part in parts:
            # A sum is new memory: the part's own would hold on to all that came with it.
            edges = EdgeCounts.sum([part.edges] if edges is None else [edges, part.edges])
            log_probs |= part.log_probs
            attention |= part.attention
            if only is None and not merged:
                only = part
                continue
            if only is not None:
                merged += [_Variant(n_items) for _ in part.variants]
                merging.add(only)
                only = None
            merging.add(part)
    assert edges is not None, "a pass without parts"
    refuse_idle_cuts(edges)
    if only is not None:
        return only
    return StatesPart(tuple(one.whole() for one in merged), edges, log_probs, attention)


class _Merging:
    """The thread that puts parts to their places; all are there when its block is left, or its error is raised."""

    def __init__(self, merged: "list[_Variant]") -> None:
        self._merged, self._thread = merged, ThreadPoolExecutor(1, "merging")
        self._waiting: deque[tuple[int, Future[None]]] = deque()
        self._size = 0

    def add(self, part: StatesPart) -> None:
        """Waits only where too much is waiting already."""
        size = sum(one.states.nbytes for one in part.variants if one.states is not None)
        while self._waiting and (self._size + size > WAITING or self._waiting[0][1].done()):
            self._wait_for_first()
        self._waiting.append((size, self._thread.submit(self._add, part)))
        self._size += size

    def _add(self, part: StatesPart) -> None:
        for into, one in zip(self._merged, part.variants, strict=True):
            into.add(one)

    def _wait_for_first(self) -> None:
        size, done = self._waiting.popleft()
        self._size -= size
        done.result()

    def __enter__(self) -> "_Merging":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        try:
            while kind is None and self._waiting:
                self._wait_for_first()
        finally:
            self._thread.shutdown(cancel_futures=True)


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
            self.answers.append(part.answers.take(range(len(part.items))))  # new memory, as above
            self.order.append(part.items.copy())

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
