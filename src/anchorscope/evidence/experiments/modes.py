"""One mode or two: the dip test and the bimodality coefficient of a number of every item, by truth and by pathway."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from anchorscope.evidence.curves import TRUTHS
from anchorscope.evidence.draws import Draws, ratio
from anchorscope.evidence.experiments.by_pathway import Compared, too_few
from anchorscope.evidence.experiments.compare import FEW, METHOD, estimate_of, of_truth
from anchorscope.evidence.experiments.experiment import ExperimentInputs, Statistic
from anchorscope.evidence.pathways import GROUPS
from anchorscope.stats.estimate import Estimate
from anchorscope.stats.modes import SAMPLES, coefficient_of_powers, dip, dip_p_value, dips

Floats = NDArray[np.floating]
Bools = NDArray[np.bool_]

DRAWS = 200
"""Draws behind the standard error of a dip; each is as much work as a sample of its own."""

_DIP = (
    f"p by {SAMPLES:,} uniform samples of as many independent values; interval ± 1.96 standard errors, {METHOD} "
    f"({DRAWS} draws)"
)
_LARGEST_DIP = 0.25  # of any distribution
_Z = 1.959964


def bimodality(inputs: ExperimentInputs, variant: str, values: Floats) -> Compared:
    """`dip` and `bimodality_coefficient` of values [item] as they are, and minus their fold's median; NaN: left out.

    A resample's dip is larger than the sample's, because its repeated values are steps; so the interval is made from
    the standard error and not from percentiles. The coefficient is 5/9 for a uniform distribution.
    """
    result = Compared()
    kinds = {"": values, "_within_folds": within_folds(values, inputs.measured.folds)}
    for part in _parts(inputs):
        items = np.flatnonzero(part.members & np.isfinite(values))
        if len(items) < FEW:
            reason = too_few(len(items), part.group, part.assignment, part.truth)
            result.missing.extend((quantity, reason) for quantity in ("dip", "bimodality_coefficient"))
            continue
        draws = inputs.draws.take(items)
        for ending, numbers in kinds.items():
            found, p_value = _dip(numbers[items], draws, inputs.setting.seed)
            result.statistics.append(part.row(f"dip{ending}", found, variant, p_value))
            coefficient = _coefficient(numbers[items], draws)
            if np.isfinite(coefficient.value):  # not where all values are the same
                result.statistics.append(part.row(f"bimodality_coefficient{ending}", coefficient, variant))
    return result


def within_folds(values: Floats, folds: NDArray[np.int64]) -> Floats:
    """Values minus the median of their fold."""
    found = np.full(len(values), np.nan)
    for fold in np.unique(folds[np.isfinite(values)]):
        inside = (folds == fold) & np.isfinite(values)
        found[inside] = values[inside] - np.median(values[inside])
    return found


@dataclass(frozen=True)
class _Part:
    """Some of the used items."""

    members: Bools
    truth: str
    assignment: str | None = None
    group: str | None = None

    def row(self, quantity: str, estimate: Estimate, variant: str, p_value: float | None = None) -> Statistic:
        """A statistic of this part."""
        return Statistic(
            quantity, estimate, variant, assignment=self.assignment, group=self.group, truth=self.truth, p_value=p_value
        )


def _parts(inputs: ExperimentInputs) -> list[_Part]:
    """All items, by truth; and each pathway."""
    found = [_Part(of_truth(inputs.measured.labels, truth), truth) for truth in TRUTHS]
    for assignment, calls in inputs.calls.items():
        found += [_Part(calls.members(group), "all", assignment, group) for group in GROUPS]
    return found


def _dip(values: Floats, draws: Draws, seed: int) -> tuple[Estimate, float]:
    found, n = dip(values), len(values)
    counts = draws.counts[:, 1 : 1 + DRAWS].cpu().numpy().T
    error = float(np.nanstd(dips(values, counts)))
    low, high = max(0.0, found - _Z * error), min(_LARGEST_DIP, found + _Z * error)
    return Estimate(found, low, high, n, _DIP), dip_p_value(found, n, seed)


def _coefficient(values: Floats, draws: Draws) -> Estimate:
    centred = values - values.mean()
    sums = draws.sums(np.stack([centred**power for power in (1, 2, 3, 4)], axis=1))
    n = draws.numbers()
    powers = ratio(sums, n.expand_as(sums)).cpu().numpy()
    samples = coefficient_of_powers(powers, n.cpu().numpy())
    return estimate_of(torch.from_numpy(samples), len(values))
