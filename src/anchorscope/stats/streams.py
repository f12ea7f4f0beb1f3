"""Random numbers, one stream per seed, purpose and item, so that no two draws share theirs; and balanced draws.

What is drawn for an item depends on the seed, on what it is drawn for, and on the item's own name: not on its place in
a list, not on the items around it, and not on who draws it. Items that are added later change no earlier draw.
"""

import hashlib
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Priorities = NDArray[np.uint64]
Indices = NDArray[np.int64]
_BETWEEN = "\x1f"  # stands in no name


def stream(seed: int, purpose: str, *names: str) -> np.random.Generator:
    """The random numbers of one purpose, or of one item (or pair of items …) in it."""
    text = _BETWEEN.join((str(seed), purpose, *names))
    return np.random.default_rng(
        int.from_bytes(
            hashlib.blake2b(text.encode(), digest_size=16).digest(), "little"
        )
    )


def priorities(seed: int, purpose: str, names: Sequence[str]) -> Priorities:
    """A random number of 64 bits for each name; those with the smallest are drawn first."""
    start = hashlib.blake2b(
        f"{seed}{_BETWEEN}{purpose}{_BETWEEN}".encode(), digest_size=8
    )
    numbers = np.empty(len(names), dtype=np.uint64)
    for index, name in enumerate(names):
        digest = start.copy()
        digest.update(name.encode())
        numbers[index] = int.from_bytes(digest.digest(), "little")
    return numbers


def unnamed(seed: int, purpose: str, number: int) -> Priorities:
    """Random numbers of that many things that have no names but their indices."""
    return priorities(seed, purpose, [str(index) for index in range(number)])


def mixed(first: Priorities | np.uint64, second: Priorities | np.uint64) -> Priorities:
    """Random numbers of pairs, from those of their members (the finishing steps of splitmix64)."""
    with np.errstate(over="ignore"):
        value = np.asarray(first, np.uint64) ^ (
            np.asarray(second, np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        )
        value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return value ^ (value >> np.uint64(31))


def uniform(order: Priorities) -> NDArray[np.float64]:
    """Random numbers of 64 bits as numbers in [0, 1), by their upper 53 bits."""
    return (order >> np.uint64(11)).astype(np.float64) * 2.0**-53


def drawn(order: Priorities, number: int) -> NDArray[np.int64]:
    """Indices of that many names with the smallest numbers, in the order of the list."""
    return np.sort(np.argsort(order, kind="stable")[:number])


class Drawn(NamedTuple):
    """Which items are used, and their inverse probability of being drawn, 0 for the others."""

    used: NDArray[np.bool_]
    weight: NDArray[np.float64]


def draw_balanced(
    labels: NDArray[np.bool_],
    relations: Sequence[str | None],
    balance: str,
    max_per_class: int,
    order: Priorities,
) -> Drawn:
    """Draws at most `max_per_class` true and as many false items: balanced within relations, the dataset, or not."""
    strata = (
        np.array([relation or "" for relation in relations])
        if balance == "relation"
        else np.zeros(len(labels), int)
    )
    used = np.zeros(len(labels), dtype=bool)
    weight = np.zeros(len(labels))
    ranked = np.argsort(order, kind="stable")
    cells = [
        [
            ranked[(strata[ranked] == stratum) & (labels[ranked] == truth)]
            for truth in (True, False)
        ]
        for stratum in np.unique(strata)
    ]
    if balance == "none":
        wanted = [[min(len(cell), max_per_class) for cell in pair] for pair in cells]
    else:
        pairs = [min(len(true), len(false)) for true, false in cells]
        wanted = [
            [size, size] for size in _thin_out(cells, pairs, max_per_class, order)
        ]
    for pair, sizes in zip(cells, wanted, strict=True):
        for cell, size in zip(pair, sizes, strict=True):
            used[cell[:size]] = True
            weight[cell[:size]] = len(cell) / max(size, 1)
    return Drawn(used, weight)


def _thin_out(
    cells: Sequence[Sequence[Indices]],
    pairs: Sequence[int],
    most: int,
    order: Priorities,
) -> list[int]:
    """How many pairs of each stratum remain when only `most` may."""
    if sum(pairs) <= most:
        return list(pairs)
    numbers = [
        mixed(order[true[:n]], order[false[:n]])
        for (true, false), n in zip(cells, pairs, strict=True)
    ]
    chosen = drawn(np.concatenate(numbers), most)
    return np.bincount(
        np.repeat(np.arange(len(pairs)), pairs)[chosen], minlength=len(pairs)
    ).tolist()
