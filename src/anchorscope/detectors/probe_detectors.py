"""Detectors that read the clean run, and baselines: confidence, probes and stacks of them, a network, words, relation.

Each `fit_…` takes the training data and gives a `DetectorFit`: the log-odds of every item by a fit that never saw it,
for every training set, and the fitted detector of any one set.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import scipy.sparse as sp
import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from anchorscope.detectors.data import BestLayerFits, TrainingData, fit_bank
from anchorscope.detectors.features import CLEAN
from anchorscope.detectors.fitted import Fitted, Network, WeightedSum
from anchorscope.detectors.training import FITS, INNER_FOLDS, Stacked, Training, fit_stack
from anchorscope.evidence.scores import fit_logistic

SIZES = ((16, 8), (64, 16))
"""Hidden units of the network's two layers, to choose from."""
_SHRINKAGES = (0.03, 0.1, 0.3, 1.0)  # of the covariance towards a multiple of the identity
_PRIOR = 1.0  # true and false answers that every relation is taken to have beforehand
_STEPS, _RATE, _DECAY = 60, 0.01, 0.02  # Adam steps, the first step's rate, and the penalty on weights
_MOMENTS, _TINY = (0.9, 0.999), 1e-8
_AT_ONCE = 2**20  # numbers of a hidden layer that are worked on together: what a CPU's cache holds,
_AT_ONCE_ELSEWHERE = 2**27  # and what keeps a GPU busy


@dataclass(frozen=True)
class DetectorFit:
    """A detector, fitted on every training set."""

    scores: Float[Tensor, "set item"]
    """Log-odds of each item by a fit that never saw it."""
    build: Callable[[int], Fitted] | None
    """The detector of one training set, as it is used; None for a baseline that can only be compared."""


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


def fit_ensemble(data: TrainingData, with_confidence: bool = False) -> DetectorFit:
    """Probes of all layers and sites, stacked."""
    names = data.confidence if with_confidence else ()
    log_odds = [data.training.assemble(data.bank.log_odds(place, data.clean[place])) for place in range(len(data.keys))]
    columns = torch.cat([torch.stack(log_odds, dim=-1), data.columns(names)], dim=-1)
    stacked = fit_stack(columns, data.training)

    def build(number: int) -> Fitted:
        probes = tuple(
            data.probe(data.bank, data.directions, key, place, number) for place, key in enumerate(data.keys)
        )
        return stacked_sum(stacked, number, probes, names)

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
    n_sets, width = data.training.n_sets, data.clean.shape[2]
    weight = torch.empty(n_sets, len(_SHRINKAGES), FITS, width, device=data.device)
    bias = torch.empty(n_sets, len(_SHRINKAGES), FITS, device=data.device)
    for place in np.unique(data.best).tolist():  # a set is fitted at its own layer and at no other
        sets = np.flatnonzero(data.best == place)
        rows = torch.from_numpy(sets).to(data.device)
        weight[rows], bias[rows] = _whitened_means(data.clean[place].double(), data.training.take(sets))
    states = data.states_at_best.transpose(1, 2)
    assembled = torch.stack(
        [  # [shrinkage, set, item]
            data.training.assemble(weight[:, at] @ states + bias[:, at][..., None]) for at in range(len(_SHRINKAGES))
        ]
    )
    chosen = data.training.inner_auc(assembled).argmax(0)
    rows = torch.arange(n_sets, device=chosen.device)
    fits = BestLayerFits(weight[rows, chosen], bias[rows, chosen], torch.ones(n_sets, device=chosen.device))
    return DetectorFit(assembled[chosen, rows], lambda number: data.raw_probe(fits, number))


def _whitened_means(states: Float[Tensor, "item direction"], training: Training) -> tuple[Tensor, Tensor]:
    """Weights [set, shrinkage, fit, direction] and biases."""
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
    solutions = []
    for shrinkage in _SHRINKAGES:
        shrunk = (1 - shrinkage) * covariance + (shrinkage + 1e-6) * size * identity
        solutions.append(torch.linalg.solve(shrunk, difference[..., None])[..., 0])
    weight = torch.stack(solutions, dim=1)
    middle = (means[0] + means[1])[:, None] / 2
    return weight.float(), -(weight * middle).sum(-1).float()


def fit_network(data: TrainingData) -> DetectorFit:
    """A network of two hidden layers on the best layer's state, as in SAPLMA; the inner folds choose its size."""
    scale = data.states_at_best.square().mean((1, 2), keepdim=True).sqrt()
    states = data.states_at_best / scale
    networks = [_train_networks(data, states, size) for size in SIZES]
    scores = torch.stack([data.training.assemble(_outputs(network, states)) for network in networks])
    chosen = data.training.inner_auc(scores).argmax(0)

    def build(number: int) -> Fitted:
        parts = [part[number, INNER_FOLDS].double().cpu() for part in networks[int(chosen[number])]]
        place = int(data.best[number])
        first = parts[0].T / float(scale[number])
        weight = first @ data.directions.weight[place]
        bias = parts[1] + first @ data.directions.offset[place]
        weights = (weight, parts[2].T, parts[4].T)
        return Network(
            (CLEAN, data.site, data.layers[place]),
            tuple(layer.float().contiguous() for layer in weights),
            tuple(layer.float() for layer in (bias, parts[3], parts[5])),
        )

    return DetectorFit(scores[chosen, torch.arange(len(chosen))], build)


def _outputs(parts: list[Tensor], states: Float[Tensor, "set item direction"]) -> Float[Tensor, "set fit item"]:
    values = torch.relu(states[:, None] @ parts[0] + parts[1][:, :, None])
    values = torch.relu(values @ parts[2] + parts[3][:, :, None])
    return (values @ parts[4] + parts[5][:, :, None])[..., 0]


def _train_networks(data: TrainingData, states: Tensor, size: tuple[int, int]) -> list[Tensor]:
    """Weights and biases of the three layers, [set, fit, in, out] and [set, fit, out]; some sets at a time."""
    at_once = _AT_ONCE if data.device.type == "cpu" else _AT_ONCE_ELSEWHERE
    step = max(1, at_once // (FITS * states.shape[1] * size[0]))
    parts = [
        _train_some(data, data.training.take(slice(first, first + step)), states[first : first + step], size)
        for first in range(0, len(states), step)
    ]
    return [torch.cat(layer) for layer in zip(*parts, strict=True)]


def _train_some(data: TrainingData, training: Training, states: Tensor, size: tuple[int, int]) -> list[Tensor]:
    weights = training.fitted_on(data.device)
    share = weights / weights.sum(-1, keepdim=True)
    targets = training.targets(data.device)[:, None].expand(-1, weights.shape[1], -1)
    generator = torch.Generator().manual_seed(0)
    begin: list[Tensor] = []
    for before, after in pairwise((states.shape[2], *size, 1)):
        normal = torch.randn(before, after, generator=generator) * (2 / before) ** 0.5
        begin += [
            normal.to(data.device).expand(*weights.shape[:2], -1, -1),
            torch.zeros(*weights.shape[:2], after, device=data.device),
        ]

    def loss(parts: list[Tensor]) -> Tensor:
        own = binary_cross_entropy_with_logits(_outputs(parts, states), targets, reduction="none")
        ridge = sum(part.square().sum() for part in parts[::2])
        return (own * share).sum() + _DECAY * ridge / 2

    return _descend(begin, loss)


def _descend(parameters: Sequence[Tensor], loss: Callable[[list[Tensor]], Tensor]) -> list[Tensor]:
    """Adam on the sum of the networks' losses, with a rate that falls to zero; networks share no parameter."""
    current = [parameter.detach().clone() for parameter in parameters]
    first, second = ([torch.zeros_like(parameter) for parameter in current] for _ in range(2))
    for step in range(1, _STEPS + 1):
        with torch.enable_grad():
            leaves = [parameter.requires_grad_() for parameter in current]
            gradients = torch.autograd.grad(loss(leaves), leaves)
        rate = _RATE * (1 - (step - 1) / _STEPS)
        with torch.no_grad():
            for place, gradient in enumerate(gradients):
                first[place].mul_(_MOMENTS[0]).add_(gradient, alpha=1 - _MOMENTS[0])
                second[place].mul_(_MOMENTS[1]).addcmul_(gradient, gradient, value=1 - _MOMENTS[1])
                mean = first[place] / (1 - _MOMENTS[0] ** step)
                size = (second[place] / (1 - _MOMENTS[1] ** step)).sqrt() + _TINY
                current[place] = (current[place] - rate * mean / size).detach()
    return current


def fit_relation(data: TrainingData, relations: Sequence[str | None]) -> DetectorFit:
    """Log-odds of a relation's true answers in the training set."""
    names, member = np.unique([name or "" for name in relations], return_inverse=True)
    one_hot = torch.nn.functional.one_hot(torch.from_numpy(member), len(names)).float().to(data.device)
    weights, targets = data.training.fitted_on(data.device), data.training.targets(data.device)[:, None]
    true, false = (weights * targets) @ one_hot + _PRIOR, (weights * (1 - targets)) @ one_hot + _PRIOR
    return DetectorFit(data.training.assemble((true / false).log() @ one_hot.T), None)


def fit_words(data: TrainingData, documents: Sequence[Sequence[str]]) -> DetectorFit:
    """Logistic regression on the bag of words; each document is an item's words."""
    vocabulary = {word: place for place, word in enumerate(sorted({word for words in documents for word in words}))}
    rows = [place for place, words in enumerate(documents) for _ in set(words)]
    columns = [vocabulary[word] for words in documents for word in sorted(set(words))]
    present = sp.csr_array((np.ones(len(rows)), (rows, columns)), shape=(len(documents), max(1, len(vocabulary))))
    learns = data.training.fitted_on(torch.device("cpu")).numpy() > 0
    scores = np.zeros((*learns.shape[:2], len(documents)), np.float32)
    for number, fits in enumerate(learns):
        for place, learned in enumerate(fits):
            weight, intercept = fit_logistic(present[learned], data.training.labels[number][learned])
            scores[number, place] = present @ weight + intercept
    return DetectorFit(data.training.assemble(torch.from_numpy(scores)).to(data.device), None)
