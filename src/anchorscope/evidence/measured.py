"""The used items of one dataset at one site and position, and their pathways: arrays, no model and no torch.

Pathways: among the items that the probe gets right at the reference layer, those whose call flips under the knockout
are Q-Anchored, the rest A-Anchored. A flip counts only if the log-odds changed by more than the noise floor. The rule
is applied in three ways: `plain` as stated; `corrected` after the shift that the cut gives to every item is taken
away; `cross-fitted` with one probe that assigns and another that measures.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from anchorscope.catalogue import KNOCKOUT

Floats = NDArray[np.floating]
Bools = NDArray[np.bool_]

Q_ANCHORED = "Q-Anchored"
A_ANCHORED = "A-Anchored"
MISCLASSIFIED = "misclassified"
GROUPS = (Q_ANCHORED, A_ANCHORED)
NOISE_PERCENTILE = 99
"""A change counts if it exceeds this percentile of what the no-op control changes."""


@dataclass(frozen=True)
class Measured:
    """Log-odds before and after every intervention."""

    labels: Bools
    groups: NDArray[np.int64]
    folds: NDArray[np.int64]
    probes: tuple[str, ...]
    """Names along the probe axis."""
    before: Floats
    """Clean log-odds, [probe, layer, item]."""
    after: Mapping[str, Floats]
    """Log-odds per intervention, [probe, layer, item of `ran`]."""
    ran: Mapping[str, NDArray[np.int64]]
    """Which items each intervention was run on; the knockout on all."""
    reference: NDArray[np.int64]
    """Reference layer per probe and fold."""

    @property
    def n_layers(self) -> int:
        return int(self.before.shape[1])

    def probe(self, name: str) -> int:
        return self.probes.index(name)

    def at_reference(
        self, intervention: str, probe: str = "full", move: int = 0
    ) -> tuple[Floats, Floats]:
        """Log-odds at a probe's reference layer, before and after, of the items that were run."""
        index, ran = self.probe(probe), self.ran[intervention]
        reference, folds = self.reference[index], self.folds[ran]
        before = at_reference(self.before[index][:, ran], reference, folds, move)
        return before, at_reference(
            self.after[intervention][index], reference, folds, move
        )


def probability(log_odds: Floats) -> Floats:
    """Probability of "truthful"; log-odds of any size are allowed."""
    return 0.5 * (1 + np.tanh(0.5 * log_odds))


def true_label_probability(log_odds: Floats, labels: Bools) -> Floats:
    """Probability that the probe gives to the item's true label; items along the last axis."""
    return probability(np.where(labels, log_odds, -log_odds))


def delta_p(before: Floats, after: Floats, labels: Bools) -> Floats:
    """ΔP: change of the true label's probability, in percentage points; items along the last axis."""
    return 100 * (
        true_label_probability(after, labels) - true_label_probability(before, labels)
    )


def at_reference(
    logits: Floats,
    reference: NDArray[np.integer],
    folds: NDArray[np.integer],
    move: int = 0,
) -> Floats:
    """Log-odds [..., layer, item] at each item's own fold's reference layer, moved by some layers: [..., item]."""
    layers = np.clip(reference[folds] + move, 0, logits.shape[-2] - 1)
    return logits[..., layers, np.arange(len(folds))]


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
            for right, flip in zip(
                self.correct.tolist(), self.flipped.tolist(), strict=True
            )
        ]


def assign(before: Floats, after: Floats, labels: Bools, noise: float) -> Calls:
    """The rule, on log-odds at the reference layer; `after` may carry leading axes."""
    correct = (before > 0) == labels
    flipped = ((after > 0) != (before > 0)) & (np.abs(after - before) > noise)
    return Calls(correct=np.broadcast_to(correct, flipped.shape), flipped=flipped)


def plain_calls(measured: Measured, probe: str = "full", move: int = 0) -> Calls:
    """Pathways by one probe, as the paper states the rule; `move` shifts the reference layer."""
    logits = measured.at_reference(KNOCKOUT, probe, move)
    return assign(*logits, measured.labels, noise_at_reference(measured, probe))


def noise_at_reference(measured: Measured, probe: str) -> float:
    """The change in log-odds at the reference layer that the no-op control stays below in 99 of 100 items."""
    before, after = (
        measured.at_reference("none", probe)
        if "none" in measured.after
        else (np.zeros(0), np.zeros(0))
    )
    return (
        float(np.percentile(np.abs(after - before), NOISE_PERCENTILE))
        if len(before)
        else 0.0
    )


def permuted_flip_share(
    before: Floats, after: Floats, labels: Bools, folds: NDArray[np.integer]
) -> float:
    """Share of flips among the correct items if the after-scores were dealt out again within each fold.

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
