"""Means and differences of groups with bootstrap intervals, effect sizes and tests; the same draws everywhere.

Every draw resamples whole groups of questions and both sides of a difference come from the same draw, so that the
differences are paired wherever the same questions stand on both sides. Tests use the bootstrap's standard error and a
normal distribution: a share of 2,000 draws could not go below one in a thousand, and a heat map has more cells.

A number of every item is averaged per pathway and truth label and compared between the pathways; every item keeps the
pathway that it has in the sample, and where it stands for several that were not drawn, weights say for how many. How
well a number tells the pathways apart, free of thresholds, is an AUC over items of one fold: scores of different folds
come from different probes. The plain rule sorts items largely by their label, so that the decisive numbers are those
within true and within false answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.stats import false_discovery_control, norm

from anchorscope.evidence.measured import A_ANCHORED, GROUPS, Q_ANCHORED
from anchorscope.experiments.experiment import ExperimentInputs, Statistic
from anchorscope.report.result_rows import TRUTHS
from anchorscope.stats.estimate import Estimate, percentile_interval

if TYPE_CHECKING:
    from torch import Tensor

    from anchorscope.evidence.draws import Draws

Floats = NDArray[np.floating]
Bools = NDArray[np.bool_]

METHOD = "bootstrap over groups"
FEW = 10
"""Items of a group below which nothing is said of it: its interval would rest on a handful of questions."""
_STILL = 1e-12  # numbers that differ by less in all draws differ by rounding only
Missing = tuple[str, str]
"""A quantity, and the reason why it is not stated."""
_AREA = f"{METHOD}, pairs of the same fold, p against 0.5"


def of_truth(labels: Bools, truth: str) -> Bools:
    """Which items are meant by `all`, `true` or `false`."""
    return np.ones(len(labels), bool) if truth == "all" else labels == (truth == "true")


def answers_of(truth: str) -> str:
    """The same in words."""
    return "items" if truth == "all" else TRUTHS[truth]


def in_groups_of(assignment: str | None, method: str = METHOD) -> str:
    """How a number was made whose groups stay as they are in the sample, whatever the draw.

    The corrected rule rests on an estimate, and elsewhere every draw makes its own groups by it.
    """
    return f"{method}, groups of the sample" if assignment == "corrected" else method


def group_means(values: Floats, inside: Bools, draws: Draws, weights: Floats | None = None) -> Tensor:
    """Mean of values [item, k] over the items inside, in every draw, [k, draw]; NaN values do not count.

    `weights` [item] say how many items each one stands for.
    """
    from anchorscope.evidence.draws import ratio

    there = np.isfinite(values) & inside[:, None]
    each = np.ones(len(values)) if weights is None else weights
    filled = np.where(there, values, 0.0) * each[:, None]
    return ratio(draws.sums(filled), draws.sums(there * each[:, None]))


def estimate_of(samples: Tensor, n: int, method: str = METHOD) -> Estimate:
    """Value and interval of one number in every draw, [draw]; the first draw is the sample itself."""
    found = samples.cpu().numpy()
    low, high = percentile_interval(found[1:])
    return Estimate(float(found[0]), float(low), float(high), n, method)


def p_values(samples: Tensor, null: float = 0.0) -> Floats:
    """Two-sided p-values of numbers in every draw, [..., draw], against a null value.

    NaN where all draws agree: there is then no standard error to go by.
    """
    found = samples.cpu().numpy()
    spread = np.ma.filled(np.ma.masked_invalid(found[..., 1:]).std(axis=-1), np.nan)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(spread > _STILL, 2 * norm.sf(np.abs(found[..., 0] - null) / spread), np.nan)


def p_value(samples: Tensor, null: float = 0.0) -> float | None:
    """The p-value of one number in every draw, [draw]; None where there is none."""
    return known(float(p_values(samples, null)))


def known(number: float) -> float | None:
    """A number, or None where it is not one."""
    return float(number) if np.isfinite(number) else None


def q_values(p: Sequence[float] | Floats) -> Floats:
    """p-values with the false discovery rate controlled (Benjamini and Hochberg); NaN stays NaN and counts for none."""
    given = np.asarray(p, dtype=float)
    found = np.full(given.shape, np.nan)
    there = np.isfinite(given)
    if there.any():
        found[there] = false_discovery_control(given[there])
    return found


def cohens_d(first: Floats, second: Floats) -> float | None:
    """Difference of two groups' means in pooled standard deviations; None where it is not defined."""
    n = len(first) + len(second) - 2
    if min(len(first), len(second)) < 2 or n < 1:
        return None
    pooled = np.sqrt(((len(first) - 1) * np.var(first, ddof=1) + (len(second) - 1) * np.var(second, ddof=1)) / n)
    return float((np.mean(first) - np.mean(second)) / pooled) if pooled > 0 else None


def mean_in_deviations(values: Floats) -> float | None:
    """A mean in standard deviations of the items; None where it is not defined."""
    spread = float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
    return float(np.mean(values)) / spread if spread > 0 else None


@dataclass(frozen=True)
class Column:
    """A number of each used item."""

    quantity: str
    values: Floats
    """NaN where it is not known."""
    variant: str | None = None
    weights: Floats | None = None
    """For how many items each one stands; None for one."""
    method: str = METHOD
    truths: tuple[str, ...] = tuple(TRUTHS)
    """The splits that make sense: accuracy, for one, has none."""


@dataclass(frozen=True)
class Compared:
    """Statistics, and what could not be stated."""

    statistics: list[Statistic] = field(default_factory=list)
    missing: list[Missing] = field(default_factory=list)

    def add(self, other: Compared) -> None:
        """What another comparison found as well."""
        self.statistics.extend(other.statistics)
        self.missing.extend(other.missing)

    def lines(self) -> list[str]:
        """Each reason once, with all that it holds for."""
        whom: dict[str, dict[str, None]] = {}
        for quantity, reason in self.missing:
            whom.setdefault(reason, {})[quantity] = None
        return [f"{', '.join(quantities)}: {reason}" for reason, quantities in whom.items()]


def too_few(n: int, group: str | None, assignment: str | None, truth: str) -> str:
    """The reason why nothing is said of a group."""
    whom = f" are {group} under the {assignment} rule" if group else ""
    return f"only {n} {answers_of(truth)}{whom}, {FEW} needed"


def compare_pathways(inputs: ExperimentInputs, columns: Sequence[Column]) -> Compared:
    """Means over all used items and per pathway, and the differences Q − A."""
    from anchorscope.evidence.draws import resampling

    found = Compared()
    with resampling(inputs.draws.device):
        for column in columns:
            for truth in column.truths:
                inside = of_truth(inputs.measured.labels, truth) & np.isfinite(column.values)
                _mean(inputs, column, inside, truth, None, None, found)
                for assignment, calls in inputs.calls.items():
                    parts = {group: inside & calls.members(group) for group in GROUPS}
                    large = [_mean(inputs, column, parts[name], truth, assignment, name, found) for name in GROUPS]
                    if all(large):
                        found.statistics.append(_difference(inputs, column, parts, truth, assignment))
    return found


def _mean(
    inputs: ExperimentInputs,
    column: Column,
    inside: Bools,
    truth: str,
    assignment: str | None,
    group: str | None,
    into: Compared,
) -> bool:
    """Adds a mean, or the reason why there is none; whether it could."""
    n = int(inside.sum())
    if n < FEW:
        into.missing.append((column.quantity, too_few(n, group, assignment, truth)))
        return False
    samples = group_means(column.values[:, None], inside, inputs.draws, column.weights)[0]
    estimate = estimate_of(samples, n, in_groups_of(assignment, column.method))
    into.statistics.append(
        Statistic(column.quantity, estimate, column.variant, assignment=assignment, group=group, truth=truth)
    )
    return True


def _difference(
    inputs: ExperimentInputs, column: Column, parts: dict[str, Bools], truth: str, assignment: str
) -> Statistic:
    means = [group_means(column.values[:, None], parts[group], inputs.draws, column.weights)[0] for group in GROUPS]
    samples = means[0] - means[1]
    both = parts[Q_ANCHORED] | parts[A_ANCHORED]
    differ = np.ptp(column.values[both]) > 0  # where all are the same there is nothing to test
    return Statistic(
        quantity=f"{column.quantity}_difference",
        estimate=estimate_of(samples, int(both.sum()), in_groups_of(assignment, column.method)),
        variant=column.variant,
        against=f"{Q_ANCHORED} − {A_ANCHORED}",
        assignment=assignment,
        truth=truth,
        p_value=p_value(samples) if differ else None,
        effect_size=_effect_size(column, parts) if differ else None,
    )


def _effect_size(column: Column, parts: dict[str, Bools]) -> float | None:
    """Cohen's d; with weights, the items stand for so many in means and deviations."""
    first, second = (column.values[parts[group]] for group in GROUPS)
    if column.weights is None:
        return cohens_d(first, second)
    each = [column.weights[parts[group]] for group in GROUPS]
    means = [np.average(values, weights=one) for values, one in zip((first, second), each, strict=True)]
    squares = [
        np.average((values - mean) ** 2, weights=one) * len(values)
        for values, mean, one in zip((first, second), means, each, strict=True)
    ]
    pooled = np.sqrt(sum(squares) / (len(first) + len(second) - 2))
    return float((means[0] - means[1]) / pooled) if pooled > 0 else None


def separation(inputs: ExperimentInputs, quantity: str, variant: str, scores: Floats) -> Compared:
    """AUC of scores [item] for being Q-Anchored rather than A-Anchored; NaN scores do not count.

    Per truth label, and as `…_within_truth` over pairs of the same label.
    """
    from anchorscope.evidence.draws import areas, resampling

    found = Compared()
    labels, folds = inputs.measured.labels, inputs.measured.folds
    for assignment, calls in inputs.calls.items():
        for truth in TRUTHS:
            inside = np.isfinite(scores) & calls.correct & of_truth(labels, truth)
            counts = {group: int((inside & calls.members(group)).sum()) for group in GROUPS}
            few = [group for group in GROUPS if counts[group] < FEW]
            found.missing.extend((quantity, too_few(counts[group], group, assignment, truth)) for group in few)
            if few:
                continue
            items = np.flatnonzero(inside)
            if np.ptp(scores[items]) == 0:
                found.missing.append((quantity, "the score is the same for all items"))
                continue
            kinds = {quantity: folds[items]}
            if truth == "all":
                kinds[f"{quantity}_within_truth"] = 2 * folds[items] + labels[items]
            draws, asks = inputs.draws.take(items), calls.members(Q_ANCHORED)[items]
            for name, strata in kinds.items():
                with resampling(draws.device):
                    samples = areas(scores[None, items], asks, strata, draws)[0]
                n = int(comparable(asks, strata).sum())
                if n < FEW:
                    reason = f"only {n} items share a fold with one of the other pathway under the {assignment} rule"
                    found.missing.append((name, f"{reason}, {FEW} needed"))
                    continue
                estimate, p = estimate_of(samples, n, in_groups_of(assignment, _AREA)), p_value(samples, 0.5)
                found.statistics.append(
                    Statistic(name, estimate, variant, assignment=assignment, truth=truth, p_value=p)
                )
    return found


def comparable(asks: Bools, strata: NDArray[np.int64]) -> Bools:
    """Items whose stratum holds both pathways; the others are never compared with anything."""
    both = np.intersect1d(strata[asks], strata[~asks])
    return np.isin(strata, both)


def explained_by(inputs: ExperimentInputs, quantity: str, variant: str, whole: Floats, part: Floats) -> Compared:
    """The share of a sum's variance over the items that one of its parts brings: Cov(whole, part) / Var(whole).

    The shares of all parts add up to 1; one that works against the others is below 0.
    """
    from anchorscope.evidence.draws import ratio

    items = np.flatnonzero(np.isfinite(whole) & np.isfinite(part))
    if len(items) < FEW:
        return Compared(missing=[(quantity, too_few(len(items), None, None, "all"))])
    if np.ptp(whole[items]) == 0:
        return Compared(missing=[(quantity, "the sum is the same for all items")])
    x, y = whole[items] - whole[items].mean(), part[items] - part[items].mean()
    draws = inputs.draws.take(items)
    sums = draws.sums(np.stack([x, y, x * y, x * x], axis=1))
    mean_x, mean_y, both, square = ratio(sums, draws.numbers().expand_as(sums))
    samples = ratio(both - mean_x * mean_y, square - mean_x**2)
    return Compared([Statistic(quantity, estimate_of(samples, len(items)), variant, truth="all")])
