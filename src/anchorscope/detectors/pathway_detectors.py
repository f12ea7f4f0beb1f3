"""Detectors that use the cut of the question's key words: Mixture-of-Probes, Pathway Reweighting, counterfactual.

Mixture-of-Probes and Pathway Reweighting are the paper's; it publishes no formula for either, so both are our reading.
Its rule for pathways needs the label: Q-Anchored items are almost all true, and a gate that predicts the pathway then
predicts the label. Here an item is question-sided if the cut moves the probe's log-odds, in either direction, by more
than it moves those of half of the training items; the gate predicts that from the clean state. As controls the gate is
drawn at random, or the same for every item.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn.functional import logsigmoid

from anchorscope.catalogue import BOOSTS, KNOCKOUT, boost_name
from anchorscope.detectors.data import BestLayerFits, TrainingData, fit_bank
from anchorscope.detectors.features import CLEAN
from anchorscope.detectors.fitted import Fitted, LinearProbe, Mixture, Routed, StateChange, state_change
from anchorscope.detectors.probe_detectors import DetectorFit, fit_other_run, stacked_sum
from anchorscope.detectors.training import INNER_FOLDS, Training, fit_stack

PREDICTED, RANDOM_GATE, CONSTANT_GATE = "predicted", "random", "constant"
ANSWER_ONLY = "answer-only"
_CERTAIN = 4.0  # log-odds of a gate that was drawn at random
_OTHER_SIDE = 0.01  # weight of the other side's items: an expert may otherwise see one class only


@dataclass(frozen=True)
class PathwayDetectors:
    """Mixture-of-Probes and Pathway Reweighting over the same training sets and the same gate."""

    data: TrainingData

    @cached_property
    def question_sided(self) -> Bool[Tensor, "set item"]:
        """Whether the cut moves an item's log-odds more than it moves the median member's."""
        data = self.data
        after = data.at_best(data.bank, data.changed(KNOCKOUT), data.best)
        change = (data.log_odds - after).abs()
        members = torch.from_numpy(data.training.members).to(change.device)
        median = torch.where(members, change, torch.nan).nanmedian(-1, keepdim=True).values
        return change > median

    @cached_property
    def predicted_gate(self) -> BestLayerFits:
        """A probe that reads from the clean state whether an item is question-sided."""
        return self.data.fit_at_best(labels=self.question_sided.float())[0]

    def gate_log_odds(self, gate: str) -> Float[Tensor, "set item"]:
        """Log-odds of "question-sided" by one of the gates."""
        if gate == PREDICTED:
            return self.data.scores(self.predicted_gate)
        zero = torch.zeros_like(self.data.log_odds)
        if gate == CONSTANT_GATE:
            return zero
        generator = torch.Generator().manual_seed(0)  # the same on every device
        coin = torch.rand(self.data.features.n_items, generator=generator).to(zero.device) > 0.5
        return zero + torch.where(coin, _CERTAIN, -_CERTAIN)

    @cached_property
    def experts(self) -> tuple[BestLayerFits, BestLayerFits]:
        """A probe for question-sided items and one for the others."""
        share = self.question_sided.float()
        question, answer = self.data.fit_at_best(weights=torch.cat([share, 1 - share]).clamp(_OTHER_SIDE, 1))
        return question, answer

    def fit_mixture(self, gate: str = PREDICTED) -> DetectorFit:
        """Mixture-of-Probes: p = g · σ(question expert) + (1 − g) · σ(answer expert)."""
        data, (question, answer) = self.data, self.experts
        scores = mix_log_odds(self.gate_log_odds(gate), data.scores(question), data.scores(answer))

        def build(number: int) -> Fitted:
            return Mixture(*(data.raw_probe(fits, number) for fits in (self.predicted_gate, question, answer)))

        return DetectorFit(scores, build if gate == PREDICTED else None)

    def fit_reweighting(self, gate: str = PREDICTED) -> DetectorFit:
        """Pathway Reweighting: attention to the gate's side is strengthened, and one probe reads the resulting state.

        Every item has two rows, one for either side, and a training set learns from the row that its gate chooses. A
        constant gate strengthens the question for all. The inner folds choose both strengths.
        """
        data, training = self.data, self.data.training
        sides = self.gate_log_odds(gate) >= 0
        boosted = {(part, alpha): data.changed(boost_name(part, alpha)) for part in _PARTS for alpha in BOOSTS}
        strengths = [(question, answer) for question in BOOSTS for answer in BOOSTS]
        parts = (training.labels, training.members, training.inner, training.weights)
        doubled = Training(*(np.concatenate([part, part], axis=-1) for part in parts))
        scores = torch.empty(training.n_sets, data.features.n_items, device=data.device)
        chosen_fits: dict[int, tuple[int, Tensor, float]] = {}  # by set: number of the strengths, weight, bias
        for layer in np.unique(data.best).tolist():
            sets = np.flatnonzero(data.best == layer)
            own = doubled.take(sets)
            states = torch.stack(
                [
                    torch.cat([boosted[part, alpha][layer] for part, alpha in zip(_PARTS, pair, strict=True)])
                    for pair in strengths
                ]
            )
            mine = sides[torch.from_numpy(sets).to(sides.device)]
            bank = fit_bank(states, own, data.device, weights=torch.cat([mine, ~mine], dim=1).float())
            best = bank.inner_auc.argmax(0).tolist()
            for row, (number, choice) in enumerate(zip(sets.tolist(), best, strict=True)):
                question, answer = own.assemble(bank.log_odds(choice, states[choice]))[row].chunk(2)
                scores[number] = torch.where(mine[row], question, answer)
                weight, bias = bank.weight[choice, row, INNER_FOLDS], float(bank.bias[choice, row, INNER_FOLDS])
                chosen_fits[number] = (choice, weight, bias)

        def build(number: int) -> Fitted:
            choice, weight, bias = chosen_fits[number]
            layer = int(data.best[number])
            raw, raw_bias = data.directions.to_raw(layer, weight, bias)
            question, answer = (
                LinearProbe((boost_name(part, alpha), data.site, data.layers[layer]), raw.float(), raw_bias)
                for part, alpha in zip(_PARTS, strengths[choice], strict=True)
            )
            return Routed(data.raw_probe(self.predicted_gate, number), question, answer)

        return DetectorFit(scores, build if gate == PREDICTED else None)


_PARTS = ("question", "answer")


def mix_log_odds(gate: Tensor, question: Tensor, answer: Tensor) -> Tensor:
    """Log-odds of the mixture's probability."""
    true = torch.logaddexp(logsigmoid(gate) + logsigmoid(question), logsigmoid(-gate) + logsigmoid(answer))
    false = torch.logaddexp(logsigmoid(gate) + logsigmoid(-question), logsigmoid(-gate) + logsigmoid(-answer))
    return true - false


def fit_counterfactual(data: TrainingData, run: str) -> DetectorFit:
    """What the same answer looks like without the question's key words, stacked with probe and confidence.

    Columns: the probe's log-odds on the clean and on the cut state, a probe fitted on the cut states, one on the answer
    alone, how far the cut moves the state at every layer, the answer's log-probabilities under the cut, confidence.
    What was not kept is left out. `run` is the cut.
    """
    changed = data.changed(run)
    refit = fit_bank(changed, data.training, data.device)
    best = refit.inner_auc.argmax(0).cpu().numpy()
    names = (
        tuple(name for name in (f"{run}_log_prob_mean", f"{run}_log_prob_min") if name in data.features.columns)
        + data.confidence
    )
    alone = fit_other_run(data, ANSWER_ONLY) if data.has(ANSWER_ONLY) else None
    log_odds = [data.log_odds, data.at_best(data.bank, changed, data.best), data.at_best(refit, changed, best)]
    log_odds += [] if alone is None else [alone.scores]
    columns = torch.cat([torch.stack(log_odds, dim=-1), _state_changes(data, run), data.columns(names)], dim=-1)
    stacked = fit_stack(columns, data.training)

    def build(number: int) -> Fitted:
        key = (run, data.site, data.layers[int(best[number])])
        probes: list[Fitted] = [
            data.best_probe(number),
            data.best_probe(number, run),
            data.probe(refit, data.directions, key, int(best[number]), number),
        ]
        probes += [] if alone is None or alone.build is None else [alone.build(number)]
        probes += [StateChange(run, data.site, layer) for layer in data.layers]
        return stacked_sum(stacked, number, tuple(probes), names)

    return DetectorFit(stacked.scores, build)


def _state_changes(data: TrainingData, run: str) -> Float[Tensor, "set item layer"]:
    """How far the cut moves the state, at every layer."""
    states = data.features.states
    changes = [
        state_change(states[CLEAN, data.site, layer].to(data.device), states[run, data.site, layer].to(data.device))
        for layer in data.layers
    ]
    return torch.stack(changes, dim=-1).float().expand(data.training.n_sets, -1, -1)
