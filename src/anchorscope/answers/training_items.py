"""Which graded items to train on, and which of them belong together.

Balance: as many true as false answers, within every relation where relations are known. A probe that is let will learn
which relations the model is good at instead of whether an answer is true. What is not drawn stays in the results with
its status; what is drawn carries the inverse of its probability to be drawn as weight.

Groups: a group is a connected component of items that share a question or a subject. Folds and bootstraps keep groups
whole, so that no probe is tested on a subject that it has learned. Grouping by answer instead checks for another leak:
answers such as "Africa" recur.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from anchorscope.datasets.question import Question
from anchorscope.datasets.text import normalise, question_key
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


GROUP_BY = ("subject", "answer")
"""What may tie items together: question and subject (default), or the model's answer."""


def group_items(questions: Sequence[Question], answers: Sequence[str], group_by: str) -> NDArray[np.int64]:
    """The group of each item."""
    if group_by == "answer":
        return _components([[normalise(answer)] for answer in answers])
    keys = []
    for question in questions:
        own = [f"question {question_key(question.question)}"]
        if question.subject and normalise(question.subject):
            own.append(f"subject {normalise(question.subject)}")
        keys.append(own)
    return _components(keys)


def _components(keys: Sequence[Sequence[str]]) -> NDArray[np.int64]:
    names: dict[str, int] = {}
    pairs = [(item, names.setdefault(key, len(names))) for item, own in enumerate(keys) for key in own]
    if not pairs:
        return np.zeros(0, dtype=np.int64)
    items, key_numbers = np.array(pairs).T
    from scipy.sparse import coo_matrix  # only here: the recipe reads this file's options, and help has to come at once
    from scipy.sparse.csgraph import connected_components

    size = len(keys) + len(names)
    graph = coo_matrix((np.ones(len(items)), (items, key_numbers + len(keys))), shape=(size, size))
    labels = connected_components(graph, directed=False)[1][: len(keys)]
    return np.unique(labels, return_inverse=True)[1].astype(np.int64)
