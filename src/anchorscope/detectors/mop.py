"""Mixture-of-Probes: an expert probe for question-sided items, one for the others, and a gate that mixes them.

p = g · σ(w_Q · h + b_Q) + (1 − g) · σ(w_A · h + b_A). The paper does not say how experts and gate are trained, so there
are three readings: experts fitted on one side each (`hard`), on all items weighted by the gate (`soft`), or together
with the gate (`joint`, with a loss that keeps the gate at the measured sides). And five gates to mix with: `predicted`
from the clean state, `measured` by the cut; as controls `random` and `constant`; and `oracle`, which has seen the label
as the plain rule of pathways has, to show what that is worth.
"""

from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, logsigmoid

from anchorscope.detectors.data import BestLayerFits, TrainingData
from anchorscope.detectors.fitted import Fitted, LinearProbe
from anchorscope.detectors.fitted_parts import Mixture
from anchorscope.detectors.gradient import descend, own_rates
from anchorscope.detectors.pathway import Pathway
from anchorscope.detectors.single import DetectorFit
from anchorscope.detectors.training import INNER_FOLDS

READINGS = ("hard", "soft", "joint")
GATES = ("predicted", "measured", "random", "constant", "oracle")
_STEPS = 60
_GATE_LOSS = 0.5  # weight of the gate's own loss beside the mixture's


class MixtureOfProbes:
    """All readings and gates over the same training sets."""

    def __init__(self, data: TrainingData, run: str) -> None:
        """`run` is the cut that measures the sides."""
        self.data = data
        self.pathway, self.seen = Pathway(data, run), Pathway(data, run, seen=True)
        self._experts: dict[tuple[str, bool], tuple[BestLayerFits, BestLayerFits]] = {}

    def experts(self, reading: str, seen: bool) -> tuple[BestLayerFits, BestLayerFits]:
        """Experts of both sides; `seen` where the sides were found with the label."""
        if (reading, seen) not in self._experts:
            pathway = self.seen if seen else self.pathway
            share = pathway.question_sided.float() if reading == "hard" else torch.sigmoid(pathway.measured)
            # Under the label an expert may see one class only: a hundredth of the other side keeps a fit defined.
            question, answer = self.data.fit_at_best(weights=torch.cat([share, 1 - share]).clamp(0.01, 1))
            self._experts[reading, seen] = question, answer
        return self._experts[reading, seen]

    @cached_property
    def joint(self) -> tuple[BestLayerFits, BestLayerFits, BestLayerFits]:
        """Question expert, answer expert and gate, fitted together, from the hard experts and the predicted gate on."""
        data, start = self.data, (*self.experts("hard", False), self.pathway.gate)
        states, weights = data.states_at_best, data.training.fitted_on(data.device)
        share = weights / weights.sum(-1, keepdim=True)
        penalty = 1 / (start[0].strength * weights[:, INNER_FOLDS].sum(-1))[:, None]
        targets = data.training.targets(data.device)[:, None].expand(-1, weights.shape[1], -1)
        sides = self.pathway.question_sided.float()[:, None].expand(-1, weights.shape[1], -1)

        def loss(parts: list[Tensor]) -> Tensor:
            question, answer, gate = (
                parts[2 * place] @ states.transpose(1, 2) + parts[2 * place + 1][..., None] for place in range(3)
            )
            mixed = mixture(gate, question, answer)
            own = binary_cross_entropy_with_logits(mixed, targets, reduction="none")
            own = own + _GATE_LOSS * binary_cross_entropy_with_logits(gate, sides, reduction="none")
            ridge = sum((penalty * parts[2 * place].square().sum(-1)).sum() for place in range(3)) / 2
            return (own * share).sum() + ridge

        begin = [part for one in start for part in (one.weight, one.bias)]
        rates = [rate for one in start for rate in (own_rates(one.weight, 0.02), 0.02)]
        found = descend(begin, loss, _STEPS, rates)
        question, answer, gate = (
            BestLayerFits(found[2 * place], found[2 * place + 1], start[place].strength) for place in range(3)
        )
        return question, answer, gate

    def fit(self, reading: str, gate: str) -> DetectorFit:
        """One reading with one gate."""
        data, seen = self.data, gate == "oracle"
        question, answer = self.joint[:2] if reading == "joint" else self.experts(reading, seen)
        scores = mixture(self._gate(reading, gate), data.scores(question), data.scores(answer))

        def build(number: int) -> Fitted:
            return Mixture(
                self._fitted_gate(reading, gate, number),
                data.raw_probe(question, number),
                data.raw_probe(answer, number),
            )

        return DetectorFit(scores, build if gate in ("predicted", "measured", "constant") else None)

    def best(self) -> DetectorFit:
        """The reading that the inner folds prefer, with the gate from the clean state: one pass."""
        fits = [self.fit(reading, "predicted") for reading in READINGS]
        areas = torch.stack([self.data.training.inner_auc(one.scores) for one in fits])
        chosen = areas.argmax(0)
        scores = torch.stack([one.scores for one in fits])[chosen, torch.arange(len(chosen))]

        def build(number: int) -> Fitted:
            own = fits[int(chosen[number])].build
            assert own is not None, "a mixture with a predicted gate can be used"
            return own(number)

        return DetectorFit(scores, build)

    def _gate(self, reading: str, gate: str) -> Float[Tensor, "set item"]:
        if gate == "predicted":
            return self.data.scores(self.joint[2]) if reading == "joint" else self.pathway.predicted
        if gate == "measured":
            return self.pathway.measured
        if gate == "oracle":
            return self.seen.measured
        zero = torch.zeros_like(self.data.log_odds)
        return zero if gate == "constant" else zero + 4 * (2 * (_coin(self.data) > 0.5).float() - 1)

    def _fitted_gate(self, reading: str, gate: str, number: int) -> Fitted:
        if gate == "measured":
            return self.pathway.measured_gate(number)
        if gate == "predicted":
            own = self.joint[2] if reading == "joint" else self.pathway.gate
            return self.data.raw_probe(own, number)
        probe = self.data.best_probe(number)
        return LinearProbe(probe.key, torch.zeros_like(probe.weight), 0.0)


def mixture(gate: Tensor, question: Tensor, answer: Tensor) -> Tensor:
    """Log-odds of the mixture's probability."""
    true = torch.logaddexp(logsigmoid(gate) + logsigmoid(question), logsigmoid(-gate) + logsigmoid(answer))
    false = torch.logaddexp(logsigmoid(gate) + logsigmoid(-question), logsigmoid(-gate) + logsigmoid(-answer))
    return true - false


def _coin(data: TrainingData) -> Float[Tensor, "set item"]:
    """A number per item that has nothing to do with it, the same on every device."""
    generator = torch.Generator().manual_seed(0)
    return torch.rand(1, data.features.n_items, generator=generator).to(data.device).expand(data.training.n_sets, -1)
