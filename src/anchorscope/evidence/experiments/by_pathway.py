"""A number of every item, averaged per pathway and truth label, and compared between the pathways.

The two groups of a difference come from the same draws of the bootstrap, in which every item keeps the pathway that it
has in the sample. Where each item stands for several that were not drawn, weights say for how many.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from anchorscope.evidence.curves import TRUTHS
from anchorscope.evidence.draws import resampling
from anchorscope.evidence.experiments.compare import (
    FEW,
    METHOD,
    answers_of,
    cohens_d,
    estimate_of,
    group_means,
    in_groups_of,
    of_truth,
    p_value,
)
from anchorscope.evidence.experiments.experiment import ExperimentInputs, Statistic
from anchorscope.evidence.pathways import A_ANCHORED, GROUPS, Q_ANCHORED

Floats = NDArray[np.floating]
Bools = NDArray[np.bool_]
Missing = tuple[str, str]
"""A quantity, and the reason why it is not stated."""


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
    truths: tuple[str, ...] = TRUTHS
    """The splits that make sense: accuracy, for one, has none."""


@dataclass(frozen=True)
class Compared:
    """Statistics, and what could not be stated."""

    statistics: list[Statistic] = field(default_factory=list)
    missing: list[Missing] = field(default_factory=list)

    def add(self, other: "Compared") -> None:
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
