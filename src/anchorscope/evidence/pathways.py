"""Pathways: among the items that the probe gets right at the reference layer, whose call flips under the knockout?

Flips are Q-Anchored, the rest A-Anchored. A flip counts only if the log-odds changed by more than the noise floor. The
rule is applied in three ways: `plain` as stated; `corrected` after the shift that the cut gives to every item is taken
away; `cross-fitted` with one probe that assigns and another that measures.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from anchorscope.catalogue import KNOCKOUT
from anchorscope.evidence.measured import Measured

Q_ANCHORED = "Q-Anchored"
A_ANCHORED = "A-Anchored"
MISCLASSIFIED = "misclassified"
GROUPS = (Q_ANCHORED, A_ANCHORED)
ASSIGNMENTS = ("plain", "cross-fitted", "corrected")
NOISE_PERCENTILE = 99
"""A change counts if it exceeds this percentile of what the no-op control changes."""

Floats = NDArray[np.floating]
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class Calls:
    """Who is in which group; leading axes (resamples) are allowed."""

    correct: Bools
    """Whether the probe calls the item right before the cut."""
    flipped: Bools
    """Whether its call changes by more than noise."""

    def members(self, group: str) -> Bools:
        """Who belongs to a group."""
        return self.correct & (self.flipped if group == Q_ANCHORED else ~self.flipped)

    def names(self) -> list[str]:
        """The pathway of each item, as it is written in the results."""
        return [
            MISCLASSIFIED if not right else Q_ANCHORED if flip else A_ANCHORED
            for right, flip in zip(self.correct.tolist(), self.flipped.tolist(), strict=True)
        ]


def assign(before: Floats, after: Floats, labels: Bools, noise: float) -> Calls:
    """The rule, on log-odds at the reference layer; `after` may carry leading axes."""
    correct = (before > 0) == labels
    flipped = ((after > 0) != (before > 0)) & (np.abs(after - before) > noise)
    return Calls(correct=np.broadcast_to(correct, flipped.shape), flipped=flipped)


def at_reference(logits: Floats, reference: NDArray[np.integer], folds: NDArray[np.integer], move: int = 0) -> Floats:
    """Log-odds [..., layer, item] at each item's own fold's reference layer, moved by some layers: [..., item]."""
    layers = np.clip(reference[folds] + move, 0, logits.shape[-2] - 1)
    return logits[..., layers, np.arange(len(folds))]


def noise_floor(before: Floats, after: Floats) -> float:
    """The change in log-odds that the no-op control stays below in 99 of 100 items; 0 where it was not run."""
    return float(np.percentile(np.abs(after - before), NOISE_PERCENTILE)) if len(before) else 0.0


def plain_calls(measured: Measured, probe: str = "full", move: int = 0) -> Calls:
    """Pathways by one probe, as the paper states the rule; `move` shifts the reference layer."""
    index, folds = measured.probe(probe), measured.folds
    reference = measured.reference[index]
    before = at_reference(measured.before[index], reference, folds, move)
    after = at_reference(measured.after[KNOCKOUT][index], reference, folds, move)
    return assign(before, after, measured.labels, noise_at_reference(measured, probe))


def noise_at_reference(measured: Measured, probe: str) -> float:
    """The no-op control's change in log-odds at the reference layer that 99 of 100 items stay below."""
    if "none" not in measured.after:
        return 0.0
    index, ran = measured.probe(probe), measured.ran["none"]
    reference, folds = measured.reference[index], measured.folds[ran]
    before = at_reference(measured.before[index][:, ran], reference, folds)
    return noise_floor(before, at_reference(measured.after["none"][index], reference, folds))


def permuted_flip_share(before: Floats, after: Floats, labels: Bools, folds: NDArray[np.integer]) -> float:
    """Share of flips among the correct items if the after-scores were dealt out anew within each fold.

    The exact expectation over all permutations, not a simulation: every item meets every after-score of its fold.
    """
    flips, total = 0.0, 0
    for fold in np.unique(folds):
        inside = folds == fold
        correct = ((before > 0) == labels)[inside]
        called = (before[inside] > 0)[correct]
        share_true = float((after[inside] > 0).mean())
        flips += float(np.where(called, 1 - share_true, share_true).sum())
        total += len(called)
    return flips / total if total else float("nan")
