"""Probe fitting by the batched solver of this package."""

from collections.abc import Sequence

import numpy as np
import torch

from anchorscope.bench.probe_problem import FOLDS, Fitted, Problem
from anchorscope.probes.crossfit import STRENGTHS
from anchorscope.probes.logistic import TrainingSets, fit_layers


def fit_own(problem: Problem, layers: Sequence[int]) -> list[Fitted]:
    """All layers, folds and strengths at once."""
    states = problem.states if len(layers) == len(problem.states) else problem.states[list(layers)]
    fit = fit_layers(states, _training_sets(problem), states.device)
    return [
        Fitted(weight.T.numpy(), logits.T.numpy(), int((~converged).sum()))
        for weight, logits, converged in zip(fit.weight, fit.logits, fit.converged, strict=True)
    ]


def _training_sets(problem: Problem) -> TrainingSets:
    learns = torch.as_tensor(np.stack([problem.folds != fold for fold in range(FOLDS)]))
    fold_of_column = torch.arange(FOLDS).repeat_interleave(len(STRENGTHS))
    return TrainingSets(
        labels=torch.as_tensor(problem.labels),
        members=learns[fold_of_column],
        scaled_on=learns,
        scaling=fold_of_column,
        strengths=torch.tensor(STRENGTHS).repeat(FOLDS),
    )
