"""What a probe must beat: the relation alone, the words alone, the model's own confidence.

All are scored out of fold, on the probes' own folds, so that the numbers can stand beside each other.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression

from anchorscope.datasets.text import words

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
    documents = [
        [*(f"question {word}" for word in words(question)), *(f"answer {word}" for word in words(answer))]
        for question, answer in zip(questions, answers, strict=True)
    ]
    # A word that no other fold has is a column of zeros there, which gets no weight.
    present = CountVectorizer(analyzer=list, binary=True).fit_transform(documents)
    scores = np.empty(len(labels))
    for fold in np.unique(folds):
        inside = folds == fold
        model = LogisticRegression(max_iter=1000).fit(present[~inside], labels[~inside])
        scores[inside] = model.decision_function(present[inside])
    return scores
