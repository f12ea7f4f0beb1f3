"""Saliency: what is measured is what its definition says, and what is said of it finds what was planted and no more."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from anchorscope.engine.forward import compute_prefix
from anchorscope.engine.saliency import ALL, saliency
from anchorscope.evidence.measured import true_label_probability
from anchorscope.evidence.pathways import GROUPS
from anchorscope.experiments.experiment import ExperimentInputs, Found, Statistic
from anchorscope.experiments.saliency import EXPERIMENT, LOG_ODDS, LOSS, Flow, analyse, measure_flow, within_folds
from anchorscope.models.language_model import LanguageModel
from experiments_synthetic import make_inputs, planted
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


def flow(log10: Floats, log_wrong: Floats | float = -1.0, share: Floats | float = 0.5) -> Flow:
    return Flow(10.0**log10, np.broadcast_to(share, log10.shape), np.broadcast_to(log_wrong, log10.shape))


def rows(found: Found, quantity: str, **about: Any) -> list[Statistic]:
    return [
        row
        for row in found.statistics
        if row.quantity == quantity and all(getattr(row, name) == value for name, value in about.items())
    ]


def only(found: Found, quantity: str, **about: Any) -> Statistic:
    (row,) = rows(found, quantity, **about)
    return row


# What is measured.


def test_both_losses_and_the_share_are_what_the_definition_says(
    small: ExperimentInputs, tiny_llama: LanguageModel
) -> None:
    """The probe's own cross-entropy goes back through the model here; the experiment multiplies with P(wrong)."""
    items = np.arange(0, small.n, 3)
    measured = measure_flow(small, items)
    position, site = small.headline
    full = small.measured.probe("full")
    sequences = [small.used_items[item].sequence(small.setting.positions[position : position + 1]) for item in items]

    def losses(batch: list[int], states: Tensor) -> Tensor:
        found = []
        for row, index in enumerate(batch):
            item = items[index]
            fold, layer = small.measured.folds[item], small.reference[item]
            probe = small.probes.weight[full, fold, layer], small.probes.bias[full, fold, layer]
            z = states[row, 0, site, layer] @ probe[0] + probe[1]
            assert float(z.detach()) == pytest.approx(float(small.measured.before[full, layer, item]), abs=1e-3)
            label = torch.tensor(float(small.measured.labels[item]))
            found.append(torch.stack([torch.nn.functional.binary_cross_entropy_with_logits(z, label), z]))
        return torch.stack(found)

    keys = {"question": [small.used_items[item].located.question_tokens for item in items]}
    tops = [int(layer) for layer in small.reference[items]]
    batches = [[index] for index in range(len(items))]
    wanted = saliency(tiny_llama, sequences, compute_prefix(tiny_llama, small.prefix), keys, losses, tops, batches)
    sums = {name: wanted.of(name).sum(axis=(2, 3)) for name in ("question", ALL)}
    assert measured.loss[items] == pytest.approx(sums["question"][:, 0], rel=1e-3)
    assert measured.log_odds[items] == pytest.approx(sums["question"][:, 1], rel=1e-3)
    for loss in (0, 1):
        share = sums["question"][:, loss] / sums[ALL][:, loss]
        assert measured.share[items] == pytest.approx(share, rel=1e-3), "the share is the same for both losses"
    others = np.setdiff1d(np.arange(small.n), items)
    assert np.isnan(measured.log_odds[others]).all()
    assert np.isnan(measured.loss[others]).all()
    clean = small.measured.before[full, small.reference, np.arange(small.n)]
    assert np.exp(measured.log_wrong) == pytest.approx(
        1 - true_label_probability(clean, small.measured.labels), abs=1e-5
    )


def test_a_run_states_everything_with_interval_and_method_and_is_the_same_again(small: ExperimentInputs) -> None:
    small = replace(small, setting=replace(small.setting, most_items=40))
    found = EXPERIMENT.run(small)
    assert {(one.quantity, one.variant) for one in found.values} == {
        ("question_to_answer", LOSS),
        ("question_to_answer", LOG_ODDS),
        ("share", LOG_ODDS),
    }
    for values in found.values:
        assert values.items.tolist() == small.some_items().tolist()
        assert (values.values > 0).all()
    for row in found.statistics:
        estimate = row.estimate
        assert estimate.ci_low <= estimate.value <= estimate.ci_high, row
        assert 0 < estimate.n <= 40
        assert estimate.method
        assert row.p_value is None or 0 <= row.p_value <= 1
    assert {"log10_question_to_answer", "share", "dip", "bimodality_coefficient_within_folds"} <= {
        row.quantity for row in found.statistics
    }
    assert EXPERIMENT.run(small).statistics == found.statistics


def test_too_few_items_are_told(small: ExperimentInputs) -> None:
    found = EXPERIMENT.run(replace(small, setting=replace(small.setting, most_items=4)))
    assert found == Found(missing=("saliency: only 4 items, 10 needed",))


# What is said of it.


def test_a_planted_difference_is_found_and_makes_two_modes(inputs: ExperimentInputs) -> None:
    _, asks = planted(N)
    log10 = np.where(asks, 1.0, -1.0) + np.random.default_rng(0).normal(0, 0.4, N)
    found = analyse(inputs, flow(log10, share=np.where(asks, 0.6, 0.2)))
    for variant in (LOSS, LOG_ODDS):
        for truth in ("all", "true", "false"):
            difference = only(
                found, "log10_question_to_answer_difference", variant=variant, assignment="plain", truth=truth
            )
            assert difference.estimate.value == pytest.approx(2, abs=0.2)
            assert difference.estimate.ci_low > 1.5
            assert difference.effect_size > 3
            assert only(found, "auc", variant=variant, assignment="corrected", truth=truth).estimate.value > 0.95
            assert only(found, "dip", variant=variant, group=None, truth=truth).p_value < 0.01
        assert only(found, "auc_within_truth", variant=variant, assignment="plain").estimate.ci_low > 0.9
        whole = only(found, "bimodality_coefficient", variant=variant, group=None, truth="all")
        assert whole.estimate.ci_low > 5 / 9  # the coefficient of a uniform distribution
        for group in GROUPS:
            assert only(found, "dip", variant=variant, assignment="plain", group=group).p_value > 0.05
    assert only(found, "share_difference", assignment="plain", truth="all").estimate.value == pytest.approx(
        0.4, abs=0.05
    )
    assert only(found, "auc_share", assignment="plain", truth="all").estimate.value > 0.95
    assert found.missing == ()


def test_where_nothing_is_planted_nothing_is_found(inputs: ExperimentInputs) -> None:
    found = analyse(inputs, flow(np.random.default_rng(1).normal(0, 0.4, N)))
    for assignment in inputs.calls:
        area = only(found, "auc", variant=LOG_ODDS, assignment=assignment, truth="all")
        assert area.estimate.ci_low < 0.5 < area.estimate.ci_high
        assert area.p_value > 0.05
        difference = only(
            found, "log10_question_to_answer_difference", variant=LOG_ODDS, assignment=assignment, truth="all"
        )
        assert difference.estimate.ci_low < 0 < difference.estimate.ci_high
    dip = only(found, "dip", variant=LOG_ODDS, group=None, truth="all")
    assert dip.p_value > 0.05
    assert dip.estimate.ci_low < dip.estimate.value < dip.estimate.ci_high
    assert only(found, "bimodality_coefficient", variant=LOG_ODDS, group=None, truth="all").estimate.ci_high < 5 / 9


def test_a_mode_near_zero_that_is_only_confidence_shows_in_the_loss_alone(inputs: ExperimentInputs) -> None:
    rng = np.random.default_rng(2)
    sure = rng.random(N) < 0.5
    log_wrong = np.log(10) * (np.where(sure, -4.0, -0.5) + rng.normal(0, 0.2, N))
    found = analyse(inputs, flow(rng.normal(0, 0.3, N), log_wrong))
    assert only(found, "dip", variant=LOSS, group=None, truth="all").p_value < 0.01
    assert only(found, "dip", variant=LOG_ODDS, group=None, truth="all").p_value > 0.05
    share = only(found, "confidence_variance_share", variant=LOSS).estimate
    assert share.ci_low > 0.9
    even = only(analyse(inputs, flow(rng.normal(0, 0.3, N))), "confidence_variance_share", variant=LOSS).estimate
    assert even.value == pytest.approx(0, abs=1e-9), "the same confidence everywhere explains nothing"


def test_modes_that_are_only_folds_vanish_within_folds(inputs: ExperimentInputs) -> None:
    folds = inputs.measured.folds
    log10 = np.where(folds % 2 == 0, -2.0, 2.0) + np.random.default_rng(3).normal(0, 0.4, N)
    found = analyse(inputs, flow(log10))
    assert only(found, "dip", variant=LOG_ODDS, group=None, truth="all").p_value < 0.01
    assert only(found, "dip_within_folds", variant=LOG_ODDS, group=None, truth="all").p_value > 0.05
    area = only(found, "auc", variant=LOG_ODDS, assignment="plain", truth="all").estimate
    assert area.ci_low < 0.5 < area.ci_high, "items of different folds are not compared"


def test_values_minus_their_folds_median_keep_what_is_not_known() -> None:
    values, folds = np.array([1.0, 3.0, np.nan, 10.0, np.nan]), np.array([0, 0, 0, 1, 2])
    found = within_folds(values, folds)
    assert found[[0, 1, 3]].tolist() == [-1.0, 1.0, 0.0]
    assert np.isnan(found[[2, 4]]).all()


def test_items_without_any_flow_are_told_and_left_out_of_logarithms(inputs: ExperimentInputs) -> None:
    log10 = np.random.default_rng(4).normal(0, 0.4, N)
    given = flow(log10)
    zeros = np.arange(N) % 20 == 0
    found = analyse(inputs, replace(given, log_odds=np.where(zeros, 0.0, given.log_odds)))
    assert "in 10 of 200 items exactly nothing flows" in found.missing[0]
    row = only(found, "log10_question_to_answer", variant=LOG_ODDS, group=None, truth="all")
    assert row.estimate.n == N - 10
    assert row.estimate.value == pytest.approx(log10[~zeros].mean())
    ranked = only(found, "auc", variant=LOG_ODDS, assignment="plain", truth="all")
    assert ranked.estimate.n == inputs.calls["plain"].correct.sum(), "zero is the lowest rank, not an unknown one"
    for line in found.statistics:
        assert np.isfinite([line.estimate.value, line.estimate.ci_low, line.estimate.ci_high]).all()


def test_no_flow_at_all_gives_reasons_and_no_row_of_zeros(inputs: ExperimentInputs) -> None:
    nothing = Flow(np.zeros(N), np.full(N, np.nan), np.full(N, -1.0))
    found = analyse(inputs, nothing)
    assert found.statistics == ()
    told = " / ".join(found.missing)
    assert "in 200 of 200 items exactly nothing flows" in told
    assert "only 0 items, 10 needed" in told
    assert "auc: the score is the same for all items" in told


def test_small_groups_have_a_reason_and_no_row() -> None:
    few = make_inputs(n=N, truth_signal=6.0, resamples=100, asks=np.arange(N) < 4)
    found = analyse(few, flow(np.random.default_rng(5).normal(size=N)))
    assert not rows(found, "auc", assignment="plain")
    assert not rows(found, "dip", assignment="plain", group="Q-Anchored")
    n = int(few.calls["plain"].members("Q-Anchored").sum())
    (told,) = [line for line in found.missing if f"only {n} items are Q-Anchored under the plain rule" in line]
    assert told.startswith("log10_question_to_answer, share, auc, auc_share, dip, bimodality_coefficient: ")


def test_areas_count_the_items_that_are_compared_with_any(inputs: ExperimentInputs) -> None:
    labels, asks = planted(N)
    asks &= labels  # every false answer hangs on itself
    one_sided = make_inputs(n=N, truth_signal=6.0, resamples=100, asks=asks)
    found = analyse(one_sided, flow(np.random.default_rng(6).normal(size=N)))
    calls = one_sided.calls["plain"]
    assert not (calls.members("Q-Anchored") & ~labels).any(), "the case that is meant"
    within = only(found, "auc_within_truth", variant=LOG_ODDS, assignment="plain")
    assert within.estimate.n == (calls.correct & labels).sum()
    assert only(found, "auc", variant=LOG_ODDS, assignment="plain", truth="all").estimate.n == calls.correct.sum()
