"""What both probe solvers are given, and how their fits are judged: by the objective, and by the AUC held out."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from anchorscope.probes.crossfit import STRENGTHS
from anchorscope.stats.auc import auc

FOLDS = 5
"""Training sets per layer."""


@dataclass(frozen=True)
class Problem:
    """States and who learns from what."""

    states: Tensor
    """[layer, item, d_model], where the solver runs."""
    labels: NDArray[np.bool_]
    folds: NDArray[np.int64]

    @property
    def fits_per_layer(self) -> int:
        """Folds times strengths: the columns of a layer, strength by strength within fold by fold."""
        return FOLDS * len(STRENGTHS)


@dataclass(frozen=True)
class Fitted:
    """One layer's fits."""

    weight: NDArray[np.float32]
    """Acting on raw states, [d_model, column]."""
    logits: NDArray[np.float32]
    """Log-odds of every item, [item, column]."""
    unconverged: int = 0
    """Columns that did not reach the solver's tolerance."""


def objectives(problem: Problem, layer: int, fitted: Fitted) -> NDArray[np.float64]:
    """Mean loss plus penalty on the training folds, in standardised coordinates, [column]."""
    states = problem.states[layer].double().cpu().numpy()
    found = np.empty(problem.fits_per_layer)
    for column in range(problem.fits_per_layer):
        fold, strength = divmod(column, len(STRENGTHS))
        learns = problem.folds != fold
        logits = fitted.logits[:, column].astype(np.float64)
        loss = np.logaddexp(0, np.where(problem.labels, -logits, logits))[learns].mean()
        scaled = fitted.weight[:, column] * states[learns].std(axis=0)
        found[column] = loss + 0.5 * float(scaled @ scaled) / (STRENGTHS[strength] * int(learns.sum()))
    return found


def held_out_auc(problem: Problem, fitted: Fitted) -> NDArray[np.float64]:
    """AUC on the fold that a fit did not learn from, [column]."""
    found = np.empty(problem.fits_per_layer)
    for column in range(problem.fits_per_layer):
        held = problem.folds == column // len(STRENGTHS)
        found[column] = float(auc(fitted.logits[held, column], problem.labels[held]))
    return found


@dataclass(frozen=True)
class Difference:
    """How two solvers' fits of the same problems differ, at most."""

    worse: float
    """How far the first one's objective lies above the other's, relative; 0 where it never does."""
    better: float
    """How far it lies below."""
    auc: float
    """Difference of the AUCs on the held-out fold."""


def difference(problem: Problem, layers: Sequence[int], ours: Sequence[Fitted], theirs: Sequence[Fitted]) -> Difference:
    """Compares the fits of some layers."""
    excess, areas = [0.0], [0.0]
    for layer, a, b in zip(layers, ours, theirs, strict=True):
        excess += (objectives(problem, layer, a) / objectives(problem, layer, b) - 1).tolist()
        areas += np.abs(held_out_auc(problem, a) - held_out_auc(problem, b)).tolist()
    return Difference(max(excess), -min(excess), max(areas))
