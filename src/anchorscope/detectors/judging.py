"""How good detectors are on some items: every metric with an interval, all detectors in the same resamples.

A resample draws groups, and one of the fold seeds: the interval holds what another sample of questions and other folds
would change. Its value is the mean over all fold seeds. As every detector sees the same resamples, differences are
paired.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.special import expit

from anchorscope.stats.auc import auc
from anchorscope.stats.detection_metrics import METRICS, all_metrics
from anchorscope.stats.estimate import Estimate, group_weights, percentile_interval
from anchorscope.stats.streams import stream

NAMES = {
    "auprc": "auprc",
    "brier": "brier",
    "ece": "ece",
    "excess_aurc": "e-aurc",
    "prr": "prr",
    "accuracy_at_50": "accuracy@50",
    "accuracy_at_80": "accuracy@80",
    "accuracy_at_90": "accuracy@90",
}
"""What the tables call the metrics."""
assert set(NAMES) == set(METRICS), "every metric has a name in the tables"
COMPARED = ("auroc", "auprc", "e-aurc", "brier")
"""Metrics whose differences are told."""


@dataclass(frozen=True)
class Scored:
    """Calibrated log-odds of one detector, by as many fold seeds as there are."""

    log_odds: Float[np.ndarray, "seed item"]
    strata: Int[np.ndarray, "seed item"]
    """Items of one stratum were scored by one fit: only they are compared in the AUROC."""


@dataclass(frozen=True)
class Measured:
    """One metric of one detector: its value, and that of every resample."""

    value: float
    samples: Float[np.ndarray, " resample"]
    n: int

    @property
    def estimate(self) -> Estimate:
        """With its interval."""
        low, high = percentile_interval(self.samples)
        return Estimate(self.value, float(low), float(high), self.n, "bootstrap over groups and fold seeds")

    def __sub__(self, other: "Measured") -> "Measured":
        """The paired difference."""
        return Measured(self.value - other.value, self.samples - other.samples, self.n)


@dataclass(frozen=True)
class Judge:
    """Items that detectors are judged on, and the resamples of them."""

    labels: Bool[np.ndarray, " item"]
    groups: Int[np.ndarray, " item"]
    weights: Float[np.ndarray, " item"]
    """How much each item counts: what makes the sample balanced, or brings back the natural share of true answers."""
    resamples: int
    seed: int
    name: str

    @cached_property
    def drawn(self) -> Float[np.ndarray, "resample item"]:
        """Weights of the items in every resample."""
        return group_weights(self.groups, self.resamples, stream(self.seed, "detector resamples", self.name)) * (
            self.weights.astype(np.float32)
        )

    def metrics(self, scored: Scored, only_auroc: bool = False) -> Mapping[str, Measured]:
        """Every metric of a detector, by its name in the tables."""
        n_seeds = len(scored.log_odds)
        values: dict[str, list[float]] = {}
        samples: dict[str, np.ndarray] = {}
        for seed in range(n_seeds):
            mine = np.arange(seed, self.resamples, n_seeds)
            rows = np.concatenate([self.weights[None], self.drawn[mine]])
            for name, found in self._of_seed(scored, seed, rows, only_auroc).items():
                values.setdefault(name, []).append(float(found[0]))
                samples.setdefault(name, np.empty(self.resamples))[mine] = found[1:]
        n = len(self.labels)
        return {name: Measured(float(np.mean(found)), samples[name], n) for name, found in values.items()}

    def spread(self, scored: Scored) -> float:
        """Standard deviation of the AUROC over the fold seeds."""
        found = [
            float(auc(scores, self.labels, strata, self.weights[:, None])[0])
            for scores, strata in zip(scored.log_odds, scored.strata, strict=True)
        ]
        return float(np.std(found, ddof=1)) if len(found) > 1 else float("nan")

    def _of_seed(self, scored: Scored, seed: int, rows: np.ndarray, only_auroc: bool) -> dict[str, np.ndarray]:
        scores, strata = scored.log_odds[seed], scored.strata[seed]
        found: dict[str, np.ndarray] = {}
        if not only_auroc:
            told = all_metrics(expit(scores), self.labels, rows, scores)
            found = {NAMES[name]: np.asarray(values) for name, values in told.items()}
        return {"auroc": auc(scores, self.labels, strata, rows.T), **found}


def balanced_weights(labels: Bool[np.ndarray, " item"], relations: "list[str | None]") -> Float[np.ndarray, " item"]:
    """Weights under which every relation has as many true as false answers; 0 where it has one kind only."""
    _, relation = np.unique([name or "" for name in relations], return_inverse=True)
    found = np.zeros(len(labels))
    for one in range(int(relation.max()) + 1):
        true, false = (relation == one) & labels, (relation == one) & ~labels
        pairs = min(int(true.sum()), int(false.sum()))
        if pairs:
            found[true], found[false] = pairs / true.sum(), pairs / false.sum()
    return found
