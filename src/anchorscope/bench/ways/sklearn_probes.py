"""Probe fitting by a scikit-learn loop: float32, standardised on the training folds, all cores, the same tolerance."""

import os
import time
import warnings
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from anchorscope.bench.probe_problem import FOLDS, Fitted, Problem
from anchorscope.probes.crossfit import STRENGTHS
from anchorscope.probes.logistic import TOLERANCE

_MAX_ITERATIONS = 10_000  # none of them may stop the loop before its tolerance does


def fit_sklearn(problem: Problem, layers: Sequence[int], jobs: int) -> list[Fitted]:
    """One `LogisticRegression` per layer, fold and strength; `jobs` processes, or one with threaded products."""
    from sklearn.utils.parallel import Parallel, delayed

    hosted = {layer: problem.states[layer].float().cpu().numpy() for layer in layers}
    folds = Parallel(n_jobs=jobs)(
        delayed(_fit_fold)(hosted[layer], problem.labels, problem.folds != fold)
        for layer in layers
        for fold in range(FOLDS)
    )
    found = []
    for place in range(len(layers)):
        weights, logits = zip(*folds[place * FOLDS : (place + 1) * FOLDS], strict=True)
        found.append(Fitted(np.concatenate(weights, axis=1), np.concatenate(logits, axis=1)))
    return found


def best_jobs(problem: Problem) -> tuple[int, float]:
    """How many processes are fastest here, and the seconds per layer with them."""
    layer = [len(problem.states) // 2]
    seconds = {}
    for jobs in dict.fromkeys((1, os.cpu_count() or 1)):
        if jobs > 1:
            fit_sklearn(problem, layer, jobs)  # processes take a while to start
        began = time.perf_counter()
        fit_sklearn(problem, layer, jobs)
        seconds[jobs] = time.perf_counter() - began
    best = min(seconds, key=lambda jobs: seconds[jobs])
    return best, seconds[best]


def _fit_fold(
    states: NDArray[np.float32], labels: NDArray[np.bool_], learns: NDArray[np.bool_]
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Weights on raw states and logits of all items, one column per strength."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression
    from sklearn.preprocessing import StandardScaler

    scaler = StandardScaler().fit(states[learns])
    scaled = scaler.transform(states)
    weights, logits = [], []
    for strength in STRENGTHS:
        model = LogisticRegression(C=strength, tol=TOLERANCE, max_iter=_MAX_ITERATIONS)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # the comparison tells how far off a fit is
            model.fit(scaled[learns], labels[learns])
        weights.append(model.coef_[0] / scaler.scale_)
        logits.append(model.decision_function(scaled))
    return np.stack(weights, axis=1).astype(np.float32), np.stack(logits, axis=1).astype(np.float32)
