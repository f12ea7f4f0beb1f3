"""Pathway Reweighting: predict an item's side from its clean state, strengthen that side's signal, then probe.

The paper gives no formula, so there are three readings. `pr-attention`: attention to the question's key words, or among
the answer's own tokens, is strengthened, and the probe reads the state that follows. `pr-activation`: the state's
directions are scaled, differently for both sides; with a hard gate and a linear probe this is Mixture-of-Probes with
tied weights. `pr-delta` (ours): h′ = h_cut + (1 + γ)(h − h_cut), what the cut takes counts more on the question's
side and less on the other.

One probe serves both sides. Every item is there twice, once changed in either way, and a training set learns from the
row that its gate chooses.
"""

from collections.abc import Callable

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from anchorscope.catalogue import BOOSTS
from anchorscope.detectors.bank import fit_bank
from anchorscope.detectors.data import BestLayerFits, TrainingData
from anchorscope.detectors.features import CLEAN
from anchorscope.detectors.fitted import Fitted, LinearProbe
from anchorscope.detectors.fitted_parts import Routed, WeightedSum
from anchorscope.detectors.gradient import descend, own_rates
from anchorscope.detectors.pathway import Pathway
from anchorscope.detectors.single import DetectorFit
from anchorscope.detectors.training import INNER_FOLDS, Training

DELTAS = tuple((question, answer) for question in (0.5, 2.0) for answer in (-0.5, -1.0))
"""γ of question-sided and of other items, for `pr-delta`."""
_SCALINGS = (0.01, 0.1)  # penalties on how far the scales of `pr-activation` go from one
_STEPS = 60


def boost_run(side: str, alpha: float) -> str:
    """The name of the run with strengthened attention."""
    return f"boost-{side}-{alpha:g}"


_Change = Callable[[int, int, str], Float[Tensor, "item direction"]]
"""From the layer's place, the change's number and the side: the states of all items, changed so."""
_SideProbe = Callable[[LinearProbe, int, str], Fitted]
"""From the probe, the change's number and the side: what items of that side are scored by."""


def fit_attention(data: TrainingData, pathway: Pathway) -> DetectorFit:
    """`pr-attention`: the strengths are chosen by the inner folds."""
    pairs = [{"question": question, "answer": answer} for question in BOOSTS for answer in BOOSTS]
    changed = {
        (side, alpha): data.changed(boost_run(side, alpha)) for side in ("question", "answer") for alpha in BOOSTS
    }

    def side_probe(probe: LinearProbe, number: int, side: str) -> Fitted:
        return LinearProbe((boost_run(side, pairs[number][side]), *probe.key[1:]), probe.weight, probe.bias)

    return _fit_rows(
        data, pathway, len(pairs), lambda layer, number, side: changed[side, pairs[number][side]][layer], side_probe
    )


def fit_delta(data: TrainingData, pathway: Pathway) -> DetectorFit:
    """`pr-delta`: γ of both sides are chosen by the inner folds."""
    cut = data.changed(pathway.run)
    pairs = [{"question": question, "answer": answer} for question, answer in DELTAS]

    def change(layer: int, number: int, side: str) -> Tensor:
        return cut[layer] + (1 + pairs[number][side]) * (data.clean[layer] - cut[layer])

    def side_probe(probe: LinearProbe, number: int, side: str) -> Fitted:
        """w · h′ + b as a sum of w · h and w · h_cut."""
        gamma = pairs[number][side]
        other = LinearProbe((pathway.run, *probe.key[1:]), probe.weight, probe.bias)
        return WeightedSum((probe, other), (1 + gamma, -gamma), (), (), 0.0)

    return _fit_rows(data, pathway, len(pairs), change, side_probe)


def _fit_rows(
    data: TrainingData, pathway: Pathway, n_changes: int, change: _Change, side_probe: _SideProbe
) -> DetectorFit:
    """One probe on the rows that the gate chooses, at each set's best layer; the change by the inner folds' AUC."""
    training, sides = data.training, pathway.predicted > 0
    parts = (training.labels, training.members, training.inner, training.weights)
    doubled = Training(*(np.concatenate([part, part], axis=-1) for part in parts))
    scores = torch.empty(training.n_sets, data.features.n_items, device=data.device)
    made: dict[int, tuple[int, Tensor, float]] = {}  # by set: the change, weight and bias of the fit on all members
    for layer in np.unique(data.best).tolist():
        sets = np.flatnonzero(data.best == layer)
        own = doubled.take(sets)
        states = torch.stack(
            [torch.cat([change(layer, number, side) for side in ("question", "answer")]) for number in range(n_changes)]
        )
        mine = sides[torch.from_numpy(sets).to(sides.device)]
        bank = fit_bank(states, own, data.device, weights=torch.cat([mine, ~mine], dim=1).float())
        best = bank.inner_auc.argmax(0).tolist()
        for place, (number, chosen) in enumerate(zip(sets.tolist(), best, strict=True)):
            both = own.assemble(bank.log_odds(chosen, states[chosen]))[place]
            question, answer = both.chunk(2)
            scores[number] = torch.where(mine[place], question, answer)
            weight, bias = bank.weight[chosen, place, INNER_FOLDS], float(bank.bias[chosen, place, INNER_FOLDS])
            made[number] = (chosen, weight, bias)

    def build(number: int) -> Fitted:
        chosen, weight, bias = made[number]
        layer = int(data.best[number])
        raw, raw_bias = data.directions.to_raw(layer, weight, bias)
        probe = LinearProbe((CLEAN, data.site, data.layers[layer]), raw.float(), raw_bias)
        ways = (side_probe(probe, chosen, side) for side in ("question", "answer"))
        return Routed(pathway.predicted_gate(number), *ways)

    return DetectorFit(scores, build)


def fit_activation(data: TrainingData, pathway: Pathway) -> DetectorFit:
    """`pr-activation`: h′ = a_k ⊙ h along the principal directions, one probe on h′, all fitted together."""
    (start,) = data.fit_at_best()
    fits = [_scaled(data, pathway, start, penalty) for penalty in _SCALINGS]
    scores = torch.stack(
        [torch.where(pathway.predicted > 0, data.scores(question), data.scores(answer)) for question, answer in fits]
    )
    chosen = data.training.inner_auc(scores).argmax(0)

    def build(number: int) -> Fitted:
        question, answer = fits[int(chosen[number])]
        ways = (data.raw_probe(one, number) for one in (question, answer))
        return Routed(pathway.predicted_gate(number), *ways)

    return DetectorFit(scores[chosen, torch.arange(len(chosen))], build)


def _scaled(
    data: TrainingData, pathway: Pathway, start: BestLayerFits, scaling: float
) -> tuple[BestLayerFits, BestLayerFits]:
    """The probe as question-sided and as other items meet it: its weights times the side's scales."""
    states, weights = data.states_at_best, data.training.fitted_on(data.device)
    share = weights / weights.sum(-1, keepdim=True)
    penalty = 1 / (start.strength * weights[:, INNER_FOLDS].sum(-1))[:, None]
    targets = data.training.targets(data.device)[:, None].expand(-1, weights.shape[1], -1)
    sides = (pathway.predicted > 0)[:, None]

    def loss(parts: list[Tensor]) -> Tensor:
        weight, bias, question, answer = parts
        by_question, by_answer = ((weight * scale) @ states.transpose(1, 2) for scale in (question, answer))
        logits = torch.where(sides, by_question, by_answer) + bias[..., None]
        own = binary_cross_entropy_with_logits(logits, targets, reduction="none")
        ridge = (penalty * weight.square().sum(-1)).sum() / 2
        ridge = ridge + scaling * sum((scale - 1).square().mean(-1).sum() for scale in (question, answer))
        return (own * share).sum() + ridge

    ones = torch.ones_like(start.weight)
    rates: list[float | Tensor] = [own_rates(start.weight, 0.02), 0.02, 0.05, 0.05]
    weight, bias, question, answer = descend([start.weight, start.bias, ones, ones.clone()], loss, _STEPS, rates)
    return BestLayerFits(weight * question, bias, start.strength), BestLayerFits(weight * answer, bias, start.strength)
