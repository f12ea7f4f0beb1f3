"""The work `probes`: logistic regressions for every layer, fold and strength, against a scikit-learn loop.

Both standardise on the training folds, work in float32 and stop at the same gradient. Where the loop has not the time
for all layers it runs evenly spaced ones. Compared are the objective that both minimise and the AUC on the held-out
fold.
"""

import os
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from anchorscope.bench.implementations import Own
from anchorscope.bench.measuring import Row, Setting
from anchorscope.bench.workload import FOLDS
from anchorscope.probes.folds import grouped_folds, truth_strata
from anchorscope.probes.grid_search import STRENGTHS
from anchorscope.probes.logistic import TOLERANCE, TrainingSets, fit_layers
from anchorscope.stats.auc import auc
from anchorscope.stats.streams import unnamed


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
    values = np.empty(problem.fits_per_layer)
    for column in range(problem.fits_per_layer):
        fold, strength = divmod(column, len(STRENGTHS))
        learns = problem.folds != fold
        logits = fitted.logits[:, column].astype(np.float64)
        loss = np.logaddexp(0, np.where(problem.labels, -logits, logits))[learns].mean()
        scaled = fitted.weight[:, column] * states[learns].std(axis=0)
        values[column] = loss + 0.5 * float(scaled @ scaled) / (STRENGTHS[strength] * int(learns.sum()))
    return values


def held_out_auc(problem: Problem, fitted: Fitted) -> NDArray[np.float64]:
    """AUC on the fold that a fit did not learn from, [column]."""
    areas = np.empty(problem.fits_per_layer)
    for column in range(problem.fits_per_layer):
        held = problem.folds == column // len(STRENGTHS)
        areas[column] = float(auc(fitted.logits[held, column], problem.labels[held]))
    return areas


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
    fitted = []
    for start in range(0, len(folds), FOLDS):
        weights, logits = zip(*folds[start : start + FOLDS], strict=True)
        fitted.append(Fitted(np.concatenate(weights, axis=1), np.concatenate(logits, axis=1)))
    return fitted


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


_COMPARED_LAYERS = 3


def make_problem(setting: Setting) -> Problem:
    """Clean states of what attention adds, and folds of single items."""
    workload = setting.workload(setting.options.probe_items)
    setting.say(f"probes: states of {len(workload.items)} items")
    labels = np.array([item.label for item in workload.items])
    states = Own(setting.lm).clean(workload).to(setting.lm.device)
    order = unnamed(setting.options.seed, "folds", len(labels))
    return Problem(states, labels, grouped_folds(np.arange(len(labels)), truth_strata(labels), FOLDS, order))


def rows(setting: Setting) -> list[Row]:
    """One row for the batched solver, one for the loop."""
    names = setting.options.implementations_of("probes")
    problem = make_problem(setting)
    layers = list(range(len(problem.states)))
    runs: dict[str, Callable[[], list[Fitted]]] = {}
    chosen: dict[str, list[int]] = {}
    settings: dict[str, str] = {}
    if "anchorscope" in names:
        fit_own(problem, layers[:1])  # the first products of a process are slow
        chosen["anchorscope"] = layers
        settings["anchorscope"] = f"all layers, folds and strengths at once, tolerance {TOLERANCE:g}"
        runs["anchorscope"] = lambda: fit_own(problem, layers)
    if "scikit-learn" in names:
        jobs, each = best_jobs(problem)
        some = _spaced(layers, int(setting.options.seconds / each))
        how = f"{jobs} processes" if jobs > 1 else f"products on {torch.get_num_threads()} threads"
        chosen["scikit-learn"] = some
        settings["scikit-learn"] = f"lbfgs, {how}, tolerance {TOLERANCE:g}, {len(some)} of {len(layers)} layers"
        runs["scikit-learn"] = lambda: fit_sklearn(problem, some, jobs)
    by_name = {name: Row("probes", name, "fits", setting=settings[name]) for name in names}
    if len(names) == 2:
        by_name = _compared(by_name, problem, _spaced(layers, _COMPARED_LAYERS))
    taken = setting.race(runs, "probes")
    per_layer = problem.fits_per_layer
    return [by_name[name].timed(len(chosen[name]) * per_layer, taken[name], setting.held) for name in names]


def _compared(by_name: dict[str, Row], problem: Problem, layers: Sequence[int]) -> dict[str, Row]:
    ours = fit_own(problem, layers)
    off = difference(problem, layers, ours, fit_sklearn(problem, layers, 1))
    meaning = f"how far its objective lies above the other's at most, relative, {len(layers)} layers"
    missed = sum(fitted.unconverged for fitted in ours)
    if missed:
        note = f"{missed} of {len(layers) * problem.fits_per_layer} fits did not converge"
        by_name["anchorscope"] = replace(by_name["anchorscope"], note=note)
    compared = {}
    for name, excess in (("anchorscope", off.worse), ("scikit-learn", off.better)):
        compared[name] = replace(
            by_name[name],
            max_difference=excess,
            relative_difference=excess,
            auc_difference=off.auc,
            difference_is=meaning,
        )
    return compared


def _spaced(layers: Sequence[int], n: int) -> list[int]:
    """That many layers, evenly spaced, at least one."""
    n = max(1, min(n, len(layers)))
    return [layers[int(index)] for index in np.linspace(0, len(layers) - 1, n).round()]
