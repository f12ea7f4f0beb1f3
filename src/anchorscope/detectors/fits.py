"""How every detector is fitted: probes and stacks of them, a network, mixtures of probes, baselines.

Each `fit_…` takes the training data and gives a `DetectorFit`: the log-odds of every item by a fit that never saw it,
for every training set, and the fitted detector of any one set. What a detector reads is declared in its entry of the
catalogue (`runs`, `sites`, `columns`); what can't be fitted here says why.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from anchorscope.catalogue import BOOSTS, DETECTORS, KNOCKOUT, DetectorEntry, boost_name
from anchorscope.detectors.auto import fit_auto
from anchorscope.detectors.data import (
    DetectorFit,
    ProbeFits,
    TrainingData,
    as_detector,
    fit_bank,
    fit_stacked,
)
from anchorscope.detectors.features import (
    CLEAN,
    QUESTION_ONLY,
    QUESTION_ORTHOGONAL,
    TEXT_STATE,
    Features,
    StateKey,
)
from anchorscope.detectors.fitted import Fitted, Mixture, Network, mix_log_odds
from anchorscope.detectors.training import INNER_FOLDS, Dataset, Training
from anchorscope.evidence_parts.principal import Directions, principal_directions
from anchorscope.plugins import load

HIDDEN = (256, 128, 64)
TEXT_DIRECTIONS = 128
_PRIOR = 1.0  # true and false answers that every relation is taken to have beforehand
_EPOCHS, _BATCH, _RATE = 5, 32, 1e-3  # of SAPLMA
# numbers of a hidden layer that keep a GPU busy; the networks of one set fill a CPU's cache
_AT_ONCE = 2**27


@dataclass(frozen=True)
class DetectorPlugin:
    """A detector of another package."""

    entry: DetectorEntry
    """Its name, words and needs, as the catalogue has them of our own."""
    fit: Callable[[TrainingData], DetectorFit]

    @property
    def name(self) -> str:
        return self.entry.name


def missing_feature(name: str, features: Features, site: str) -> str | None:
    """Why a detector can't be fitted on these features; None where it can."""
    entry = DETECTORS[name]
    layers = [key[2] for key in features.states if key[:2] == (CLEAN, site)]
    for other in entry.sites:
        if not any(key[:2] == (CLEAN, other) for key in features.states):
            return f"clean states of the site {other!r} were not kept"
    for run in entry.runs:
        if any((run, site, layer) not in features.states for layer in layers):
            return f"states of the run {run!r} were not kept"
    for column in entry.columns:
        if column not in features.columns:
            return f"the column {column!r} was not kept"
    return None


def fit_on(
    data: TrainingData, keys: tuple[StateKey, ...], directions: Directions | None = None
) -> DetectorFit:
    """A probe on other states, along directions of their own, at the key that serves best."""
    states = data.project(keys, directions)
    bank = fit_bank(states.values, data.training, data.device)
    return as_detector(data.at_best(bank, range(len(keys)), states))


def fit_text(data: TrainingData) -> DetectorFit:
    """A probe on hashed words and word pairs along the directions of latent semantic analysis: no model reads the text.

    Words are not standardised, as states are: rare ones would outweigh all others.
    """
    counts = data.features.state(TEXT_STATE)
    return fit_on(
        data,
        (TEXT_STATE,),
        principal_directions(counts[None], TEXT_DIRECTIONS, data.device, rescale=False),
    )


def fit_entropy_probe(data: TrainingData, column: str) -> DetectorFit:
    """Semantic-entropy probe (Kossen et al. 2024, arXiv:2406.15927): learns low from high entropy of sampled answers.

    Truth plays no part in the fits. Entropies are parted where the squares within both halves are least.
    """
    entropy = data.features.columns[column]
    borders = np.unique(entropy)[1:]
    within = [
        sum(
            part.var() * len(part)
            for part in (entropy[entropy < x], entropy[entropy >= x])
        )
        for x in borders
    ]
    low = entropy < (borders[int(np.argmin(within))] if len(borders) else np.inf)
    training = replace(
        data.training, labels=np.repeat(low[None], data.training.n_sets, axis=0)
    )
    layers = range(len(data.layers))
    return as_detector(
        data.at_best(
            fit_bank(data.clean.values[: len(layers)], training, data.device), layers
        )
    )


def fit_saplma(data: TrainingData) -> DetectorFit:
    """SAPLMA (Azaria and Mitchell 2023, arXiv:2304.13734): a network of three hidden layers, five epochs of Adam.

    It reads the best layer's state along principal directions.
    """
    directions, best = data.clean.directions, data.probe.best
    states = data.clean.values[torch.from_numpy(best).to(data.device)]
    scale = states.square().mean((1, 2), keepdim=True).sqrt()
    states = states / scale
    step = (
        1
        if data.device.type == "cpu"
        else max(1, _AT_ONCE // ((INNER_FOLDS + 1) * states.shape[1] * HIDDEN[0]))
    )
    networks, scores = [], []
    for sets in torch.arange(len(states)).split(step):
        networks.append(_train_networks(data.training.take(sets.numpy()), states[sets]))
        scores.append(_forward(networks[-1], states[sets]))
    layers = [torch.cat(layer) for layer in zip(*networks, strict=True)]

    def build(number: int) -> Fitted:
        parts = [part[number, INNER_FOLDS].double().cpu() for part in layers]
        weight, bias, layer = (
            [part.T for part in parts[::2]],
            [part[0] for part in parts[1::2]],
            int(best[number]),
        )
        first = weight[0] / float(scale[number])
        weight[0], bias[0] = (
            first @ directions.weight[layer],
            bias[0] + first @ directions.offset[layer],
        )
        weight, bias = (
            [part.float().contiguous() for part in several]
            for several in (weight, bias)
        )
        return Network(data.keys[layer], tuple(weight), tuple(bias))

    return DetectorFit(data.training.assemble(torch.cat(scores)), build)


def _forward(
    parts: Sequence[Tensor], states: Float[Tensor, "set item direction"]
) -> Float[Tensor, "set fit item"]:
    values = states[:, None]
    for weight, bias in zip(parts[:-2:2], parts[1:-2:2], strict=True):
        values = torch.relu(values @ weight + bias)
    return (values @ parts[-2] + parts[-1])[..., 0]


def _train_networks(
    training: Training, states: Float[Tensor, "set item direction"]
) -> list[Tensor]:
    """Weights and biases of the layers in turn, [set, fit, in, out] and [set, fit, 1, out]; networks share nothing."""
    device, generator = states.device, torch.Generator().manual_seed(0)
    weights, targets = training.fitted_on(device), training.targets(device)[:, None]
    parts: list[Tensor] = []
    for before, after in pairwise((states.shape[2], *HIDDEN, 1)):
        normal = torch.randn(before, after, generator=generator) * (2 / before) ** 0.5
        parts += [
            part.to(device).repeat(*weights.shape[:2], 1, 1)
            for part in (normal, torch.zeros(1, after))
        ]
    adam = torch.optim.Adam(
        [part.requires_grad_() for part in parts], lr=_RATE, fused=True
    )
    for _ in range(_EPOCHS):
        for items in (
            torch.randperm(states.shape[1], generator=generator)
            .to(device)
            .split(_BATCH)
        ):
            share = weights[..., items]
            share = share / share.sum(-1, keepdim=True).clamp(min=1e-12)
            with torch.enable_grad():
                outputs = _forward(parts, states[:, items])
                wanted = targets[..., items].expand_as(outputs)
                loss = binary_cross_entropy_with_logits(
                    outputs, wanted, share, reduction="sum"
                )
            adam.zero_grad()
            loss.backward()
            adam.step()
    return [part.detach() for part in parts]


def fit_relation(data: TrainingData, relations: Sequence[str | None]) -> DetectorFit:
    """Log-odds of a relation's true answers in the training set."""
    names, member = np.unique([name or "" for name in relations], return_inverse=True)
    one_hot = (
        torch.nn.functional.one_hot(torch.from_numpy(member), len(names))
        .float()
        .to(data.device)
    )
    weights, targets = (
        data.training.fitted_on(data.device),
        data.training.targets(data.device)[:, None],
    )
    true, false = (
        (weights * targets) @ one_hot + _PRIOR,
        (weights * (1 - targets)) @ one_hot + _PRIOR,
    )
    return DetectorFit(data.training.assemble((true / false).log() @ one_hot.T), None)


_PARTS = ("question", "answer")
_CERTAIN = 4.0  # log-odds of a gate that was drawn at random
# weight of the other side's items: an expert may otherwise see one class only
_OTHER_SIDE = 0.01


@dataclass(frozen=True)
class DetectorFits:
    """Detectors over one set of training data, each fitted when it is first asked for.

    Mixture-of-Probes and Pathway Reweighting share a gate. Both are the paper's, which publishes no formula for either:
    this is our reading. Its rule for pathways needs the label: Q-Anchored items are almost all true, and a gate that
    predicts the pathway then predicts the label. Here an item is question-sided if the cut moves the probe's log-odds,
    in either direction, by more than it moves those of half of the training items; the gate predicts that from the
    clean state. As controls the gate is drawn at random, or the same for every item.
    """

    data: TrainingData
    dataset: Dataset
    _fits: dict[str, DetectorFit] = field(default_factory=dict)

    def fit(self, name: str) -> DetectorFit:
        if name not in self._fits:
            if name in DETECTORS.plugins:
                self._fits[name] = load(DETECTORS.plugins[name]).fit(self.data)
            elif name in _FITS:
                self._fits[name] = _FITS[name](self)
            else:
                self._fits[name] = fit_stacked(self.data, (), DETECTORS[name].columns)
        return self._fits[name]

    @cached_property
    def question_sided(self) -> Bool[np.ndarray, "set item"]:
        """Whether the cut moves an item's log-odds more than it moves the median member's."""
        probe = self.data.probe
        change = (
            (probe.scores - probe.scores_of(self.data.changed(KNOCKOUT))).abs().cpu()
        )
        members = torch.from_numpy(self.data.training.members)
        median = (
            torch.where(members, change, torch.nan).nanmedian(-1, keepdim=True).values
        )
        return (change > median).numpy()

    @cached_property
    def gate_and_experts(self) -> list[ProbeFits]:
        """Probes: whether an item is question-sided; whether it is true, for those that are and for the others."""
        training, asks = self.data.training, self.question_sided
        experts = [
            replace(training, weights=np.where(side, 1, _OTHER_SIDE))
            for side in (asks, ~asks)
        ]
        return self.data.fit_at_best(replace(training, labels=asks), *experts)

    @cached_property
    def gates(self) -> dict[str, Float[Tensor, "set item"]]:
        """Log-odds of "question-sided", predicted and as the controls have them."""
        predicted = self.gate_and_experts[0].scores
        generator = torch.Generator().manual_seed(0)  # the same on every device
        coin = (
            torch.rand(self.data.features.n_items, generator=generator).to(
                predicted.device
            )
            > 0.5
        )
        drawn = torch.where(coin, _CERTAIN, -_CERTAIN).expand_as(predicted)
        return {
            "predicted": predicted,
            "random": drawn,
            "constant": torch.zeros_like(predicted),
        }

    def fit_mixture(self, gate: str = "predicted") -> DetectorFit:
        """Mixture-of-Probes: p = g · σ(question expert) + (1 − g) · σ(answer expert)."""
        _, question, answer = self.gate_and_experts
        scores = mix_log_odds(self.gates[gate], question.scores, answer.scores)

        def build(number: int) -> Fitted:
            return Mixture(*(fits.build(number) for fits in self.gate_and_experts))

        return DetectorFit(scores, build if gate == "predicted" else None)

    @cached_property
    def reweighted(self) -> dict[str, Float[Tensor, "set item"]]:
        """Log-odds of Pathway Reweighting by each gate: attention to the gate's side is strengthened, and one probe
        reads the resulting state.

        Every item has two rows, one for either side, and a training set learns from the row that its gate chooses. A
        constant gate strengthens the question for all. The inner folds choose both strengths. It is there to compare
        with: an answer would have to be read twice.
        """
        data, training = self.data, self.data.training
        asks = torch.stack([*self.gates.values()]).cpu().numpy() >= 0
        doubled = [
            Training.together(
                [
                    replace(training, weights=side.astype(np.float64))
                    for side in (own, ~own)
                ],
                axis=1,
            )
            for own in asks
        ]
        boosted = {
            (part, alpha): data.changed(boost_name(part, alpha))
            for part in _PARTS
            for alpha in BOOSTS
        }
        strengths = [
            ((_PARTS[0], first), (_PARTS[1], second))
            for first in BOOSTS
            for second in BOOSTS
        ]
        scores = torch.empty(asks.shape, device=data.device)
        for layer in np.unique(data.probe.best).tolist():
            sets = np.flatnonzero(data.probe.best == layer)
            own = Training.together([each.take(sets) for each in doubled])
            states = torch.stack(
                [
                    torch.cat([boosted[side][layer] for side in pair])
                    for pair in strengths
                ]
            )
            bank = fit_bank(states, own, data.device)
            both = replace(data.clean, values=states)
            fits = replace(data, training=own).at_best(
                bank, range(len(strengths)), both
            )
            question, answer = fits.scores.unflatten(0, (len(asks), -1)).chunk(2, dim=2)
            scores[:, sets] = torch.where(
                torch.from_numpy(asks[:, sets]).to(scores.device), question, answer
            )
        return dict(zip(self.gates, scores, strict=True))


_FITS: Mapping[str, Callable[[DetectorFits], DetectorFit]] = {
    "confidence": lambda fits: fit_stacked(fits.data, (), fits.data.confidence),
    "probe": lambda fits: as_detector(fits.data.probe),
    "residual-probe": lambda fits: as_detector(fits.data.residual_probe),
    "question-orthogonal": lambda fits: fit_on(
        fits.data, fits.data.headline(QUESTION_ORTHOGONAL)
    ),
    "mean-token-probe": lambda fits: fit_on(
        fits.data, fits.data.headline("answer-mean")
    ),
    "semantic-entropy-probe": lambda fits: fit_entropy_probe(
        fits.data, "semantic_entropy_10"
    ),
    "saplma": lambda fits: fit_saplma(fits.data),
    "probe+confidence": lambda fits: fit_stacked(
        fits.data, (fits.data.probe,), fits.data.confidence
    ),
    "mop": lambda fits: fits.fit_mixture(),
    "mop-random-gate": lambda fits: fits.fit_mixture("random"),
    "mop-constant-gate": lambda fits: fits.fit_mixture("constant"),
    "pr-attention": lambda fits: DetectorFit(fits.reweighted["predicted"], None),
    "pr-attention-random-gate": lambda fits: DetectorFit(
        fits.reweighted["random"], None
    ),
    "pr-attention-constant-gate": lambda fits: DetectorFit(
        fits.reweighted["constant"], None
    ),
    "auto": lambda fits: fit_auto(fits.data, fits.dataset.groups),
    "relation": lambda fits: fit_relation(fits.data, fits.dataset.relations),
    "text": lambda fits: fit_text(fits.data),
    "question-only": lambda fits: fit_on(fits.data, fits.data.headline(QUESTION_ONLY)),
    "random-weights": lambda fits: fit_on(
        fits.data, fits.data.headline("random-weights")
    ),
}
"""How each is fitted; an entry of the catalogue that isn't here is a logistic regression on its columns."""
