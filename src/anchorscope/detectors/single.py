"""Detectors that read the clean run only: confidence, single probes, mass-mean, stacks of probes, plain baselines.

Each `fit_…` takes the training data and gives a `DetectorFit`: the log-odds of every item by a fit that never saw it,
for every training set, and the fitted detector of any one set.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from anchorscope.catalogue import DetectorEntry
from anchorscope.detectors.bank import fit_bank
from anchorscope.detectors.data import BestLayerFits, TrainingData
from anchorscope.detectors.fitted import Fitted
from anchorscope.detectors.fitted_parts import WeightedSum
from anchorscope.detectors.stacking import Stacked, fit_stack
from anchorscope.detectors.training import INNER_FOLDS, Training

_SHRINKAGES = (0.03, 0.1, 0.3, 1.0)  # of the covariance towards a multiple of the identity


@dataclass(frozen=True)
class DetectorFit:
    """A detector, fitted on every training set."""

    scores: Float[Tensor, "set item"]
    """Log-odds of each item by a fit that never saw it."""
    build: Callable[[int], Fitted] | None
    """The detector of one training set, as it is used; None for a baseline that is there to compare with only."""


@dataclass(frozen=True)
class DetectorPlugin:
    """A detector of another package."""

    entry: DetectorEntry
    """Its name and words, as the catalogue has them of our own."""
    fit: Callable[[TrainingData], DetectorFit]
    runs: tuple[str, ...] = ()
    """Runs beside the clean one, and columns of plain numbers, without which it can't be fitted."""
    columns: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """As in the column `detector`."""
        return self.entry.name


def stacked_sum(stacked: Stacked, number: int, parts: tuple[Fitted, ...], columns: tuple[str, ...] = ()) -> WeightedSum:
    """One training set's stack: its first weights are those of the parts, the others those of the columns."""
    weight = stacked.weight[number, INNER_FOLDS].tolist()
    bias = float(stacked.bias[number, INNER_FOLDS])
    return WeightedSum(parts, tuple(weight[: len(parts)]), columns, tuple(weight[len(parts) :]), bias)


def fit_columns(data: TrainingData, names: tuple[str, ...]) -> DetectorFit:
    """A logistic regression on plain numbers: confidence, length, P(True), agreement of samples."""
    stacked = fit_stack(data.columns(names), data.training)
    return DetectorFit(stacked.scores, lambda number: stacked_sum(stacked, number, (), names))


def fit_probe(data: TrainingData) -> DetectorFit:
    """The single probe."""
    return DetectorFit(data.log_odds, data.best_probe)


def fit_probe_confidence(data: TrainingData) -> DetectorFit:
    """The single probe and confidence, stacked."""
    columns = torch.cat([data.log_odds[..., None], data.columns(data.confidence)], dim=-1)
    stacked = fit_stack(columns, data.training)
    return DetectorFit(
        stacked.scores, lambda number: stacked_sum(stacked, number, (data.best_probe(number),), data.confidence)
    )


def all_log_odds(data: TrainingData) -> Float[Tensor, "set item place"]:
    """Log-odds by the probes of all layers and sites."""
    found = [data.training.assemble(data.bank.log_odds(place, data.clean[place])) for place in range(len(data.keys))]
    return torch.stack(found, dim=-1)


def fit_ensemble(data: TrainingData, with_confidence: bool = False) -> DetectorFit:
    """Probes of all layers and sites, stacked."""
    names = data.confidence if with_confidence else ()
    columns = all_log_odds(data)
    if names:
        columns = torch.cat([columns, data.columns(names)], dim=-1)
    stacked = fit_stack(columns, data.training)

    def build(number: int) -> Fitted:
        """The stack of one set; as sums of linear probes of one state are one linear probe, it stays small."""
        probes = tuple(
            data.probe(data.bank, data.directions, key, place, number) for place, key in enumerate(data.keys)
        )
        return stacked_sum(stacked, number, probes, names)

    return DetectorFit(stacked.scores, build)


def fit_ensemble_two(data: TrainingData) -> DetectorFit:
    """The two best layers' probes: as many weights as Mixture-of-Probes has, and no gate."""
    ranked = data.bank.inner_auc[: len(data.layers)].argsort(0, descending=True).cpu().numpy()
    pair = [data.at_best(data.bank, data.clean, ranked[min(place, len(ranked) - 1)]) for place in (0, 1)]
    stacked = fit_stack(torch.stack(pair, dim=-1), data.training)

    def build(number: int) -> Fitted:
        places = [int(ranked[min(place, len(ranked) - 1), number]) for place in (0, 1)]
        probes = tuple(data.probe(data.bank, data.directions, data.keys[place], place, number) for place in places)
        return stacked_sum(stacked, number, probes)

    return DetectorFit(stacked.scores, build)


def fit_other_run(data: TrainingData, run: str) -> DetectorFit:
    """A probe on the states of another run, along directions of their own: question only, random weights."""
    keys = data.headline(run)
    directions = data.directions_of(keys)
    states = data.along(keys, directions)
    bank = fit_bank(states, data.training, data.device)
    best = bank.inner_auc.argmax(0).cpu().numpy()
    return DetectorFit(
        data.at_best(bank, states, best),
        lambda number: data.probe(bank, directions, keys[int(best[number])], int(best[number]), number),
    )


def fit_mass_mean(data: TrainingData) -> DetectorFit:
    """The difference of the class means, whitened by the covariance within the classes, at the best layer.

    Shrinkage is chosen by the inner folds' AUC.
    """
    weight, bias = _means(data)
    states = data.states_at_best.transpose(1, 2)
    assembled = torch.stack(
        [  # [shrinkage, set, item]
            data.training.assemble(weight[:, at] @ states + bias[:, at][..., None]) for at in range(len(_SHRINKAGES))
        ]
    )
    chosen = data.training.inner_auc(assembled).argmax(0)
    rows = torch.arange(len(chosen), device=chosen.device)
    picked = (weight[rows, chosen], bias[rows, chosen], torch.ones(len(chosen), device=chosen.device))
    fits = BestLayerFits(*picked)
    return DetectorFit(assembled[chosen, rows], lambda number: data.raw_probe(fits, number))


def _means(data: TrainingData) -> tuple[Tensor, Tensor]:
    """Weights [set, shrinkage, fit, direction] and biases, of every set at its own best layer and at no other."""
    found: list[tuple[Tensor, Tensor]] = []
    places = np.unique(data.best).tolist()
    for place in places:
        sets = np.flatnonzero(data.best == place)
        found.append(_means_at(data.clean[place].double(), data.training.take(sets)))
    order = np.argsort(np.concatenate([np.flatnonzero(data.best == place) for place in places]))
    weight, bias = (torch.cat(parts)[torch.from_numpy(order)] for parts in zip(*found, strict=True))
    return weight, bias


def _means_at(states: Float[Tensor, "item direction"], training: Training) -> tuple[Tensor, Tensor]:
    weights, targets = training.fitted_on(states.device).double(), training.targets(states.device).double()
    means, totals = [], []
    for value in (1.0, 0.0):
        share = weights * (targets == value)[:, None]
        totals.append(share.sum(-1, keepdim=True))
        means.append((share @ states) / totals[-1])
    squares = (states.T * weights[:, :, None]) @ states
    for mean, total in zip(means, totals, strict=True):
        squares -= total[..., None] * mean[..., None] * mean[..., None, :]
    covariance = squares / weights.sum(-1)[..., None, None]
    size = covariance.diagonal(dim1=-2, dim2=-1).mean(-1)[..., None, None]
    identity = torch.eye(states.shape[1], dtype=torch.double, device=states.device)
    difference = means[0] - means[1]
    found = []
    for shrinkage in _SHRINKAGES:
        shrunk = (1 - shrinkage) * covariance + (shrinkage + 1e-6) * size * identity
        found.append(torch.linalg.solve(shrunk, difference[..., None])[..., 0])
    weight = torch.stack(found, dim=1)
    middle = (means[0] + means[1])[:, None] / 2
    return weight.float(), -(weight * middle).sum(-1).float()
