"""Which graded items to train on: as many true as false answers, within every relation where relations are known.

A probe that is let will learn which relations the model is good at instead of whether an answer is true. What is not
drawn stays in the results with its status; what is drawn carries the inverse of its chance to be drawn as weight.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from anchorscope.stats.streams import Priorities, drawn, mixed

BALANCE = ("relation", "dataset", "none")
"""Balance true and false within each relation, within the dataset, or not at all."""
Indices = NDArray[np.int64]


@dataclass(frozen=True)
class Drawn:
    """The choice."""

    used: NDArray[np.bool_]
    """Whether each item was drawn."""
    weight: NDArray[np.float64]
    """Inverse of the chance to be drawn, 0 for items that were not."""


def draw(
    labels: NDArray[np.bool_],
    relations: Sequence[str | None],
    balance: str,
    max_per_class: int,
    order: Priorities,
) -> Drawn:
    """Draws the items to use, at most `max_per_class` true and as many false ones; `order` says who comes first."""
    strata = (
        np.array([relation or "" for relation in relations]) if balance == "relation" else np.zeros(len(labels), int)
    )
    used = np.zeros(len(labels), dtype=bool)
    weight = np.zeros(len(labels))
    cells = [
        [_in_order(np.flatnonzero((strata == stratum) & (labels == truth)), order) for truth in (True, False)]
        for stratum in np.unique(strata)
    ]
    if balance == "none":
        wanted = [[min(len(cell), max_per_class) for cell in pair] for pair in cells]
    else:
        pairs = [min(len(true), len(false)) for true, false in cells]
        wanted = [[size, size] for size in _thin_out(cells, pairs, max_per_class, order)]
    for pair, sizes in zip(cells, wanted, strict=True):
        for cell, size in zip(pair, sizes, strict=True):
            used[cell[:size]] = True
            weight[cell[:size]] = len(cell) / max(size, 1)
    return Drawn(used=used, weight=weight)


def _in_order(items: Indices, order: Priorities) -> Indices:
    return items[np.argsort(order[items], kind="stable")]


def _thin_out(cells: Sequence[Sequence[Indices]], pairs: Sequence[int], most: int, order: Priorities) -> list[int]:
    """How many pairs of each stratum remain when only `most` may, drawn without favour by numbers of their own."""
    if sum(pairs) <= most:
        return list(pairs)
    numbers = [mixed(order[true[:n]], order[false[:n]]) for (true, false), n in zip(cells, pairs, strict=True)]
    chosen = drawn(np.concatenate(numbers), most)
    return np.bincount(np.repeat(np.arange(len(pairs)), pairs)[chosen], minlength=len(pairs)).tolist()
