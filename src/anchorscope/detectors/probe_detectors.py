"""Detectors that read the clean run, and baselines: confidence, probes and stacks of them, a network, words, relation.

Each `fit_…` takes the training data and gives a `DetectorFit`: the log-odds of every item by a fit that never saw it,
for every training set, and the fitted detector of any one set.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import scipy.sparse as sp
import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from anchorscope.detectors.data import RESIDUAL, ProbeFits, TrainingData, fit_bank
from anchorscope.detectors.features import CLEAN, QUESTION_ONLY
from anchorscope.detectors.fitted import Fitted, Network, QuestionOrthogonal, WeightedSum, question_orthogonal
from anchorscope.detectors.training import FITS, INNER_FOLDS, Stacked, Training, fit_stack
from anchorscope.evidence.scores import fit_logistic

HIDDEN = (256, 128, 64)
"""Hidden units of SAPLMA's network."""
_PRIOR = 1.0  # true and false answers that every relation is taken to have beforehand
_EPOCHS, _BATCH, _RATE = 5, 32, 1e-3  # of SAPLMA
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


def as_detector(fits: ProbeFits) -> DetectorFit:
    """A probe by itself."""
    return DetectorFit(fits.scores, fits.build)


def fit_probe_confidence(data: TrainingData) -> DetectorFit:
    """The single probe and confidence, stacked."""
    columns = torch.cat([data.probe.scores[..., None], data.columns(data.confidence)], dim=-1)
    stacked = fit_stack(columns, data.training)
    return DetectorFit(
        stacked.scores, lambda number: stacked_sum(stacked, number, (data.probe.build(number),), data.confidence)
    )


def fit_ensemble(data: TrainingData, names: tuple[str, ...]) -> DetectorFit:
    """Probes of all layers and sites, stacked with some columns."""
    probes = [data.at_best(data.bank, [place]) for place in range(len(data.keys))]
    columns = torch.cat([torch.stack([probe.scores for probe in probes], dim=-1), data.columns(names)], dim=-1)
    stacked = fit_stack(columns, data.training)
    return DetectorFit(
        stacked.scores,
        lambda number: stacked_sum(stacked, number, tuple(probe.build(number) for probe in probes), names),
    )


def fit_other_run(data: TrainingData, run: str) -> ProbeFits:
    """A probe on the states of another run, along directions of their own: question only, random weights."""
    keys = data.headline(run)
    directions = data.directions_of(keys)
    states = data.along(keys, directions)
    bank = fit_bank(states, data.training, data.device)
    return data.at_best(bank, range(len(keys)), keys, directions, states)


def fit_residual(data: TrainingData) -> DetectorFit:
    """A probe on the residual stream, at its best layer."""
    places = [place for place, key in enumerate(data.keys) if key[1] == RESIDUAL]
    return as_detector(data.at_best(data.bank, places))


def fit_question_orthogonal(data: TrainingData) -> DetectorFit:
    """A probe on what is left of a state without its part along the state before the answer begins, of the same item
    and layer."""
    states, run = data.features.states, QuestionOrthogonal.kind
    made = {
        (run, data.site, layer): question_orthogonal(
            states[CLEAN, data.site, layer], states[QUESTION_ONLY, data.site, layer]
        )
        for layer in data.layers
    }
    fits = fit_other_run(replace(data, features=replace(data.features, states={**states, **made})), run)

    def build(number: int) -> Fitted:
        probe = fits.build(number)
        return QuestionOrthogonal((CLEAN, *probe.key[1:]), probe.weight, probe.bias)

    return DetectorFit(fits.scores, build)


def fit_entropy_probe(data: TrainingData, column: str) -> DetectorFit:
    """Semantic-entropy probe (Kossen et al. 2024, arXiv:2406.15927): learns low from high entropy of sampled answers.

    Truth plays no part in the fits. Entropies are parted where the squares within both halves are least.
    """
    entropy = data.features.columns[column]
    borders = np.unique(entropy)[1:]
    within = [sum(part.var() * len(part) for part in (entropy[entropy < x], entropy[entropy >= x])) for x in borders]
    low = entropy < (borders[int(np.argmin(within))] if len(borders) else np.inf)
    labels = torch.from_numpy(low).float().expand(data.training.n_sets, -1)
    layers = range(len(data.layers))
    return as_detector(data.at_best(fit_bank(data.clean[: len(layers)], data.training, data.device, labels), layers))


def fit_saplma(data: TrainingData) -> DetectorFit:
    """SAPLMA (Azaria and Mitchell 2023, arXiv:2304.13734): a network of three hidden layers, five epochs of Adam.

    It reads the best layer's state along principal directions.
    """
    scale = data.states_at_best.square().mean((1, 2), keepdim=True).sqrt()
    states = data.states_at_best / scale
    at_once = _AT_ONCE if data.device.type == "cpu" else _AT_ONCE_ELSEWHERE
    step = max(1, at_once // (FITS * states.shape[1] * HIDDEN[0]))
    networks, scores = [], []
    for first in range(0, len(states), step):
        own = slice(first, first + step)
        networks.append(_train_networks(data.training.take(own), states[own]))
        scores.append(_forward(networks[-1], states[own]))
    layers = [torch.cat(layer) for layer in zip(*networks, strict=True)]

    def build(number: int) -> Fitted:
        parts = [part[number, INNER_FOLDS].double().cpu() for part in layers]
        place = int(data.probe.best[number])
        first = parts[0].T / float(scale[number])
        weight = (first @ data.directions.weight[place], *(part.T for part in parts[2::2]))
        bias = (parts[1] + first @ data.directions.offset[place], *parts[3::2])
        return Network(
            (CLEAN, data.site, data.layers[place]),
            tuple(part.float().contiguous() for part in weight),
            tuple(part.float() for part in bias),
        )

    return DetectorFit(data.training.assemble(torch.cat(scores)), build)


def _forward(parts: Sequence[Tensor], states: Float[Tensor, "set item direction"]) -> Float[Tensor, "set fit item"]:
    values = states[:, None]
    for weight, bias in zip(parts[:-2:2], parts[1:-2:2], strict=True):
        values = torch.relu(values @ weight + bias[:, :, None])
    return (values @ parts[-2] + parts[-1][:, :, None])[..., 0]


def _train_networks(training: Training, states: Float[Tensor, "set item direction"]) -> list[Tensor]:
    """Weights and biases of the layers in turn, [set, fit, in, out] and [set, fit, out]; networks share nothing."""
    device, generator = states.device, torch.Generator().manual_seed(0)
    weights, targets = training.fitted_on(device), training.targets(device)[:, None]
    parts: list[Tensor] = []
    for before, after in pairwise((states.shape[2], *HIDDEN, 1)):
        normal = torch.randn(before, after, generator=generator) * (2 / before) ** 0.5
        parts += [
            normal.to(device).repeat(*weights.shape[:2], 1, 1).requires_grad_(),
            torch.zeros(*weights.shape[:2], after, device=device, requires_grad=True),
        ]
    adam = torch.optim.Adam(parts, lr=_RATE, fused=True)
    for _ in range(_EPOCHS):
        for items in torch.randperm(states.shape[1], generator=generator).to(device).split(_BATCH):
            share = weights[..., items]
            share = share / share.sum(-1, keepdim=True).clamp(min=1e-12)
            with torch.enable_grad():
                outputs = _forward(parts, states[:, items])
                wanted = targets[..., items].expand_as(outputs)
                loss = (binary_cross_entropy_with_logits(outputs, wanted, reduction="none") * share).sum()
            adam.zero_grad()
            loss.backward()
            adam.step()
    return [part.detach() for part in parts]


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
