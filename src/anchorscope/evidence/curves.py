"""ΔP curves: how much probability the item's true label loses at every layer, on average over a pathway's items.

One curve per intervention, assignment, group and truth label, each with a bootstrap interval over groups, conditional
on the fitted probes.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from anchorscope.catalogue import KNOCKOUT
from anchorscope.evidence.corrected import CELLS, CellSums, Corrected, curve_samples, of_group
from anchorscope.evidence.draws import Draws, estimates, ratio
from anchorscope.evidence.measured import Measured, true_label_probability
from anchorscope.evidence.pathways import GROUPS, Calls, plain_calls

TRUTHS = ("all", "true", "false")
"""Curves over all items of a group, and split by whether the answer is true."""

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


Means = dict[tuple[str, str], Tensor]
"""Mean ΔP [layer, draw] per group and truth label; the first draw is the sample itself."""


def knockout_samples(corrected: Corrected, sums: CellSums, draws: Draws) -> dict[tuple[str, str], Floats]:
    """The whole groups' curves in every draw, [layer, draw], per assignment and group.

    A reading of a curve's shape (where it is lowest, from where on it is flat) needs all layers of a draw together.
    """
    measured = corrected.measured
    found: dict[str, Means] = {
        "plain": _means(plain_calls(measured), measured, KNOCKOUT, "full", draws),
        "cross-fitted": _cross_fitted_means(measured, KNOCKOUT, draws),
        "corrected": {(group, "all"): curve_samples(sums, group, "all") for group in GROUPS},
    }
    return {
        (assignment, group): means[group, "all"].cpu().numpy()
        for assignment, means in found.items()
        for group in GROUPS
    }


def plain_curves(measured: Measured, intervention: str, draws: Draws, move: int = 0) -> list[Curve]:
    """Curves of the plain assignment."""
    return _curves("plain", plain_calls(measured, move=move), measured, intervention, draws)


def _curves(assignment: str, calls: Calls, measured: Measured, intervention: str, draws: Draws) -> list[Curve]:
    """Curves of fixed groups."""
    means = _means(calls, measured, intervention, "full", draws)
    curves = []
    for (group, truth), samples in means.items():
        members = _members(calls, measured, intervention, group, truth)
        n_groups = len(np.unique(measured.groups[members]))
        n = len(np.unique(members))  # an item with several donors is one item
        curves.append(Curve(intervention, assignment, group, truth, *estimates(samples), n, n_groups))
    return curves


def cross_fitted_curves(measured: Measured, intervention: str, draws: Draws) -> list[Curve]:
    """One half's probe assigns and the other's measures, then the other way round; the two curves averaged."""
    calls = [plain_calls(measured, assigner) for assigner in ("a", "b")]
    curves = []
    for (group, truth), samples in _cross_fitted_means(measured, intervention, draws).items():
        members = [_members(by, measured, intervention, group, truth) for by in calls]
        n = round(sum(len(np.unique(some)) for some in members) / 2)
        n_groups = round(sum(len(np.unique(measured.groups[some])) for some in members) / 2)
        curves.append(Curve(intervention, "cross-fitted", group, truth, *estimates(samples), n, n_groups))
    return curves


def _cross_fitted_means(measured: Measured, intervention: str, draws: Draws) -> Means:
    first, second = (
        _means(plain_calls(measured, assigner), measured, intervention, meter, draws)
        for assigner, meter in (("a", "b"), ("b", "a"))
    )
    return {cell: (samples + second[cell]) / 2 for cell, samples in first.items()}


def corrected_curves(corrected: Corrected, intervention: str, sums: CellSums) -> list[Curve]:
    """Curves with the common shift taken away."""
    measured = corrected.measured
    calls = corrected.sample()
    curves = []
    for group in GROUPS:
        for truth in TRUTHS:
            members = _members(calls, measured, intervention, group, truth)
            n_groups = len(np.unique(measured.groups[members]))
            found = estimates(curve_samples(sums, group, truth))
            curves.append(Curve(intervention, "corrected", group, truth, *found, len(np.unique(members)), n_groups))
    return curves


def _means(calls: Calls, measured: Measured, intervention: str, probe: str, draws: Draws) -> Means:
    """Mean ΔP by one probe."""
    index, ran = measured.probe(probe), measured.ran[intervention]
    labels = measured.labels[ran]
    after = true_label_probability(measured.after[intervention][index], labels)
    delta = 100 * (after - true_label_probability(measured.before[index][:, ran], labels)).T
    totals, numbers = [], []
    for group, truth in CELLS:
        inside = calls.members(group)[ran] & (labels == truth)
        drawn = draws.take(ran[inside])
        totals.append(drawn.sums(delta[inside]))
        numbers.append(drawn.numbers())
    return {
        (group, truth): ratio(of_group(totals, group, truth), of_group(numbers, group, truth))
        for group in GROUPS
        for truth in TRUTHS
    }


def _members(calls: Calls, measured: Measured, intervention: str, group: str, truth: str) -> NDArray[np.int64]:
    """The items of a group and truth label that an intervention was run on, as often as it was."""
    ran = measured.ran[intervention]
    inside = calls.members(group)[ran]
    return ran[inside if truth == "all" else inside & (measured.labels[ran] == (truth == "true"))]
