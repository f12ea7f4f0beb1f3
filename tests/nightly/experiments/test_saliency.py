"""Saliency: what is measured is what its definition says, and what is said of it finds what was planted and no more."""

from functools import partial

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from anchorscope.engine.forward import compute_prefix
from anchorscope.engine.saliency import ALL, saliency
from anchorscope.evidence.delta_p import true_label_probability
from anchorscope.experiments.experiment import ExperimentInputs
from anchorscope.experiments.saliency import (
    LOG_ODDS,
    analyse,
    measure_flow,
    wrong_probability,
)
from anchorscope.models.language_model import LanguageModel
from experiments_synthetic import make_inputs, only, planted
from partial_cuts_synthetic import tiny_inputs

N = 200
Floats = NDArray[np.floating]


@pytest.fixture(scope="module")
def inputs() -> ExperimentInputs:
    """The pathways of `planted`, with a signal so strong that all are found."""
    return make_inputs(n=N, truth_signal=6.0, resamples=100)


@pytest.fixture(scope="module")
def small(tiny_llama: LanguageModel) -> ExperimentInputs:
    """A tiny model with random probes, read at the second position and the third site."""
    return tiny_inputs(tiny_llama)


def shares(value: float = 0.5) -> Floats:
    return np.full(N, value)


def test_both_losses_and_the_share_follow_the_definition(
    small: ExperimentInputs, tiny_llama: LanguageModel
) -> None:
    """The probe's own cross-entropy goes back through the model here; the experiment multiplies with P(wrong)."""
    items = np.arange(0, small.n, 3)
    flow, measured_share = measure_flow(small, items)
    wrong = wrong_probability(small)
    position, site = small.headline
    sequences = [
        small.used_items[item].sequence(
            small.setting.positions[position : position + 1]
        )
        for item in items
    ]

    def losses(batch: list[int], states: Tensor, entropy: bool) -> Tensor:
        found = []
        for row, index in enumerate(batch):
            item = items[index]
            fold, layer = small.measured.folds[item], small.reference[item]
            probe = (small.probes.weight[fold, layer], small.probes.bias[fold, layer])
            z = states[row, 0, site, layer] @ probe[0] + probe[1]
            assert float(z.detach()) == pytest.approx(
                float(small.measured.before[layer, item]), abs=1e-3
            )
            label = torch.tensor(float(small.measured.labels[item]))
            found.append(
                torch.nn.functional.binary_cross_entropy_with_logits(z, label)
                if entropy
                else z
            )
        return torch.stack(found)

    keys = {
        "question": [small.used_items[item].located.question_tokens for item in items]
    }
    tops = [int(layer) for layer in small.reference[items]]
    batches = [[index] for index in range(len(items))]
    prefix = compute_prefix(tiny_llama, small.prefix)
    for entropy, measured in ((True, flow * wrong), (False, flow)):
        wanted = saliency(
            tiny_llama,
            sequences,
            prefix,
            keys,
            partial(losses, entropy=entropy),
            tops,
            batches,
        )
        question, everything = (
            wanted.of(name).sum(axis=(1, 2)) for name in ("question", ALL)
        )
        assert measured[items] == pytest.approx(question, rel=1e-3)
        assert measured_share[items] == pytest.approx(
            question / everything, rel=1e-3
        ), "the share is that of both"
    assert np.isnan(flow[np.setdiff1d(np.arange(small.n), items)]).all()
    clean = small.measured.before[small.reference, np.arange(small.n)]
    assert wrong == pytest.approx(
        1 - true_label_probability(clean, small.measured.labels), abs=1e-5
    )


def test_a_planted_difference_is_found(inputs: ExperimentInputs) -> None:
    _, asks = planted(N)
    log10 = np.where(asks, 1.0, -1.0) + np.random.default_rng(0).normal(0, 0.4, N)
    found = analyse(inputs, 10.0**log10, np.where(asks, 0.6, 0.2))
    assert only(found, "auc", variant=LOG_ODDS).estimate.value > 0.95
    assert only(found, "auc_within_truth", variant=LOG_ODDS).estimate.ci_low > 0.9
    assert only(found, "auc_share_within_truth").estimate.value > 0.95
    assert found.missing == ()


def test_where_nothing_is_planted_nothing_is_found(inputs: ExperimentInputs) -> None:
    found = analyse(
        inputs, 10.0 ** np.random.default_rng(1).normal(0, 0.4, N), shares()
    )
    area = only(found, "auc", variant=LOG_ODDS)
    assert area.estimate.ci_low < 0.5 < area.estimate.ci_high
    assert area.p_value > 0.05
    assert "auc_share: the score is the same for all items" in found.missing


def test_items_of_different_folds_are_not_compared(inputs: ExperimentInputs) -> None:
    folds = inputs.measured.folds
    log10 = np.where(folds % 2 == 0, -2.0, 2.0) + np.random.default_rng(3).normal(
        0, 0.4, N
    )
    found = analyse(inputs, 10.0**log10, shares())
    area = only(found, "auc", variant=LOG_ODDS).estimate
    assert area.ci_low < 0.5 < area.ci_high


def test_items_without_any_flow_have_the_lowest_rank(inputs: ExperimentInputs) -> None:
    flow = 10.0 ** np.random.default_rng(4).normal(0, 0.4, N)
    flow[::20] = 0.0
    found = analyse(inputs, flow, shares())
    ranked = only(found, "auc", variant=LOG_ODDS)
    assert ranked.estimate.n == inputs.calls.correct.sum(), (
        "zero is the lowest rank, not an unknown one"
    )
