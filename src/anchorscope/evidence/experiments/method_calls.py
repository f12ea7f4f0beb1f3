"""Whom each method would call Q-Anchored: one rule, applied to everything that was run in place of the knockout.

An item that the probe gets right is Q-Anchored for a method if its call at the reference layer flips by more than noise
under that method. With several runs of an item (several donors) the majority decides, and a tie is decided by the mean
of their log-odds. Under the corrected rule each method's own common shift is taken away first, in every draw anew.
Saliency has no call to flip: it calls those with the highest values, as many of them as the knockout does.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from anchorscope.catalogue import KNOCKOUT
from anchorscope.evidence.corrected import shifts
from anchorscope.evidence.draws import Draws
from anchorscope.evidence.experiments.experiment import ExperimentInputs
from anchorscope.evidence.measured import Measured, true_label_probability
from anchorscope.evidence.pathways import at_reference, noise_at_reference

METHODS = (KNOCKOUT, "direct", "zeroing", "patch-same", "patch-random", "answer-template", "answer-bare")
"""Interventions that ask whether an item needs its question; the others are controls."""
RULES = ("plain", "corrected")
"""Assignments that any method can follow."""
SALIENCY = "saliency (matched share)"
"""The method that calls the items with the highest saliency, as many as the knockout calls."""
SALIENCY_VALUES = ("share", "log_odds")
"""Quantity and variant of the saliency that is used: what part of all that flows into the answer comes from E_Q, by the
gradient of the log-odds, which does not vanish where the probe is sure."""

Floats = NDArray[np.floating]
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class MethodCalls:
    """What one method says of the items."""

    method: str
    ran: Bools
    """The items that it was run on, [item]."""
    flipped: Tensor
    """Whom it calls Q-Anchored if the probe was right before, bool, [item, draw, or 1 where all draws agree]."""
    score: Floats
    """A number that grows with how much it thinks so, [item]; NaN where it was not run."""

    def sample(self) -> Bools:
        """The calls of the sample, [item]."""
        return self.flipped[:, 0].cpu().numpy()


def correct_before(measured: Measured) -> Bools:
    """Whether the probe calls an item right at its reference layer, before anything is changed, [item]."""
    return (_before(measured) > 0) == measured.labels


def method_calls(inputs: ExperimentInputs, rule: str) -> list[MethodCalls]:
    """The calls of every method that was run, by one of `RULES`; the knockout's first."""
    place = inputs.measured
    found = [intervention_calls(place, name, rule, inputs.draws) for name in METHODS if name in place.after]
    saliency = _saliency(inputs)
    if saliency is not None and found and found[0].method == KNOCKOUT:
        found.append(_as_many(saliency, found[0], correct_before(place), inputs.draws))
    return found


def _before(measured: Measured) -> Floats:
    full = measured.probe("full")
    return at_reference(measured.before[full], measured.reference[full], measured.folds)


def intervention_calls(measured: Measured, name: str, rule: str, draws: Draws) -> MethodCalls:
    """The calls of one intervention, by one of `RULES`."""
    full, ran, n = measured.probe("full"), measured.ran[name], len(measured.labels)
    reference, folds = measured.reference[full], measured.folds[ran]
    after = draws.put(at_reference(measured.after[name][full], reference, folds))[:, None]
    if rule == "corrected":
        after = after - _shift(measured, name, draws)
    before, noise = draws.put(_before(measured))[:, None], noise_at_reference(measured, "full")
    runs = draws.put(ran)
    number = torch.zeros(n, 1, device=draws.device).index_add_(0, runs, torch.ones(len(ran), 1, device=draws.device))
    votes, mean = (
        torch.zeros(n, after.shape[1], dtype=table.dtype, device=draws.device).index_add_(0, runs, table)
        for table in (_flips(before[runs], after, noise).to(after.dtype), after)
    )
    by_mean = _flips(before, mean / number.clamp(min=1), noise)
    flipped = (votes > number / 2) | ((votes == number / 2) & by_mean)
    lost = _lost(measured, ran, after[:, 0].cpu().numpy())
    score = np.bincount(ran, weights=lost, minlength=n) / np.maximum(np.bincount(ran, minlength=n), 1)
    has_run = number[:, 0].cpu().numpy() > 0
    return MethodCalls(name, has_run, flipped, np.where(has_run, score, np.nan))


def _shift(measured: Measured, name: str, draws: Draws) -> Tensor:
    """The method's common shift at each run's own reference layer, [run, draw]."""
    full, ran = measured.probe("full"), measured.ran[name]
    layers, of_fold = np.unique(measured.reference[full], return_inverse=True)
    folds, n_folds = measured.folds[ran], len(of_fold)
    before, after = measured.before[full][layers][:, ran], measured.after[name][full][layers]
    found = shifts(before, after, folds, n_folds, draws.take(ran))
    return found[draws.put(of_fold[folds]), draws.put(folds)]


def _flips(before: Tensor, after: Tensor, noise: float) -> Tensor:
    return ((after > 0) != (before > 0)) & ((after - before).abs() > noise)


def _lost(measured: Measured, ran: NDArray[np.integer], after: Floats) -> Floats:
    """Points of probability that each run takes from the true label."""
    labels = measured.labels[ran]
    return 100 * (true_label_probability(_before(measured)[ran], labels) - true_label_probability(after, labels))


def _saliency(inputs: ExperimentInputs) -> Floats | None:
    """Saliency of each item; NaN where it is not known, None where none is."""
    found = inputs.earlier.get("saliency")
    for values in found.values if found is not None else ():
        if (values.quantity, values.variant) == SALIENCY_VALUES:
            table = np.full(inputs.n, np.nan)
            table[values.items] = values.values
            return table if np.isfinite(table).any() else None
    return None


def _as_many(values: Floats, knockout: MethodCalls, correct: Bools, draws: Draws) -> MethodCalls:
    """The highest values, as many among the right items as the knockout calls of the same."""
    known = np.isfinite(values)
    among = np.flatnonzero(known & correct & knockout.ran)
    number = int(knockout.sample()[among].sum())
    called = np.zeros(len(values), dtype=bool)
    called[among[np.argsort(-values[among], kind="stable")[:number]]] = True
    return MethodCalls(SALIENCY, known, draws.put(called)[:, None], np.where(known, values, np.nan))
