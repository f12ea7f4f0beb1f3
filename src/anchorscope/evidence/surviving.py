"""How much of the signal there is, and how much survives an intervention, per layer and free of thresholds.

`transfer`: the clean probe on the states under an intervention, low where the signal is lost or merely rotated (on
clean states: the probe's own score). `refit`: a probe trained out of fold on those states, what is still linearly
readable. `within-relation`: pairs of the same relation only. The baselines stand beside them without a layer.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from anchorscope.evidence.areas import areas
from anchorscope.evidence.draws import Draws, estimates
from anchorscope.evidence.items import probability

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
    values, low, high = estimates(areas(logits, scored.labels, scored.strata, scored.draws))
    loss = np.logaddexp(0, np.where(scored.labels, -logits, logits)).mean(axis=1)
    brier = ((probability(logits) - scored.labels) ** 2).mean(axis=1)
    n, n_groups = len(scored.labels), len(np.unique(scored.groups))
    return [
        Score(intervention, kind, layer, float(values[layer]), float(low[layer]), float(high[layer]),
              float(loss[layer]), float(brier[layer]), n, n_groups)
        for layer in range(len(logits))
    ]  # fmt: skip


def baseline_score(kind: str, scores: Floats, scored: Scored) -> Score:
    """A baseline's AUC; it has no layer, and no loss where its score is not a log-odds."""
    found = estimates(areas(scores[None], scored.labels, scored.strata, scored.draws)[0])
    value, low, high = (float(number) for number in found)
    return Score("clean", kind, None, value, low, high, None, None, len(scores), len(np.unique(scored.groups)))
