"""The paper's groups and their ΔP curves; arrays, and torch only where curves are computed.

Reference layer l*: the layer at which a fold's probe tells true from false best, by its inner folds. Among the items
that the probe gets right there, those whose call flips under the knockout are Q-Anchored, the rest A-Anchored. A flip
counts only if the log-odds changed by more than the noise floor.

ΔP: how much probability an item's true label loses at a layer. A curve is its mean over a group's items, per layer,
with a bootstrap interval over groups of items, conditional on the fitted probes and on who is in which group.

Two groups prove nothing: items are sorted by what the knockout does to them, so one curve lies below the other in a
world with one pathway too. Curves under the random control, for the same groups, show how much of it any words do.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from anchorscope.catalogue import KNOCKOUT

if TYPE_CHECKING:
    from torch import Tensor

    from anchorscope.evidence.draws import Draws

Floats = NDArray[np.floating]
Bools = NDArray[np.bool_]

Q_ANCHORED = "Q-Anchored"
A_ANCHORED = "A-Anchored"
MISCLASSIFIED = "misclassified"
GROUPS = (Q_ANCHORED, A_ANCHORED)
TRUTHS = ("all", "true", "false")
"""Curves over all items of a group, and split by whether the answer is true."""
NOISE_PERCENTILE = 99
"""A change counts if it exceeds this percentile of what the no-op control changes."""


@dataclass(frozen=True)
class Measured:
    """The used items of one dataset at one site and position: log-odds before and after every intervention."""

    labels: Bools
    groups: NDArray[np.int64]
    folds: NDArray[np.int64]
    before: Floats
    """Clean log-odds, [layer, item]."""
    after: Mapping[str, Floats]
    """Log-odds per intervention, [layer, item of `ran`]."""
    ran: Mapping[str, NDArray[np.int64]]
    """Which items each intervention was run on; the knockout on all."""
    reference: NDArray[np.int64]
    """Reference layer per fold."""

    @property
    def n_layers(self) -> int:
        return int(self.before.shape[0])

    def at_reference(self, intervention: str, move: int = 0) -> tuple[Floats, Floats]:
        """Log-odds at the reference layer, before and after, of the items that were run."""
        ran = self.ran[intervention]
        folds = self.folds[ran]
        before = at_reference(self.before[:, ran], self.reference, folds, move)
        after = at_reference(self.after[intervention], self.reference, folds, move)
        return before, after


def at_reference(
    logits: Floats,
    reference: NDArray[np.integer],
    folds: NDArray[np.integer],
    move: int = 0,
) -> Floats:
    """Log-odds [layer, item] at each item's own fold's reference layer, moved by some layers: [item]."""
    last = len(logits) - 1
    layers = np.clip(reference[folds] + move, 0, last)
    items = np.arange(len(folds))
    return logits[layers, items]


def probability(log_odds: Floats) -> Floats:
    """Probability of "truthful"; log-odds of any size are allowed."""
    return 0.5 * (1 + np.tanh(0.5 * log_odds))


def true_label_probability(log_odds: Floats, labels: Bools) -> Floats:
    """Probability that the probe gives to the item's true label; items along the last axis."""
    signed = np.where(labels, log_odds, -log_odds)
    return probability(signed)


def delta_p(before: Floats, after: Floats, labels: Bools) -> Floats:
    """ΔP: change of the true label's probability, in percentage points; items along the last axis."""
    was = true_label_probability(before, labels)
    now = true_label_probability(after, labels)
    return 100 * (now - was)


# Groups


@dataclass(frozen=True)
class Calls:
    """Who is in which group."""

    correct: Bools
    """Whether the probe calls the item right before the cut."""
    flipped: Bools
    """Whether its call changes by more than noise."""

    def members(self, group: str) -> Bools:
        """Who belongs to a group."""
        if group == Q_ANCHORED:
            return self.correct & self.flipped
        return self.correct & ~self.flipped

    def names(self) -> list[str]:
        """The pathway of each item, as it is written in the results."""
        groups = np.where(self.flipped, Q_ANCHORED, A_ANCHORED)
        names = np.where(self.correct, groups, MISCLASSIFIED)
        return names.tolist()


def assign(before: Floats, after: Floats, labels: Bools, noise: float) -> Calls:
    """The rule, on log-odds at the reference layer."""
    is_called_true = before > 0
    changes = (after > 0) != is_called_true
    is_real = np.abs(after - before) > noise
    return Calls(correct=is_called_true == labels, flipped=changes & is_real)


def pathways(measured: Measured, move: int = 0) -> Calls:
    """Who is in which group under the knockout; `move` shifts the reference layer."""
    before, after = measured.at_reference(KNOCKOUT, move)
    noise = noise_at_reference(measured)
    return assign(before, after, measured.labels, noise)


def noise_at_reference(measured: Measured) -> float:
    """The change in log-odds at the reference layer that the no-op control stays below in 99 of 100 items."""
    if not len(measured.ran.get("none", ())):
        return 0.0
    before, after = measured.at_reference("none")
    changes = np.abs(after - before)
    return float(np.percentile(changes, NOISE_PERCENTILE))


def permuted_flip_share(
    before: Floats, after: Floats, labels: Bools, folds: NDArray[np.integer]
) -> float:
    """Share of flips among the correct items if the after-scores were dealt out again within each fold.

    The exact expectation over all permutations, not a simulation: every item meets every after-score of its fold.
    """
    flips = 0.0
    total = 0
    for fold in np.unique(folds):
        inside = folds == fold
        correct = ((before > 0) == labels)[inside]
        called = (before[inside] > 0)[correct]
        share_true = float((after[inside] > 0).mean())
        flips += float(np.where(called, 1 - share_true, share_true).sum())
        total += len(called)
    return flips / total if total else float("nan")


# Curves


@dataclass(frozen=True)
class Curve:
    """Mean ΔP per layer of one group, in percentage points."""

    intervention: str
    group: str
    truth: str
    delta_p: Floats
    ci_low: Floats
    ci_high: Floats
    n: int
    n_groups: int
    samples: Tensor
    """In every draw, [layer, draw]: a reading of a curve's shape needs all layers of a draw together."""


def curves(
    measured: Measured, intervention: str, draws: Draws, move: int = 0
) -> list[Curve]:
    """The curves of both groups, over all items and split by truth; `move` shifts the reference layer."""
    calls = pathways(measured, move)
    ran = measured.ran[intervention]
    labels = measured.labels[ran]
    before = measured.before[:, ran]
    after = measured.after[intervention]
    change = _Change(
        intervention,
        delta=delta_p(before, after, labels).T,
        ran=ran,
        groups=measured.groups,
    )
    made = []
    for group in GROUPS:
        inside = calls.members(group)[ran]
        made += _curves_of_group(change, draws, group, inside, is_true=labels)
    return made


@dataclass(frozen=True)
class _Change:
    """What an intervention did to the items that it was run on."""

    intervention: str
    delta: Floats
    """ΔP, [run, layer]."""
    ran: NDArray[np.int64]
    groups: NDArray[np.int64]


def _curves_of_group(
    change: _Change, draws: Draws, group: str, inside: Bools, *, is_true: Bools
) -> list[Curve]:
    """All answers of a group together, its true and its false ones; `inside` says who belongs to it, [run]."""
    from anchorscope.evidence.draws import estimates, ratio

    members = {"all": inside, "true": inside & is_true, "false": inside & ~is_true}
    totals = {}
    numbers = {}
    for truth in ("true", "false"):
        some = members[truth]
        sample = draws.take(change.ran[some])
        totals[truth] = sample.sums(change.delta[some])
        numbers[truth] = sample.numbers()
    totals["all"] = totals["true"] + totals["false"]
    numbers["all"] = numbers["true"] + numbers["false"]
    made = []
    for truth in TRUTHS:
        samples = ratio(totals[truth], numbers[truth])
        value, low, high = estimates(samples)
        # An item with several donors is one item.
        items = np.unique(change.ran[members[truth]])
        curve = Curve(
            change.intervention,
            group,
            truth,
            delta_p=value,
            ci_low=low,
            ci_high=high,
            n=len(items),
            n_groups=len(np.unique(change.groups[items])),
            samples=samples,
        )
        made.append(curve)
    return made
