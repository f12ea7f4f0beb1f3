"""Which graded items to train on: as many true as false answers, within every relation where relations are known.

A probe that is let will learn which relations the model is good at instead of whether an answer is true. What is not
drawn stays in the results with its status; what is drawn carries the inverse of its chance to be drawn as weight.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

BALANCE = ("relation", "dataset", "none")
"""Balance true and false within each relation, within the dataset, or not at all."""


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
    rng: np.random.Generator,
) -> Drawn:
    """Draws the items to use, at most `max_per_class` true and as many false ones."""
    strata = (
        np.array([relation or "" for relation in relations]) if balance == "relation" else np.zeros(len(labels), int)
    )
    used = np.zeros(len(labels), dtype=bool)
    weight = np.zeros(len(labels))
    cells = [
        (np.flatnonzero((strata == stratum) & labels), np.flatnonzero((strata == stratum) & ~labels))
        for stratum in np.unique(strata)
    ]
    if balance == "none":
        sizes = [[len(cell) for cell in pair] for pair in cells]
        wanted = [tuple(min(size, max_per_class) for size in pair) for pair in sizes]
    else:
        pairs = np.array([min(len(true), len(false)) for true, false in cells])
        wanted = [(int(size), int(size)) for size in _thin_out(pairs, max_per_class, rng)]
    for pair, sizes_wanted in zip(cells, wanted, strict=True):
        for cell, size in zip(pair, sizes_wanted, strict=True):
            if size:
                chosen = rng.choice(cell, size=size, replace=False)
                used[chosen] = True
                weight[chosen] = len(cell) / size
    return Drawn(used=used, weight=weight)


def _thin_out(pairs: NDArray[np.int64], most: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """How many pairs of each stratum remain when only `most` may, drawn without favour."""
    if pairs.sum() <= most:
        return pairs
    drawn = rng.choice(np.repeat(np.arange(len(pairs)), pairs), size=most, replace=False)
    return np.bincount(drawn, minlength=len(pairs))
