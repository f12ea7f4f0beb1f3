"""How well a number of every item tells the pathways apart, free of thresholds; and how much of it a part explains.

Scores of different folds come from different probes: only items of one fold are compared. The plain rule sorts items
largely by their label, so that the decisive numbers are those within true and within false answers.
"""

import numpy as np
from numpy.typing import NDArray

from anchorscope.evidence.areas import areas
from anchorscope.evidence.curves import TRUTHS
from anchorscope.evidence.draws import ratio, resampling
from anchorscope.evidence.experiments.by_pathway import Compared, too_few
from anchorscope.evidence.experiments.compare import FEW, METHOD, estimate_of, in_groups_of, of_truth, p_value
from anchorscope.evidence.experiments.experiment import ExperimentInputs, Statistic
from anchorscope.evidence.pathways import GROUPS, Q_ANCHORED

Floats = NDArray[np.floating]
Bools = NDArray[np.bool_]

_AREA = f"{METHOD}, pairs of the same fold, p against 0.5"


def separation(inputs: ExperimentInputs, quantity: str, variant: str, scores: Floats) -> Compared:
    """AUC of scores [item] for being Q-Anchored rather than A-Anchored; NaN scores do not count.

    Per truth label, and as `…_within_truth` over pairs of the same label.
    """
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
