"""ΔP curves: how much probability the item's true label loses at every layer, on average over a pathway's items.

One curve per intervention, assignment, group and truth label, each with a bootstrap interval over groups, conditional
on the fitted probes. The corrected assignment estimates its shift anew in every resample, for membership and for ΔP.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from anchorscope.evidence.items import Measured, true_label_probability
from anchorscope.evidence.pathways import GROUPS, Calls, assign, at_reference, noise_floor
from anchorscope.evidence.shift import reference_shifts, shifts
from anchorscope.stats.bootstrap import weighted_mean
from anchorscope.stats.estimate import percentile_interval

TRUTHS = ("all", "true", "false")
"""Curves over all items of a group, and split by whether the answer is true."""
KNOCKOUT = "knockout"
"""The intervention that assigns pathways."""

Floats = NDArray[np.floating]
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class Curve:
    """Mean ΔP per layer of one group, in percentage points."""

    intervention: str
    assignment: str
    group: str
    truth: str
    delta_p: Floats
    ci_low: Floats
    ci_high: Floats
    n: int
    n_groups: int


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


def corrected_calls(measured: Measured, weights: Floats) -> Calls:
    """Pathways after each resample's own shift, [resample, item]."""
    index, folds = measured.probe("full"), measured.folds
    reference = measured.reference[index]
    clean, cut = measured.before[index], measured.after[KNOCKOUT][index]
    moved = at_reference(cut, reference, folds) - reference_shifts(clean, cut, folds, reference, weights)
    before = at_reference(clean, reference, folds)
    return assign(before, moved, measured.labels, noise_at_reference(measured, "full"))


def plain_curves(measured: Measured, intervention: str, weights: Floats, move: int = 0) -> list[Curve]:
    """Curves of the plain assignment."""
    ran = measured.ran[intervention]
    calls = plain_calls(measured, move=move)
    drawn = weights[:, ran]
    delta = _delta(measured, intervention, "full")
    curves = []
    for group, truth, inside in _cells(calls, measured.labels, ran):
        samples = weighted_mean(delta[inside], drawn[:, inside])
        curves.append(_curve(measured, intervention, "plain", group, truth, delta[inside], samples, ran[inside]))
    return curves


def cross_fitted_curves(measured: Measured, intervention: str, weights: Floats) -> list[Curve]:
    """One half's probe assigns and the other's measures, then the other way round; the two curves averaged."""
    ran = measured.ran[intervention]
    drawn = weights[:, ran]
    ways = [(_cells(plain_calls(measured, assigner), measured.labels, ran), _delta(measured, intervention, meter))
            for assigner, meter in (("a", "b"), ("b", "a"))]  # fmt: skip
    curves = []
    for (group, truth, first), (_, _, second) in zip(ways[0][0], ways[1][0], strict=True):
        parts = [(first, ways[0][1]), (second, ways[1][1])]
        values = np.mean([_mean(delta[inside], measured.n_layers) for inside, delta in parts], axis=0)
        samples = np.mean([weighted_mean(delta[inside], drawn[:, inside]) for inside, delta in parts], axis=0)
        low, high = percentile_interval(samples)
        n = round((first.sum() + second.sum()) / 2)
        n_groups = round(sum(len(np.unique(measured.groups[ran[inside]])) for inside in (first, second)) / 2)
        curves.append(Curve(intervention, "cross-fitted", group, truth, values, low, high, n, n_groups))
    return curves


def corrected_curves(measured: Measured, intervention: str, weights: Floats) -> list[Curve]:
    """Curves with the common shift taken away; row 0 of the weights used here is the sample itself."""
    ran, index = measured.ran[intervention], measured.probe("full")
    drawn = np.concatenate([np.ones((1, weights.shape[1]), weights.dtype), weights])
    calls = corrected_calls(measured, drawn)
    drawn = drawn[:, ran]
    labels, folds = measured.labels[ran], measured.folds[ran]
    cells = [
        (group, truth, drawn * (calls.members(group)[:, ran] & _truth(labels, truth)))
        for group in GROUPS
        for truth in TRUTHS
    ]
    totals = [cell.sum(axis=1) for _, _, cell in cells]
    means = np.full((len(cells), len(drawn), measured.n_layers), np.nan)
    for layer in range(measured.n_layers):
        before, after = measured.before[index, layer, ran], measured.after[intervention][index, layer]
        chance = true_label_probability(after - shifts(before, after, folds, drawn), labels)
        delta = 100 * (chance - true_label_probability(before, labels))
        for place, ((_, _, cell), total) in enumerate(zip(cells, totals, strict=True)):
            with np.errstate(invalid="ignore", divide="ignore"):
                means[place, :, layer] = np.einsum("rn,rn->r", cell, delta) / total
    curves = []
    for (group, truth, cell), mean in zip(cells, means, strict=True):
        low, high = percentile_interval(mean[1:])
        inside = cell[0] > 0
        n_groups = len(np.unique(measured.groups[ran[inside]]))
        curves.append(Curve(intervention, "corrected", group, truth, mean[0], low, high, int(inside.sum()), n_groups))
    return curves


def _delta(measured: Measured, intervention: str, probe: str) -> Floats:
    """ΔP of every item that was run, [item, layer]."""
    index, ran = measured.probe(probe), measured.ran[intervention]
    labels = measured.labels[ran]
    after = true_label_probability(measured.after[intervention][index], labels)
    return 100 * (after - true_label_probability(measured.before[index][:, ran], labels)).T


def _cells(calls: Calls, labels: Bools, ran: NDArray[np.integer]) -> list[tuple[str, str, Bools]]:
    """Who is in each group and truth label, among the items that were run."""
    return [
        (group, truth, calls.members(group)[ran] & _truth(labels[ran], truth)) for group in GROUPS for truth in TRUTHS
    ]


def _truth(labels: Bools, truth: str) -> Bools:
    return np.ones_like(labels) if truth == "all" else labels if truth == "true" else ~labels


def _mean(delta: Floats, n_layers: int) -> Floats:
    return delta.mean(axis=0, dtype=np.float64) if len(delta) else np.full(n_layers, np.nan)


def _curve(
    measured: Measured, intervention: str, assignment: str, group: str, truth: str,
    delta: Floats, samples: Floats, members: NDArray[np.integer],
) -> Curve:  # fmt: skip
    low, high = percentile_interval(samples)
    n_groups = len(np.unique(measured.groups[members]))
    value = _mean(delta, measured.n_layers)
    return Curve(intervention, assignment, group, truth, value, low, high, len(members), n_groups)
