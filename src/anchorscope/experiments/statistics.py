"""Means, AUCs and tests with bootstrap intervals; the same draws everywhere.

Every draw resamples whole groups of questions, and both sides of a difference come from the same draw. Tests use the
bootstrap's standard error and a normal distribution: a share of 2,000 draws couldn't go below one in a thousand. Items
keep their pathway in the sample. Scores of different folds come from different probes, so AUCs compare items of one
fold only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from anchorscope.evidence.delta_p import GROUPS
from anchorscope.experiments.experiment import ExperimentInputs, Statistic
from anchorscope.stats.estimate import Estimate

if TYPE_CHECKING:
    from torch import Tensor

    from anchorscope.evidence.draws import Draws

Floats = NDArray[np.floating]
Bools = NDArray[np.bool_]
Indices = NDArray[np.int64]

METHOD = "bootstrap over groups"
FEW = 10
"""Items of a group below which nothing is reported."""
_STILL = 1e-12  # numbers that differ by less in all draws differ by rounding only


def too_few(n: int, group: str | None = None) -> str:
    """Why nothing is reported of a group."""
    return f"only {n} items{f' are {group}' if group else ''}, {FEW} needed"


def estimate_of(samples: Tensor, n: int, method: str = METHOD) -> Estimate:
    """Value and interval of one number in every draw, [draw]; the first draw is the sample itself."""
    from anchorscope.evidence.draws import estimate

    return estimate(samples, n, method)


def p_value(samples: Tensor, null: float = 0.0) -> float | None:
    """Two-sided p-value of one number in every draw, [draw]; None if all draws agree."""
    draws = samples.cpu().numpy()
    spread = np.ma.filled(np.ma.masked_invalid(draws[1:]).std(), np.nan)
    if not spread > _STILL:
        return None
    p = 2 * ndtr(-np.abs(draws[0] - null) / spread)
    return float(p) if np.isfinite(p) else None


def q_values(p: Sequence[float | None]) -> list[float | None]:
    """p-values with the false discovery rate controlled (Benjamini and Hochberg); None stays and counts for none."""
    from scipy.stats import false_discovery_control  # only here: it takes half a second

    defined = [value for value in p if value is not None]
    adjusted = iter(false_discovery_control(defined).tolist() if defined else ())
    return [None if value is None else next(adjusted) for value in p]


def family_rows(
    quantity: str,
    family: Sequence[tuple[Tensor, int, Mapping[str, Any]]],
    method: str = METHOD,
) -> list[Statistic]:
    """Statistics of one family of tests against zero: samples [draw], n and further columns of each."""
    p = [p_value(samples) for samples, _, _ in family]
    return [
        Statistic(
            quantity,
            estimate_of(samples, n, method),
            truth="all",
            p_value=p[k],
            q_value=q,
            **columns,
        )
        for k, ((samples, n, columns), q) in enumerate(
            zip(family, q_values(p), strict=True)
        )
    ]


def auc_samples(
    scores: Floats, positive: Bools, strata: Indices, draws: Draws
) -> Tensor:
    """AUC of scores [item] over pairs of one stratum, in every draw, [draw]."""
    from anchorscope.evidence.draws import areas, resampling

    with resampling(draws.device):
        return areas(scores[None], positive, strata, draws)[0]


def comparable(positive: Bools, strata: Indices) -> Bools:
    """Items whose stratum holds both kinds; the others are never compared with anything."""
    return np.isin(strata, np.intersect1d(strata[positive], strata[~positive]))


def pathway_aucs(
    inputs: ExperimentInputs, quantity: str, variant: str, scores: Floats
) -> tuple[list[Statistic], list[str]]:
    """AUC of scores [item] for being Q-Anchored, over all answers and over pairs of one truth label; NaN: left out."""
    calls, labels, folds = inputs.calls, inputs.measured.labels, inputs.measured.folds
    items = np.flatnonzero(np.isfinite(scores) & calls.correct)
    small = [
        (group, n)
        for group in GROUPS
        if (n := int(calls.members(group)[items].sum())) < FEW
    ]
    if small:
        return [], [f"{quantity}: {too_few(n, group)}" for group, n in small]
    if np.ptp(scores[items]) == 0:
        return [], [f"{quantity}: the score is the same for all items"]
    asks, rows, missing = calls.flipped[items], [], []
    for name, strata in (
        (quantity, folds[items]),
        (f"{quantity}_within_truth", 2 * folds[items] + labels[items]),
    ):
        n = int(comparable(asks, strata).sum())
        if n < FEW:
            missing.append(
                f"{name}: only {n} items share a fold with one of the other pathway, {FEW} needed"
            )
            continue
        samples = auc_samples(scores[items], asks, strata, inputs.draws.take(items))
        estimate = estimate_of(
            samples, n, f"{METHOD}, pairs of the same fold, p against 0.5"
        )
        p = p_value(samples, 0.5)
        rows.append(Statistic(name, estimate, variant, truth="all", p_value=p))
    return rows, missing
