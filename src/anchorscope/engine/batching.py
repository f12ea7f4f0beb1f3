"""Which items run together: sorted by length, as many as a token budget allows, so that attention pads little.

Where memory does not suffice, the budget is halved and the work goes on with what is left; the lower budget stays.
"""

import sys
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from anchorscope.errors import MemoryRanOut as MemoryRanOut
from anchorscope.errors import UserError
from anchorscope.models.devices import free_memory, is_out_of_memory

MOST_AT_ONCE = 2**16
"""Tokens of one pass, however much memory there is: products gain nothing beyond, and the host prepares the next batch
while the device runs this one."""


@dataclass
class Budget:
    """How many tokens may run together; shared by all passes of a run."""

    tokens: int
    lowered: Callable[[int], None] = field(default=lambda tokens: None)
    """Told whenever memory ran out, with the new number."""
    is_planned: bool = False
    """Whether the batches are part of a plan, so that none may be divided: `MemoryRanOut` is raised instead."""

    @property
    def at_once(self) -> int:
        """Tokens of one pass through the blocks."""
        return min(self.tokens, MOST_AT_ONCE)

    def lower(self, tokens: int) -> None:
        """From now on no more than this."""
        self.tokens = max(1, min(tokens, self.tokens))
        self.lowered(self.tokens)


def plan_batches(lengths: Sequence[int], batch_tokens: int, order: Sequence[int] | None = None) -> list[list[int]]:
    """Indices of each batch; the longest item times the number of items stays within `batch_tokens`.

    Longest first, so that memory that does not suffice is noticed at once. `order` says which items run and breaks ties
    between equal lengths; without it all do and keep their place.
    """
    ties = range(len(lengths)) if order is None else order
    by_length = sorted(ties, key=lambda index: -lengths[index])
    batches: list[list[int]] = []
    for index in by_length:
        longest = lengths[batches[-1][0]] if batches else 0
        if batches and longest * (len(batches[-1]) + 1) <= batch_tokens:
            batches[-1].append(index)
        else:
            batches.append([index])
    return batches


def run_in_batches(
    batches: Sequence[Sequence[int]],
    lengths: Callable[[], Sequence[int]],
    budget: Budget | None,
    run: Callable[[list[int]], None],
) -> None:
    """Runs every batch; one that does not fit is halved, and all that follow with it: only then lengths are asked."""
    budget = budget or Budget(sys.maxsize)
    waiting = deque(list(batch) for batch in batches)
    while waiting:
        batch = waiting.popleft()
        if _fits(run, batch):
            continue
        of_all = lengths()
        longest = max(of_all[index] for index in batch)
        if len(batch) == 1:
            raise too_long_for_memory(longest)
        if budget.is_planned:
            raise MemoryRanOut(longest * len(batch))
        budget.lower(longest * (len(batch) // 2))
        left = [*batch, *(index for later in waiting for index in later)]
        waiting = deque(plan_batches(of_all, budget.tokens, left))


def too_long_for_memory(tokens: int) -> UserError:
    """Nothing smaller can be tried."""
    return UserError(
        f"Memory does not suffice for a single item of {tokens} tokens; choose a smaller --dtype or model, another "
        f"--device, or leave out the longest questions."
    )


def _fits(run: Callable[[list[int]], None], batch: list[int]) -> bool:
    """Whether a batch could be run; what it had taken is free again if not."""
    try:
        run(batch)
        return True
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
    free_memory()  # outside the handler: the exception held on to every tensor of the pass
    return False
