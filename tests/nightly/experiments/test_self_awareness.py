"""Self-awareness: a planted pathway signal is found, none is not, and the label alone does not pass for one."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from anchorscope.evidence.delta_p import Calls
from anchorscope.experiments import self_awareness
from anchorscope.experiments.experiment import ExperimentInputs, Found
from anchorscope.experiments.self_awareness import EXPERIMENT, PERMUTATIONS
from experiments_synthetic import Bools, make_inputs, only, planted, rows


def with_calls(
    inputs: ExperimentInputs, correct: Bools, asks: Bools
) -> ExperimentInputs:
    """The same inputs with pathways assigned by hand."""
    # where the cached property would put them
    inputs.__dict__["calls"] = Calls(correct, asks)
    return inputs


@pytest.fixture
def hardly_permuted(monkeypatch: pytest.MonkeyPatch) -> None:
    """For what has nothing to do with the permutations."""
    monkeypatch.setattr(self_awareness, "PERMUTATIONS", 3)


@pytest.fixture(scope="module")
def knowing() -> tuple[ExperimentInputs, Found]:
    """States that betray the pathway, most at layer 3 of 6."""
    inputs = make_inputs(pathway_signal=1.5, seed=1)
    return inputs, EXPERIMENT.run(inputs)


def test_a_planted_signal_is_found_at_every_reading(
    knowing: tuple[ExperimentInputs, Found],
) -> None:
    inputs, found = knowing
    assert not found.missing
    for suffix in ("", "_within_truth"):
        by_layer = rows(found, f"auc{suffix}")
        assert [row.probe_layer for row in by_layer] == list(range(6))
        assert by_layer[3].estimate.value > 0.85
        assert by_layer[3].estimate.ci_low > 0.75
        for name in ("auc_below", "auc_at_reference"):
            row = only(found, name + suffix)
            assert row.estimate.ci_low > 0.5
            assert row.estimate.n == inputs.calls.correct.sum()
            assert row.p_value == (
                pytest.approx(1 / (1 + PERMUTATIONS)) if suffix else None
            )


def test_p_values_of_pathways_that_mean_nothing_are_spread_out() -> None:
    p_values = []
    for seed in range(10):
        asks = np.random.default_rng(seed).random(80) < 0.5
        inputs = make_inputs(
            n=80, n_layers=2, n_folds=3, seed=seed, resamples=20, groups=np.arange(80)
        )
        found = EXPERIMENT.run(with_calls(inputs, np.ones(80, bool), asks))
        p_values += [
            row.p_value for row in rows(found, "auc_at_reference_within_truth")
        ]
    assert len(p_values) >= 10
    assert np.mean(np.array(p_values) < 0.1) < 0.3
    assert 0.25 < np.median(p_values) < 0.75


def test_pathways_that_go_with_the_label_are_told_by_the_label_and_no_more() -> None:
    labels, _ = planted(240)
    rng = np.random.default_rng(0)
    # three quarters of the true answers, a quarter of the false ones
    asks = labels ^ (rng.random(240) < 0.25)
    found = EXPERIMENT.run(
        with_calls(make_inputs(n=240, seed=5), np.ones(240, bool), asks)
    )
    assert only(found, "auc_truth_label").estimate.value == pytest.approx(
        0.75, abs=0.08
    )
    assert only(found, "auc_below").estimate.ci_low > 0.55
    within = only(found, "auc_below_within_truth")
    assert within.estimate.ci_low < 0.5 < within.estimate.ci_high
    assert within.p_value > 0.05


@pytest.mark.usefixtures("hardly_permuted")
def test_the_margin_tells_who_flips_where_everybody_loses_as_much() -> None:
    inputs = make_inputs(n=240, seed=6, asks=np.zeros(240, bool))
    place = inputs.measured
    sign = np.where(place.labels, 1.0, -1.0)
    after = {**place.after, "knockout": place.before - 1.5 * sign}
    inputs = replace(inputs, measured=replace(place, after=after))
    asks = np.abs(place.before[inputs.reference, np.arange(240)]) < 1.5
    inputs = with_calls(inputs, inputs.calls.correct, asks)
    assert (
        only(EXPERIMENT.run(inputs), "auc_truth_margin_within_truth").estimate.value
        == 1
    )


@pytest.mark.usefixtures("hardly_permuted")
def test_misclassified_items_are_neither_learned_from_nor_scored() -> None:
    inputs = make_inputs(pathway_signal=1.0, truth_signal=1.2, seed=7)
    calls = inputs.calls
    wrong = ~calls.correct
    assert wrong.sum() > 5
    states = inputs.states().clone()
    states[:, torch.as_tensor(wrong)] = 1e3
    again = with_calls(
        replace(inputs, states=lambda: states), calls.correct, calls.flipped
    )
    assert same(EXPERIMENT.run(again), EXPERIMENT.run(inputs))


def same(first: Found, second: Found) -> bool:
    values = all(
        one.items.tolist() == two.items.tolist()
        and one.values.tolist() == two.values.tolist()
        for one, two in zip(first.values, second.values, strict=True)
    )
    return (
        first.statistics == second.statistics
        and first.missing == second.missing
        and values
    )
