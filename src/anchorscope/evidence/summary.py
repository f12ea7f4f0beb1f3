"""The few numbers that say whether to believe a chart: one row per quantity, each with interval, n and method.

Shares of the groups and of true answers in them, what permuting the scores would give, agreement before and after,
how far the cut moves the probe as a whole, what the controls do.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from anchorscope.evidence.curves import KNOCKOUT, corrected_calls, noise_at_reference, plain_calls
from anchorscope.evidence.items import Measured, probability, true_label_probability
from anchorscope.evidence.pathways import GROUPS, Q_ANCHORED, Calls, assign, at_reference, permuted_flip_share
from anchorscope.evidence.shift import reference_shifts
from anchorscope.stats.agreement import kappa
from anchorscope.stats.estimate import Estimate, percentile_interval

Floats = NDArray[np.floating]
_METHOD = "bootstrap over groups"


@dataclass(frozen=True)
class Row:
    """One quantity; None where a column does not apply."""

    quantity: str
    estimate: Estimate
    assignment: str | None = None
    intervention: str | None = None
    group: str | None = None


def summarise(measured: Measured, weights: Floats) -> list[Row]:
    """All quantities of one dataset, site and position."""
    rows = [*_assignment_rows(measured, weights, "plain"), *_assignment_rows(measured, weights, "corrected")]
    for intervention in measured.after:
        rows += _intervention_rows(measured, weights, intervention)
        rows += _cross_fitted_rows(measured, weights, intervention)
        rows += _corrected_rows(measured, weights, intervention)
    noise = noise_at_reference(measured, "full")
    n_noise = len(measured.ran.get("none", []))
    percentile = "99th percentile of the no-op control"
    rows.append(Row("noise_log_odds_p99", Estimate(noise, np.nan, np.nan, n_noise, percentile), intervention="none"))
    return rows


def _scores(measured: Measured, assignment: str, weights: Floats) -> tuple[Floats, Floats]:
    """Log-odds at the reference layer before [item] and after the knockout [resample or 1, item]."""
    index, folds = measured.probe("full"), measured.folds
    reference = measured.reference[index]
    clean, cut = measured.before[index], measured.after[KNOCKOUT][index]
    after = at_reference(cut, reference, folds)[None]
    if assignment == "corrected":
        after = after - reference_shifts(clean, cut, folds, reference, weights)
    return at_reference(clean, reference, folds), after


def _assignment_rows(measured: Measured, weights: Floats, assignment: str) -> list[Row]:
    sample = np.ones((1, weights.shape[1]), weights.dtype)

    def calls(rows: Floats) -> Calls:
        return corrected_calls(measured, rows) if assignment == "corrected" else plain_calls(measured)

    def estimate(statistic: Callable[[Floats], Floats], n: int) -> Estimate:
        low, high = percentile_interval(statistic(weights))
        return Estimate(float(statistic(sample)[0]), float(low), float(high), n, _METHOD)

    rows = []
    here = calls(sample)
    n_correct = int(np.atleast_2d(here.correct)[0].sum())
    for group in GROUPS:
        n = int(np.atleast_2d(here.members(group))[0].sum())
        share = lambda w, g=group: _ratio(w * calls(w).members(g), w * calls(w).correct)  # noqa: E731
        true = lambda w, g=group: _ratio(w * (calls(w).members(g) & measured.labels), w * calls(w).members(g))  # noqa: E731
        rows.append(Row("group_share", estimate(share, n_correct), assignment, KNOCKOUT, group))
        rows.append(Row("true_share", estimate(true, n), assignment, KNOCKOUT, group))
    before, after = _scores(measured, assignment, sample)
    null = permuted_flip_share(before, after[0], measured.labels, measured.folds)
    exact = Estimate(null, np.nan, np.nan, n_correct, "exact expectation over permutations within folds")
    rows.append(Row("null_share", exact, assignment, KNOCKOUT, Q_ANCHORED))
    agreement = lambda w: kappa(before > 0, _scores(measured, assignment, w)[1] > 0, w)  # noqa: E731
    rows.append(Row("kappa", estimate(agreement, len(before)), assignment, KNOCKOUT))
    return rows


def _intervention_rows(measured: Measured, weights: Floats, intervention: str) -> list[Row]:
    """What an intervention does at the reference layer, to all items and to the plain groups."""
    ran = measured.ran[intervention]
    labels, drawn = measured.labels[ran], weights[:, ran]
    before, after = _at_own_reference(measured, intervention, "full")
    delta = _delta_p(before, after, labels)
    own = assign(before, after, labels, noise_at_reference(measured, "full"))
    everyone = np.ones(len(ran), dtype=bool)
    rows = [
        Row("flip_rate", _mean(own.flipped, own.correct, drawn), "plain", intervention),
        Row("mean_probability_before", _mean(probability(before), everyone, drawn), None, intervention),
        Row("mean_probability_after", _mean(probability(after), everyone, drawn), None, intervention),
    ]
    calls = plain_calls(measured)
    # With fewer other tokens than exact ones the random control cuts less; the fair comparison is over the rest.
    matched = measured.n_cut[intervention] == measured.n_cut[KNOCKOUT][np.searchsorted(measured.ran[KNOCKOUT], ran)]
    for group in GROUPS:
        inside = calls.members(group)[ran]
        rows.append(Row("delta_p_reference", _mean(delta, inside, drawn), "plain", intervention, group))
        if intervention not in (KNOCKOUT, "none"):
            rows.append(Row("delta_p_matched", _mean(delta, inside & matched, drawn), "plain", intervention, group))
    return rows


def _cross_fitted_rows(measured: Measured, weights: Floats, intervention: str) -> list[Row]:
    """ΔP at the measuring probe's own reference layer, in the groups that the other probe made; both ways averaged."""
    ran = measured.ran[intervention]
    drawn = weights[:, ran]
    rows = []
    for group in GROUPS:
        ways = []
        for assigner, meter in (("a", "b"), ("b", "a")):
            inside = plain_calls(measured, assigner).members(group)[ran]
            before, after = _at_own_reference(measured, intervention, meter)
            ways.append((_delta_p(before, after, measured.labels[ran]), inside))
        value = float(np.mean([_mean(delta, inside, drawn).value for delta, inside in ways]))
        low, high = percentile_interval(np.mean([_samples(delta, inside, drawn) for delta, inside in ways], axis=0))
        n = round(sum(int(inside.sum()) for _, inside in ways) / 2)
        estimate = Estimate(value, float(low), float(high), n, _METHOD)
        rows.append(Row("delta_p_reference", estimate, "cross-fitted", intervention, group))
    return rows


def _corrected_rows(measured: Measured, weights: Floats, intervention: str) -> list[Row]:
    """ΔP at the reference layer with the common shift taken away, in the corrected groups."""
    index, ran = measured.probe("full"), measured.ran[intervention]
    labels, folds, reference = measured.labels[ran], measured.folds[ran], measured.reference[index]
    rows_of_weights = np.concatenate([np.ones((1, weights.shape[1]), weights.dtype), weights])
    drawn = rows_of_weights[:, ran]
    clean, cut = measured.before[index][:, ran], measured.after[intervention][index]
    moved = at_reference(cut, reference, folds) - reference_shifts(clean, cut, folds, reference, drawn)
    delta = _delta_p(at_reference(clean, reference, folds), moved, labels)
    calls = corrected_calls(measured, rows_of_weights)
    rows = []
    for group in GROUPS:
        inside = calls.members(group)[:, ran]
        means = _ratio(drawn * (inside * delta), drawn * inside)
        low, high = percentile_interval(means[1:])
        estimate = Estimate(float(means[0]), float(low), float(high), int(inside[0].sum()), _METHOD)
        rows.append(Row("delta_p_reference", estimate, "corrected", intervention, group))
    return rows


def _at_own_reference(measured: Measured, intervention: str, probe: str) -> tuple[Floats, Floats]:
    """Log-odds at a probe's reference layer, before and after, of the items that were run."""
    index, ran = measured.probe(probe), measured.ran[intervention]
    folds, reference = measured.folds[ran], measured.reference[index]
    before = at_reference(measured.before[index][:, ran], reference, folds)
    return before, at_reference(measured.after[intervention][index], reference, folds)


def _delta_p(before: Floats, after: Floats, labels: NDArray[np.bool_]) -> Floats:
    """Change of the true label's probability, in percentage points."""
    return 100 * (true_label_probability(after, labels) - true_label_probability(before, labels))


def _ratio(part: Floats, whole: Floats) -> Floats:
    total = whole.sum(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(total > 0, part.sum(axis=1) / total, np.nan)


def _samples(values: Floats | NDArray[np.bool_], inside: NDArray[np.bool_], weights: Floats) -> Floats:
    """Bootstrap samples of the mean over the items inside."""
    return _ratio(weights * (inside * values), weights * inside)


def _mean(values: Floats | NDArray[np.bool_], inside: NDArray[np.bool_], weights: Floats) -> Estimate:
    """Mean over the items inside, with its interval."""
    if not inside.any():
        return Estimate(np.nan, np.nan, np.nan, 0, _METHOD)
    low, high = percentile_interval(_samples(values, inside, weights))
    return Estimate(float(values[inside].mean()), float(low), float(high), int(inside.sum()), _METHOD)
