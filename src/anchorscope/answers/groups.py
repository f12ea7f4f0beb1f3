"""Which items belong together: a group is a connected component of items that share a question or a subject.

Folds and bootstraps keep groups whole, so that no probe is tested on a subject that it has learned. Grouping by answer
instead checks for another leak: answers such as "Africa" recur.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from anchorscope.datasets.question import Question
from anchorscope.datasets.text import normalise, question_key

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
    items, places = np.array(pairs).T
    from scipy.sparse import coo_matrix  # only here: the recipe reads this file's options, and help has to come at once
    from scipy.sparse.csgraph import connected_components

    size = len(keys) + len(names)
    graph = coo_matrix((np.ones(len(items)), (items, places + len(keys))), shape=(size, size))
    labels = connected_components(graph, directed=False)[1][: len(keys)]
    return np.unique(labels, return_inverse=True)[1].astype(np.int64)
