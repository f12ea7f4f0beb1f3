"""What a probe must beat: the relation alone, the words alone, the model's own confidence.

All are scored out of fold, on the probes' own folds, so that the numbers can stand beside each other.
"""

from collections.abc import Sequence

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from anchorscope.datasets.text import words
from anchorscope.stats.sparse_logistic import fit_sparse_logistic

_PRIOR = 1.0  # one imagined true and one imagined false answer per relation, so that a rare relation claims little


def relation_only(
    relations: Sequence[str | None], labels: NDArray[np.bool_], folds: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Log-odds of "true" from the share of true answers in the same relation of the other folds."""
    names = np.array([relation or "" for relation in relations])
    scores = np.empty(len(labels))
    for fold in np.unique(folds):
        inside = folds == fold
        for name in np.unique(names[inside]):
            known = labels[~inside & (names == name)]
            scores[inside & (names == name)] = np.log((known.sum() + _PRIOR) / ((~known).sum() + _PRIOR))
    return scores


def words_only(
    questions: Sequence[str], answers: Sequence[str], labels: NDArray[np.bool_], folds: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Log-odds of "true" from the bag of words of question and answer, by logistic regression on the other folds."""
    present = _bag_of_words([
        [*(f"question {word}" for word in words(question)), *(f"answer {word}" for word in words(answer))]
        for question, answer in zip(questions, answers, strict=True)
    ])
    scores = np.empty(len(labels))
    for fold in np.unique(folds):
        inside = folds == fold
        # A word that no other fold has is a column of zeros there, which gets no weight.
        weight, intercept = fit_sparse_logistic(present[~inside], labels[~inside])
        scores[inside] = present[inside] @ weight + intercept
    return scores


def _bag_of_words(documents: Sequence[Sequence[str]]) -> sp.csr_array:
    """1 where a document holds a word, [document, word]."""
    column: dict[str, int] = {}
    found = [sorted({column.setdefault(word, len(column)) for word in document}) for document in documents]
    starts = np.cumsum([0, *map(len, found)])
    indices = np.concatenate([np.array(one, np.int64) for one in found] or [np.empty(0, np.int64)])
    return sp.csr_array((np.ones(len(indices)), indices, starts), shape=(len(found), len(column)))
