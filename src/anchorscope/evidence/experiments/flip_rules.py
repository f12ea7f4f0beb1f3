"""Rules that say of an item that was called right whether its call hangs on the question: the plain one, and others.

Every rule looks at log-odds at the item's reference layer. It gives a score, larger where more hangs on the question,
and calls an item flipped where that score exceeds the rule's own line (the flip rules also ask for more than noise). So
rules can be compared as they are used, by their calls, and free of any line, by their scores.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from anchorscope.catalogue import KNOCKOUT
from anchorscope.evidence.corrected import shifts
from anchorscope.evidence.draws import Draws
from anchorscope.evidence.experiments.experiment import ExperimentInputs
from anchorscope.evidence.measured import true_label_probability
from anchorscope.evidence.pathways import (
    RETAINED,
    assign,
    at_reference,
    missing_share,
    noise_at_reference,
    prior_log_odds,
)

Floats = NDArray[np.floating]
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class Seen:
    """What rules may look at: one number per item, at its own reference layer."""

    before: Floats
    """Log-odds by the clean probe on clean states."""
    after: Floats
    """By the same probe, under the knockout."""
    refit: Floats | None
    """By a probe that learned from states under the knockout; None where none was fitted."""
    labels: Bools
    folds: NDArray[np.int64]
    noise: float
    """Change in log-odds that is not to be taken for one."""

    @property
    def prior(self) -> Floats:
        """Log-odds of each item's probe if it had learned nothing but the share of true answers."""
        return prior_log_odds(self.labels, self.folds)

    @property
    def correct(self) -> Bools:
        """Who is called right before the cut; rules speak of no others."""
        return (self.before > 0) == self.labels

    @property
    def sign(self) -> Floats:
        """1 where the answer is true, −1 where it is false: log-odds times this are the margin of the true label."""
        return np.where(self.labels, 1.0, -1.0)

    @property
    def called(self) -> Floats:
        """1 where the item is called true before the cut, −1 elsewhere."""
        return np.where(self.before > 0, 1.0, -1.0)


def seen_at_reference(inputs: ExperimentInputs) -> Seen:
    """What flip rules look at, of every used item."""
    place, refit = inputs.measured, inputs.measured.refits.get(KNOCKOUT)
    index = place.probe("full")
    reference = place.reference[index]
    return Seen(
        before=at_reference(place.before[index], reference, place.folds),
        after=at_reference(place.after[KNOCKOUT][index], reference, place.folds),
        refit=None if refit is None else at_reference(refit, reference, place.folds),
        labels=place.labels,
        folds=place.folds,
        noise=noise_at_reference(place, "full"),
    )


@dataclass(frozen=True)
class Rule:
    """A named rule."""

    about: str
    """One line: when an item counts as Q-Anchored."""
    flipped: Callable[[Seen], Bools]
    """Whether each item's call hangs on the question; only items called right are to be asked."""
    score: Callable[[Seen], Floats]
    """Larger where more hangs on the question; NaN where a log-odds is."""
    needs_refit: bool = False
    """Whether `Seen.refit` must be there."""


def corrected_after(seen: Seen) -> Floats:
    """Log-odds under the knockout with each fold's common shift taken away, as the corrected assignment does."""
    known = np.isfinite(seen.before) & np.isfinite(seen.after)
    sample = Draws.of(np.ones((0, int(known.sum()))))
    before, after, folds = seen.before[known], seen.after[known], seen.folds[known]
    moved = np.full(len(seen.after), np.nan)
    if known.any():
        found = shifts(before[None], after[None], folds, int(seen.folds.max()) + 1, sample)[0, :, 0].numpy()
        moved[known] = after - found[folds]
    return moved


def _flips(seen: Seen, after: Floats, noise: float) -> Bools:
    return assign(seen.before, after, seen.labels, noise).flipped


def _turned(seen: Seen, after: Floats) -> Floats:
    """How far the log-odds went to the other side of the call."""
    return -after * seen.called


def _change(seen: Seen) -> Floats:
    return np.abs(seen.after - seen.before)


def _lost_points(seen: Seen) -> Floats:
    """−ΔP, in percentage points."""
    before, after = (true_label_probability(one, seen.labels) for one in (seen.before, seen.after))
    return 100 * (before - after)


def _below_half(seen: Seen, after: Floats) -> Floats:
    """How far the true label's margin is below half of what it was; a ratio would explode where it was small."""
    return (RETAINED * seen.before - after) * seen.sign


def _refit(seen: Seen) -> Floats:
    assert seen.refit is not None, "this rule needs a probe that was trained on cut states"
    return seen.refit


def _changed_by(more_than: float) -> Rule:
    return Rule(f"log-odds change by more than {more_than:g}", lambda seen: _change(seen) > more_than, _change)


def _lost_more_than(points: float) -> Rule:
    about = f"the true label loses more than {points:g} points of probability"
    return Rule(about, lambda seen: _lost_points(seen) > points, _lost_points)


RULES: dict[str, Rule] = {
    "plain": Rule(
        "the call flips, by more than noise",
        lambda seen: _flips(seen, seen.after, seen.noise),
        lambda seen: _turned(seen, seen.after),
    ),
    "any flip": Rule(
        "the call flips, by however little",
        lambda seen: _flips(seen, seen.after, 0.0),
        lambda seen: _turned(seen, seen.after),
    ),
    "change > 1": _changed_by(1),
    "change > 2": _changed_by(2),
    "loss > 10": _lost_more_than(10),
    "loss > 25": _lost_more_than(25),
    "loss > 50": _lost_more_than(50),
    "half the margin": Rule(
        "the true label loses more than half of its log-odds margin",
        lambda seen: _below_half(seen, seen.after) > 0,
        lambda seen: _below_half(seen, seen.after),
    ),
    "corrected": Rule(
        "the call flips, by more than noise, once the shift common to all items is taken away",
        lambda seen: _flips(seen, corrected_after(seen), seen.noise),
        lambda seen: _turned(seen, corrected_after(seen)),
    ),
    "refit flip": Rule(
        "a probe that learned from cut states calls the cut item differently than the clean probe did the clean one",
        lambda seen: _flips(seen, _refit(seen), 0.0),
        lambda seen: _turned(seen, _refit(seen)),
        needs_refit=True,
    ),
    "refit half the margin": Rule(
        "such a probe leaves the true label less than half of its log-odds margin",
        lambda seen: _below_half(seen, _refit(seen)) > 0,
        lambda seen: _below_half(seen, _refit(seen)),
        needs_refit=True,
    ),
    "retained": Rule(
        "such a probe leaves the true label less than half of its probability above chance",
        lambda seen: missing_share(seen.before, _refit(seen), seen.labels, seen.prior) > 0,
        lambda seen: missing_share(seen.before, _refit(seen), seen.labels, seen.prior),
        needs_refit=True,
    ),
}
"""All rules by name; `plain`, `corrected` and `retained` are assignments of the main job."""
