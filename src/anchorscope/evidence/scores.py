"""How much signal there is, how much survives an intervention, and what the probe knows beyond simpler baselines.

`transfer`: the clean probe on the states under an intervention. `refit`: a probe trained out of fold on those states.
`within-relation`: pairs of the same relation only. The best of thirty layers flatters a probe, so the headline is
`nested`: every fold at its own reference layer, which the inner folds of the others chose.

Baselines, on the probe's own folds: the relation alone, the words alone, the model's confidence. Differences are paired
over draws. `auc_beyond_confidence` is the AUC of probe and confidence together, less that of confidence alone.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from anchorscope.datasets.text import words
from anchorscope.evidence.delta_p import at_reference, probability
from anchorscope.evidence.draws import Draws, areas, estimate, estimates
from anchorscope.stats.estimate import Estimate, percentile_interval

Floats = NDArray[np.floating]
Bools = NDArray[np.bool_]

CONFIDENCE = "confidence-mean"
"""The baseline that the probe is joined with."""
PROBE_AND_CONFIDENCE = "nested+confidence"
"""Kind of the score that joins the two."""
_METHOD = "paired bootstrap over groups"
_JOINED = (
    f"{_METHOD}; joined by logistic regression on the other folds' out-of-fold scores"
)
_PRIOR = 1.0  # one imagined true and one imagined false answer per relation, so that a rare relation claims little


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
class SummaryRow:
    """One quantity of the summary; None where a column does not apply."""

    quantity: str
    estimate: Estimate
    intervention: str | None = None
    group: str | None = None


@dataclass(frozen=True)
class Scored:
    """The items that scores are computed over."""

    labels: Bools
    groups: NDArray[np.int64]
    strata: NDArray[np.int64]
    """Items whose scores may be compared: those of one fold, or of one fold and relation."""
    draws: Draws

    def take(self, items: NDArray[np.int64]) -> "Scored":
        return Scored(
            self.labels[items],
            self.groups[items],
            self.strata[items],
            self.draws.take(items),
        )


def layer_scores(
    intervention: str, kind: str, logits: Floats, scored: Scored
) -> list[Score]:
    """Scores of log-odds [layer, item]."""
    # the last digit of a sum depends on how its values lie in memory
    logits = np.ascontiguousarray(logits)
    intervals = estimates(areas(logits, scored.labels, scored.strata, scored.draws))
    loss = np.logaddexp(0, np.where(scored.labels, -logits, logits)).mean(axis=1)
    brier = ((probability(logits) - scored.labels) ** 2).mean(axis=1)
    n, n_groups = len(scored.labels), len(np.unique(scored.groups))
    rows = np.stack([*intervals, loss, brier], axis=1).tolist()
    return [
        Score(
            intervention,
            kind,
            layer,
            area,
            low,
            high,
            log_loss,
            brier_score,
            n,
            n_groups,
        )
        for layer, (area, low, high, log_loss, brier_score) in enumerate(rows)
    ]


def nested_score(
    intervention: str,
    kind: str,
    logits: Floats,
    reference: NDArray[np.int64],
    folds: NDArray[np.int64],
    scored: Scored,
) -> Score:
    """The score of log-odds [layer, item], each fold at its own reference layer; it stands for no single layer."""
    (score,) = layer_scores(
        intervention, kind, at_reference(logits, reference, folds)[None], scored
    )
    return replace(score, layer=None)


def baseline_score(kind: str, scores: Floats, scored: Scored) -> Score:
    """A baseline's AUC; it has no layer, and no loss as its score need not be a log-odds."""
    (score,) = layer_scores("clean", kind, scores[None], scored)
    return replace(score, layer=None, log_loss=None, brier=None)


def relation_only(
    relations: Sequence[str | None], labels: Bools, folds: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Log-odds of "true" from the share of true answers in the same relation of the other folds."""
    names = np.array([relation or "" for relation in relations])
    scores = np.empty(len(labels))
    for fold in np.unique(folds):
        inside = folds == fold
        for name in np.unique(names[inside]):
            others = labels[~inside & (names == name)]
            scores[inside & (names == name)] = np.log(
                (others.sum() + _PRIOR) / ((~others).sum() + _PRIOR)
            )
    return scores


def words_only(
    questions: Sequence[str],
    answers: Sequence[str],
    labels: Bools,
    folds: NDArray[np.int64],
) -> NDArray[np.float64]:
    """Log-odds of "true" from the bag of words of question and answer, by logistic regression on the other folds."""
    present = bag_of_words(questions, answers)
    scores = np.empty(len(labels))
    for fold in np.unique(folds):
        inside = folds == fold
        # A word that no other fold has is a column of zeros there, which gets no weight.
        weight, intercept = fit_logistic(present[~inside], labels[~inside])
        scores[inside] = present[inside] @ weight + intercept
    return scores


def bag_of_words(questions: Sequence[str], answers: Sequence[str]) -> sp.csr_array:
    """1 where question or answer, each with columns of its own, holds a word, [item, word]."""
    documents = [
        [
            *(f"question {word}" for word in words(question)),
            *(f"answer {word}" for word in words(answer)),
        ]
        for question, answer in zip(questions, answers, strict=True)
    ]
    column: dict[str, int] = {}
    rows = [
        sorted({column.setdefault(word, len(column)) for word in document})
        for document in documents
    ]
    starts = np.cumsum([0, *map(len, rows)])
    indices = np.array([index for row in rows for index in row], np.int64)
    return sp.csr_array(
        (np.ones(len(indices)), indices, starts), shape=(len(rows), len(column))
    )


def fit_logistic(design: sp.csr_array | Floats, labels: Bools) -> tuple[Floats, float]:
    """Weights and intercept of scikit-learn's logistic regression, at its optimum."""
    from sklearn.linear_model import (
        LogisticRegression,
    )  # only here: it takes a second, and workers don't need it

    fit = LogisticRegression(solver="newton-cg", tol=1e-10, max_iter=1000).fit(
        design, labels
    )
    return fit.coef_[0], float(fit.intercept_[0])


def beyond_baselines(
    nested: Floats, simpler: Mapping[str, Floats], scored: Scored
) -> tuple[dict[str, Floats], list[SummaryRow]]:
    """Scores that join probe or words with confidence, by kind; and rows of the summary.

    `auc_difference`: the nested probe less each simpler score. `auc_beyond_confidence`: what probe (group `nested`) and
    words add to confidence, where that is known.
    """
    joined: dict[str, Floats] = {}
    for kind, scores in (("nested", nested), ("words", simpler.get("words"))):
        if scores is not None and CONFIDENCE in simpler:
            joined[f"{kind}+confidence"] = join(
                scores, simpler[CONFIDENCE], scored.labels, scored.strata
            )
    every = {"nested": nested, **simpler, **joined}
    areas_by_kind = areas(
        np.stack(list(every.values())), scored.labels, scored.strata, scored.draws
    )
    samples = dict(zip(every, areas_by_kind, strict=True))
    n = len(scored.labels)
    rows = []
    for kind in simpler:
        difference = estimate(samples["nested"] - samples[kind], n, _METHOD)
        rows.append(
            SummaryRow("auc_difference", difference, intervention="clean", group=kind)
        )
    for kind in joined:
        gain, group = (
            estimate(samples[kind] - samples[CONFIDENCE], n, _JOINED),
            kind.removesuffix("+confidence"),
        )
        rows.append(
            SummaryRow("auc_beyond_confidence", gain, intervention="clean", group=group)
        )
    return joined, rows


def join(
    first: Floats, second: Floats, labels: Bools, folds: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Log-odds of "true" from two scores of every item, by logistic regression on the items of the other folds."""
    both = np.stack([first, second], axis=1).astype(np.float64)
    log_odds = np.empty(len(labels))
    for fold in np.unique(folds):
        inside = folds == fold
        spread = both[~inside].std(axis=0)
        scaled = (both - both[~inside].mean(axis=0)) / np.where(spread > 0, spread, 1.0)
        weight, intercept = fit_logistic(scaled[~inside], labels[~inside])
        log_odds[inside] = scaled[inside] @ weight + intercept
    return log_odds


def beyond_permuted(
    intervention: str, refit: Floats, null: Floats, scored: Scored
) -> list[SummaryRow]:
    """The AUC that permuted labels give, and how far that of a probe trained under the intervention lies above it.

    `refit` are its log-odds [item] at the reference layers, `null` the AUCs [permutation] of permuted labels there.
    The second interval is zero or above where fewer than one in forty permutations reach the real AUC.
    """
    value = float(areas(refit[None], scored.labels, scored.strata, scored.draws)[0, 0])
    low, high = (float(end) for end in percentile_interval(null))
    n, mean = len(scored.labels), float(null.mean())
    ways = f"over {len(null)} permutations of labels within folds and relations, probes fitted anew"
    permuted = Estimate(mean, low, high, n, f"mean and 95 % range {ways}")
    beyond = Estimate(
        value - mean, value - high, value - low, n, f"less mean and 95 % range {ways}"
    )
    return [
        SummaryRow("auc_permuted", permuted, intervention, "refit"),
        SummaryRow("auc_beyond_permuted", beyond, intervention, "refit"),
    ]
