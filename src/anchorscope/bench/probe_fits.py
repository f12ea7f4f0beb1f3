"""The work `probes`: logistic regressions for every layer, fold and strength, against a scikit-learn loop.

Both standardise on the training folds, work in float32 and stop at the same gradient. Where the loop has not the time
for all layers it runs evenly spaced ones. Compared are the objective that both minimise and the AUC on the held-out
fold.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import torch

from anchorscope.bench.probe_problem import FOLDS, Fitted, Problem, difference
from anchorscope.bench.row import Row
from anchorscope.bench.setting import Setting
from anchorscope.bench.ways.own import Own
from anchorscope.bench.ways.own_probes import fit_own
from anchorscope.bench.ways.sklearn_probes import best_jobs, fit_sklearn
from anchorscope.probes.folds import grouped_folds
from anchorscope.probes.logistic import TOLERANCE
from anchorscope.stats.streams import unnamed

_COMPARED_LAYERS = 3


def make_problem(setting: Setting) -> Problem:
    """Clean states of what attention adds, and folds of single items."""
    workload = setting.workload(setting.options.probe_items)
    setting.say(f"probes: states of {len(workload.items)} items")
    labels = np.array([item.label for item in workload.items])
    states = Own(setting.lm).clean(workload).to(setting.lm.device)
    order = unnamed(setting.options.seed, "folds", len(labels))
    return Problem(states, labels, grouped_folds(np.arange(len(labels)), labels, FOLDS, order))


def rows(setting: Setting) -> list[Row]:
    """One row for the batched solver, one for the loop."""
    names = setting.options.ways_of("probes")
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
    found = {name: Row("probes", name, "fits", setting=settings[name]) for name in names}
    if len(names) == 2:
        found = _compared(found, problem, _spaced(layers, _COMPARED_LAYERS))
    taken = setting.race(runs, "probes")
    per_layer = problem.fits_per_layer
    return [found[name].timed(len(chosen[name]) * per_layer, taken[name], setting.held) for name in names]


def _compared(found: dict[str, Row], problem: Problem, layers: Sequence[int]) -> dict[str, Row]:
    ours = fit_own(problem, layers)
    found_off = difference(problem, layers, ours, fit_sklearn(problem, layers, 1))
    off = {"anchorscope": found_off.worse, "scikit-learn": found_off.better}
    told = f"how far its objective lies above the other's at most, relative, {len(layers)} layers"
    missed = sum(one.unconverged for one in ours)
    if missed:
        found["anchorscope"] = replace(
            found["anchorscope"], note=f"{missed} of {len(layers) * problem.fits_per_layer} fits did not converge"
        )
    return {
        name: replace(
            row,
            max_difference=off[name],
            relative_difference=off[name],
            auc_difference=found_off.auc,
            difference_is=told,
        )
        for name, row in found.items()
    }


def _spaced(layers: Sequence[int], n: int) -> list[int]:
    """So many layers, evenly spaced, at least one."""
    n = max(1, min(n, len(layers)))
    return [layers[int(place)] for place in np.linspace(0, len(layers) - 1, n).round()]
