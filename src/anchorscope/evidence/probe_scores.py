"""How much of the signal there is, and how much survives an intervention, per layer and free of thresholds.

`transfer`: the clean probe on the states under an intervention, low where the signal is lost or merely rotated (on
clean states: the probe's own score). `refit`: a probe trained out of fold on those states, what is still linearly
readable. `within-relation`: pairs of the same relation only. The baselines stand beside them without a layer.

The best of thirty layers is a maximum, and flatters the probe. The headline is therefore `nested`: every fold is scored
at its own reference layer, which the inner folds of the others chose. `nested-refit` and `nested-within-relation` are
read at the same layers.

What a probe must beat: the relation alone, the words alone, the model's own confidence. All are scored out of fold, on
the probes' own folds.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from anchorscope.datasets.text import words
from anchorscope.evidence.areas import areas
from anchorscope.evidence.draws import Draws, estimates
from anchorscope.evidence.measured import probability
from anchorscope.evidence.pathways import at_reference
from anchorscope.stats.sparse_logistic import fit_sparse_logistic

Floats = NDArray[np.floating]


@dataclass(frozen=True)
class Score:
    """One row of the probe scores."""

    intervention: str
    kind: str
    layer: int | None
    auc: float
    ci_low: float
    ci_high: float
    log_loss: float | None
    brier: float | None
    n: int
    n_groups: int


@dataclass(frozen=True)
class Scored:
    """The items that scores are computed over."""

    labels: NDArray[np.bool_]
    groups: NDArray[np.int64]
    strata: NDArray[np.int64]
    """Items whose scores may be compared: those of one fold, or of one fold and relation."""
    draws: Draws

    def take(self, items: NDArray[np.int64]) -> "Scored":
        """The same for some of the items."""
        return Scored(self.labels[items], self.groups[items], self.strata[items], self.draws.take(items))


def layer_scores(intervention: str, kind: str, logits: Floats, scored: Scored) -> list[Score]:
    """Scores of log-odds [layer, item]."""
    logits = np.ascontiguousarray(logits)  # the last digit of a sum depends on how its values lie in memory
    values, low, high = estimates(areas(logits, scored.labels, scored.strata, scored.draws))
    loss = np.logaddexp(0, np.where(scored.labels, -logits, logits)).mean(axis=1)
    brier = ((probability(logits) - scored.labels) ** 2).mean(axis=1)
    n, n_groups = len(scored.labels), len(np.unique(scored.groups))
    return [
        Score(
            intervention,
            kind,
            layer,
            float(values[layer]),
            float(low[layer]),
            float(high[layer]),
            float(loss[layer]),
            float(brier[layer]),
            n,
            n_groups,
        )
        for layer in range(len(logits))
    ]


def nested_score(
    intervention: str, kind: str, logits: Floats, reference: NDArray[np.int64], folds: NDArray[np.int64], scored: Scored
) -> Score:
    """The score of log-odds [layer, item], each fold at its own reference layer; it stands for no single layer."""
    (score,) = layer_scores(intervention, kind, at_reference(logits, reference, folds)[None], scored)
    return replace(score, layer=None)


def baseline_score(kind: str, scores: Floats, scored: Scored) -> Score:
    """A baseline's AUC; it has no layer, and no loss where its score is not a log-odds."""
    found = estimates(areas(scores[None], scored.labels, scored.strata, scored.draws)[0])
    value, low, high = (float(number) for number in found)
    return Score("clean", kind, None, value, low, high, None, None, len(scores), len(np.unique(scored.groups)))


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
    present = _bag_of_words(
        [
            [*(f"question {word}" for word in words(question)), *(f"answer {word}" for word in words(answer))]
            for question, answer in zip(questions, answers, strict=True)
        ]
    )
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
