"""The few numbers that say whether to believe a chart: one row per quantity, each with interval, n and method.

Shares of the groups and of true answers in them, what permuting the scores would give, agreement before and after,
how far the cut moves the probe as a whole, what the controls do.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from anchorscope.catalogue import KNOCKOUT
from anchorscope.evidence.corrected import CellSums, Corrected, reference_samples
from anchorscope.evidence.draws import Draws, estimates, ratio, total
from anchorscope.evidence.measured import Measured, probability, true_label_probability
from anchorscope.evidence.pathways import (
    GROUPS,
    Q_ANCHORED,
    assign,
    at_reference,
    noise_at_reference,
    permuted_flip_share,
    plain_calls,
)
from anchorscope.stats.estimate import Estimate, kappa

Floats = NDArray[np.floating]
Bools = NDArray[np.bool_]
_METHOD = "bootstrap over groups"
MATCHED = ("random", "template", "patch-control")
"""Controls that change as many tokens as the knockout, where there are as many."""


@dataclass(frozen=True)
class Row:
    """One quantity; None where a column does not apply."""

    quantity: str
    estimate: Estimate
    assignment: str | None = None
    intervention: str | None = None
    group: str | None = None


def summarise(corrected: Corrected, sums: Mapping[str, CellSums]) -> list[Row]:
    """All quantities of one dataset, site and position; `sums` of the corrected cells per intervention."""
    measured, draws = corrected.measured, corrected.draws
    rows = [*_assignment_rows(corrected, "plain"), *_assignment_rows(corrected, "corrected")]
    for intervention in measured.after:
        rows += _intervention_rows(measured, draws, intervention)
        rows += _cross_fitted_rows(measured, draws, intervention)
        rows += _corrected_rows(corrected, intervention, sums[intervention])
    noise = noise_at_reference(measured, "full")
    n_noise = len(measured.ran.get("none", []))
    percentile = "99th percentile of the no-op control"
    rows.append(Row("noise_log_odds_p99", Estimate(noise, np.nan, np.nan, n_noise, percentile), intervention="none"))
    return rows


def _assignment_rows(corrected: Corrected, assignment: str) -> list[Row]:
    """How large the groups are and how many of their answers are true, and what chance would give."""
    measured, draws = corrected.measured, corrected.draws
    before, after = _at_own_reference(measured, KNOCKOUT, "full")
    if assignment == "plain":
        calls = plain_calls(measured)
        called, flipped = (draws.to_device(one)[:, None] for one in (after > 0, calls.flipped))
    else:
        calls, called, flipped = corrected.sample(), corrected.called, corrected.flipped
        index, folds = measured.reference[measured.probe("full")][measured.folds], measured.folds
        after = after - corrected.knockout[..., 0].cpu().numpy()[index, folds]
    labels = measured.labels
    right, wrong = (_numbers(flipped, calls.correct & (labels == truth), draws) for truth in (True, False))
    n_correct, rows = int(calls.correct.sum()), []
    for place, group in enumerate(GROUPS):
        size = right[place] + wrong[place]
        share = _estimate(ratio(size, right.sum(dim=0) + wrong.sum(dim=0)), n_correct)
        rows.append(Row("group_share", share, assignment, KNOCKOUT, group))
        true = _estimate(ratio(right[place], size), int(calls.members(group).sum()))
        rows.append(Row("true_share", true, assignment, KNOCKOUT, group))
    null = permuted_flip_share(before, after, labels, measured.folds)
    exact = Estimate(null, np.nan, np.nan, n_correct, "exact expectation over permutations within folds")
    rows.append(Row("null_share", exact, assignment, KNOCKOUT, Q_ANCHORED))
    both = torch.stack([_numbers(called, before > 0, draws), _numbers(called, before <= 0, draws)])
    agreement = torch.from_numpy(kappa(both.cpu().numpy()))
    rows.append(Row("kappa", _estimate(agreement, len(before)), assignment, KNOCKOUT))
    return rows


def _numbers(call: Tensor, inside: Bools, draws: Draws) -> Tensor:
    """How many of the items inside get a call [item, draw or 1], and how many do not, [2, draw]."""
    where = draws.to_device(np.flatnonzero(inside))
    counts = draws.counts[where]
    yes = total(counts * call[where])
    return torch.stack([yes, total(counts) - yes])


def _intervention_rows(measured: Measured, draws: Draws, intervention: str) -> list[Row]:
    """What an intervention does at the reference layer, to all items and to groups that do not change with the draw."""
    ran = measured.ran[intervention]
    labels = measured.labels[ran]
    before, after = _at_own_reference(measured, intervention, "full")
    delta = _delta_p(before, after, labels)
    own = assign(before, after, labels, noise_at_reference(measured, "full"))
    everyone = np.ones(len(ran), dtype=bool)
    wanted: list[tuple[str, Floats | Bools, Bools, str | None, str | None]] = [
        ("flip_rate", own.flipped, own.correct, "plain", None),
        ("mean_probability_before", probability(before), everyone, None, None),
        ("mean_probability_after", probability(after), everyone, None, None),
    ]
    in_knockout = np.searchsorted(measured.ran[KNOCKOUT], ran)
    # With fewer other tokens than exact ones the random control cuts less; the fair comparison is over the rest.
    matched = measured.n_cut[intervention] == measured.n_cut[KNOCKOUT][in_knockout]
    beyond = delta - _delta_p(*_at_own_reference(measured, KNOCKOUT, "full"), measured.labels)[in_knockout]
    calls = plain_calls(measured)
    for group in GROUPS:
        inside = calls.members(group)[ran]
        wanted.append(("delta_p_reference", delta, inside, "plain", group))
        wanted.append(("flip_rate", own.flipped, inside, "plain", group))
        if intervention in MATCHED:
            wanted.append(("delta_p_matched", delta, inside & matched, "plain", group))
        if intervention not in (KNOCKOUT, "none"):
            wanted.append(("delta_p_beyond_knockout", beyond, inside, "plain", group))
    inside = np.stack([one[2] for one in wanted], axis=1)
    samples = _means(np.stack([one[1] for one in wanted], axis=1), inside, draws.take(ran))
    rows = [
        Row(quantity, _estimate(samples[place], _number_of(ran[inside[:, place]])), assignment, intervention, group)
        for place, (quantity, _, _, assignment, group) in enumerate(wanted)
    ]
    at = {(one[0], one[4]): samples[place] for place, one in enumerate(wanted)}
    n = _number_of(ran[own.correct])
    for quantity in ("delta_p_reference", "flip_rate"):
        between = at[quantity, GROUPS[0]] - at[quantity, GROUPS[1]]
        rows.append(Row(f"{quantity}_difference", _estimate(between, n), "plain", intervention))
    return rows


def _number_of(runs: NDArray[np.int64]) -> int:
    """How many items; one that is run several times is one."""
    return len(np.unique(runs))


def _cross_fitted_rows(measured: Measured, draws: Draws, intervention: str) -> list[Row]:
    """ΔP at the measuring probe's own reference layer, in the groups that the other probe made; both ways averaged."""
    ran = measured.ran[intervention]
    drawn = draws.take(ran)
    samples, sizes = [], []
    for assigner, meter in (("a", "b"), ("b", "a")):
        calls = plain_calls(measured, assigner)
        inside = np.stack([calls.members(group)[ran] for group in GROUPS], axis=1)
        before, after = _at_own_reference(measured, intervention, meter)
        samples.append(_means(_delta_p(before, after, measured.labels[ran])[:, None], inside, drawn))
        sizes.append([_number_of(ran[inside[:, place]]) for place in range(len(GROUPS))])
    mean, size = torch.stack(samples).mean(dim=0), np.mean(sizes, axis=0)
    rows = [
        Row("delta_p_reference", _estimate(mean[place], round(size[place])), "cross-fitted", intervention, group)
        for place, group in enumerate(GROUPS)
    ]
    between = _estimate(mean[0] - mean[1], round(size.sum()))
    return [*rows, Row("delta_p_reference_difference", between, "cross-fitted", intervention)]


def _corrected_rows(corrected: Corrected, intervention: str, sums: CellSums) -> list[Row]:
    """ΔP at the reference layer with the common shift taken away, in the corrected groups."""
    measured = corrected.measured
    reference = measured.reference[measured.probe("full")]
    calls, ran = corrected.sample(), measured.ran[intervention]
    samples = [reference_samples(sums, reference, group) for group in GROUPS]
    sizes = [_number_of(ran[calls.members(group)[ran]]) for group in GROUPS]
    rows = [
        Row("delta_p_reference", _estimate(mean, n), "corrected", intervention, group)
        for group, mean, n in zip(GROUPS, samples, sizes, strict=True)
    ]
    between = _estimate(samples[0] - samples[1], sum(sizes))
    return [*rows, Row("delta_p_reference_difference", between, "corrected", intervention)]


def _at_own_reference(measured: Measured, intervention: str, probe: str) -> tuple[Floats, Floats]:
    """Log-odds at a probe's reference layer, before and after, of the items that were run."""
    index, ran = measured.probe(probe), measured.ran[intervention]
    folds, reference = measured.folds[ran], measured.reference[index]
    before = at_reference(measured.before[index][:, ran], reference, folds)
    return before, at_reference(measured.after[intervention][index], reference, folds)


def _delta_p(before: Floats, after: Floats, labels: Bools) -> Floats:
    """Change of the true label's probability, in percentage points."""
    return 100 * (true_label_probability(after, labels) - true_label_probability(before, labels))


def _means(values: Floats, inside: Bools, draws: Draws) -> Tensor:
    """Means of columns of values over the items inside, [item, k] each, in every draw, [k, draw]."""
    return ratio(draws.sums(values * inside), draws.sums(inside))


def _estimate(samples: Tensor, n: int) -> Estimate:
    value, low, high = (float(number) for number in estimates(samples))
    return Estimate(value, low, high, n, _METHOD)
