"""Detectors that use the cut of the question's key words: Mixture-of-Probes and Pathway Reweighting.

Mixture-of-Probes and Pathway Reweighting are the paper's; it publishes no formula for either, so both are our reading.
Its rule for pathways needs the label: Q-Anchored items are almost all true, and a gate that predicts the pathway then
predicts the label. Here an item is question-sided if the cut moves the probe's log-odds, in either direction, by more
than it moves those of half of the training items; the gate predicts that from the clean state. As controls the gate is
drawn at random, or the same for every item.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from anchorscope.catalogue import BOOSTS, KNOCKOUT, boost_name
from anchorscope.detectors.data import ProbeFits, TrainingData, fit_bank
from anchorscope.detectors.fitted import Fitted, Mixture, mix_log_odds
from anchorscope.detectors.probe_detectors import DetectorFit
from anchorscope.detectors.training import Training

PREDICTED, RANDOM_GATE, CONSTANT_GATE = "predicted", "random", "constant"
_PARTS = ("question", "answer")
_CERTAIN = 4.0  # log-odds of a gate that was drawn at random
_OTHER_SIDE = 0.01  # weight of the other side's items: an expert may otherwise see one class only


@dataclass(frozen=True)
class PathwayDetectors:
    """Mixture-of-Probes and Pathway Reweighting over the same training sets and the same gate."""

    data: TrainingData

    @cached_property
    def question_sided(self) -> Bool[Tensor, "set item"]:
        """Whether the cut moves an item's log-odds more than it moves the median member's."""
        probe = self.data.probe
        change = (probe.scores - probe.scores_of(self.data.changed(KNOCKOUT))).abs()
        members = torch.from_numpy(self.data.training.members).to(change.device)
        median = torch.where(members, change, torch.nan).nanmedian(-1, keepdim=True).values
        return change > median

    @cached_property
    def predicted_gate(self) -> ProbeFits:
        """A probe that reads from the clean state whether an item is question-sided."""
        return self.data.fit_at_best(labels=self.question_sided.float())

    def gate_log_odds(self, gate: str) -> Float[Tensor, "set item"]:
        """Log-odds of "question-sided" by one of the gates."""
        if gate == PREDICTED:
            return self.predicted_gate.scores
        zero = torch.zeros_like(self.data.probe.scores)
        if gate == CONSTANT_GATE:
            return zero
        generator = torch.Generator().manual_seed(0)  # the same on every device
        coin = torch.rand(self.data.features.n_items, generator=generator).to(zero.device) > 0.5
        return zero + torch.where(coin, _CERTAIN, -_CERTAIN)

    @cached_property
    def experts(self) -> tuple[ProbeFits, ProbeFits]:
        """A probe for question-sided items and one for the others."""
        share = self.question_sided.float()
        sides = (share.clamp(_OTHER_SIDE, 1), (1 - share).clamp(_OTHER_SIDE, 1))
        question, answer = (self.data.fit_at_best(weights=side) for side in sides)
        return question, answer

    def fit_mixture(self, gate: str = PREDICTED) -> DetectorFit:
        """Mixture-of-Probes: p = g · σ(question expert) + (1 − g) · σ(answer expert)."""
        question, answer = self.experts
        scores = mix_log_odds(self.gate_log_odds(gate), question.scores, answer.scores)

        def build(number: int) -> Fitted:
            return Mixture(*(fits.build(number) for fits in (self.predicted_gate, question, answer)))

        return DetectorFit(scores, build if gate == PREDICTED else None)

    def fit_reweighting(self, gate: str = PREDICTED) -> DetectorFit:
        """Pathway Reweighting: attention to the gate's side is strengthened, and one probe reads the resulting state.

        Every item has two rows, one for either side, and a training set learns from the row that its gate chooses. A
        constant gate strengthens the question for all. The inner folds choose both strengths. It is there to compare
        with: an answer would have to be read twice.
        """
        data, training = self.data, self.data.training
        sides = self.gate_log_odds(gate) >= 0
        boosted = {(part, alpha): data.changed(boost_name(part, alpha)) for part in _PARTS for alpha in BOOSTS}
        strengths = [(question, answer) for question in BOOSTS for answer in BOOSTS]
        parts = (training.labels, training.members, training.inner, training.weights)
        doubled = Training(*(np.concatenate([part, part], axis=-1) for part in parts))
        scores = torch.empty(training.n_sets, data.features.n_items, device=data.device)
        for layer in np.unique(data.probe.best).tolist():
            sets = np.flatnonzero(data.probe.best == layer)
            own = doubled.take(sets)
            states = torch.stack(
                [
                    torch.cat([boosted[part, alpha][layer] for part, alpha in zip(_PARTS, pair, strict=True)])
                    for pair in strengths
                ]
            )
            mine = sides[torch.from_numpy(sets).to(sides.device)]
            bank = fit_bank(states, own, data.device, weights=torch.cat([mine, ~mine], dim=1).float())
            fits = replace(data, training=own).at_best(bank, range(len(strengths)), states=states)
            question, answer = fits.scores.chunk(2, dim=1)
            scores[torch.from_numpy(sets).to(scores.device)] = torch.where(mine, question, answer)
        return DetectorFit(scores, None)
