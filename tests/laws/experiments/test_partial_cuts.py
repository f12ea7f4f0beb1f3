"""ΔP of cuts in some layers: the same numbers as the chart where the cut is the same, and nothing below a cut."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from anchorscope.catalogue import KNOCKOUT
from anchorscope.evidence.delta_p import TRUTHS, cell_sums, correct_shift, curve_samples, reference_samples
from anchorscope.evidence.measured import GROUPS, true_label_probability
from anchorscope.experiments.experiment import ExperimentInputs
from anchorscope.experiments.partial_cuts import (
    Effects,
    Outcome,
    PartialCut,
    cumulative,
    effects_of,
    reference_statistics,
)
from anchorscope.experiments.statistics import FEW
from experiments_synthetic import make_inputs


@pytest.fixture(scope="module")
def inputs() -> ExperimentInputs:
    """Its folds have three different reference layers: 1, 3 and 4."""
    made = make_inputs(shift=0.5)
    return replace(made, measured=replace(made.measured, reference=np.tile([1, 3, 4, 4], (3, 1))))


def one_cut(inputs: ExperimentInputs, first: int, seed: int = 0) -> Outcome:
    """The knockout's log-odds from a layer on, for some of the items, with noise."""
    rng = np.random.default_rng(seed)
    items = np.sort(rng.choice(inputs.n, size=inputs.n - 30, replace=False))
    logits = inputs.measured.before[0][:, items].copy()
    logits[first:] = inputs.measured.after[KNOCKOUT][0][first:, items] + rng.normal(0, 0.3, logits[first:].shape)
    return Outcome(PartialCut("single", range(first, first + 1)), items, logits)


def test_the_knockout_as_an_outcome_gives_the_charts_own_numbers(inputs: ExperimentInputs) -> None:
    corrected = correct_shift(inputs.measured, inputs.draws)
    sums = cell_sums(corrected, KNOCKOUT)
    (effects,) = effects_of(inputs, "corrected", [cumulative(inputs, np.arange(inputs.n))])
    for group in GROUPS:
        torch.testing.assert_close(effects.curve(group), curve_samples(sums, group, "all"))
        wanted = reference_samples(sums, inputs.measured.reference[0], group)
        torch.testing.assert_close(effects.reference(group), wanted)


@pytest.mark.parametrize("assignment", ["plain", "corrected"])
@pytest.mark.parametrize("first", [0, 1, 2, 4, 5])
def test_the_first_draw_is_the_mean_over_the_members_that_see_the_cut(
    inputs: ExperimentInputs, assignment: str, first: int
) -> None:
    (effects,) = effects_of(inputs, assignment, [one_cut(inputs, first)])
    assert (np.isnan(effects.at_reference) == (inputs.reference[effects.items] < first)).all()
    for group in GROUPS:
        inside = effects.members(group)
        wanted = effects.values[inside].mean(axis=0)
        assert effects.curve(group)[:, 0].numpy() == pytest.approx(wanted, abs=1e-3)
        for truth in TRUTHS:
            sees = effects.reached(group, truth)
            assert (sees <= effects.members(group, truth)).all()
            total, number = (float(part[0]) for part in effects.reference_sums(group, truth))
            assert number == sees.sum()
            assert total == pytest.approx(effects.at_reference[sees].sum(), abs=1e-2)
            mean = float(effects.reference(group, truth)[0])
            assert (
                np.isnan(mean) if not sees.any() else mean == pytest.approx(effects.at_reference[sees].mean(), abs=1e-3)
            )


def test_plain_values_are_changes_of_the_true_labels_probability(inputs: ExperimentInputs) -> None:
    outcome = one_cut(inputs, 2)
    effects = Effects(inputs, "plain", outcome)
    labels = inputs.measured.labels[outcome.items]
    for item, layer in [(0, 2), (17, 3), (101, 5)]:
        before = inputs.measured.before[0, layer, outcome.items[item]]
        wanted = 100 * (
            true_label_probability(outcome.logits[layer, item], labels[item])
            - true_label_probability(before, labels[item])
        )
        assert effects.values[item, layer - 2] == pytest.approx(wanted)


def test_a_shift_of_all_items_alike_is_no_effect_under_the_corrected_rule(inputs: ExperimentInputs) -> None:
    moved = Outcome(PartialCut("single", range(2, 3)), np.arange(inputs.n), inputs.measured.before[0] - 1.5)
    (effects,) = effects_of(inputs, "corrected", [moved])
    assert np.abs(effects.values).max() < 1e-3
    assert float(effects.curve(GROUPS[0]).abs().max()) < 1e-2
    (plain,) = effects_of(inputs, "plain", [moved])
    assert np.abs(plain.values).max() > 10


def test_statistics_have_a_row_per_group_truth_and_difference(inputs: ExperimentInputs) -> None:
    family = effects_of(inputs, "plain", [one_cut(inputs, first) for first in (0, 2, 5)])
    rows, missing = reference_statistics(family)
    assert {row.layer for row in rows} == {0, 2}  # no probe that assigns can see layer 5
    means = [row for row in rows if row.quantity == "delta_p_reference"]
    differences = [row for row in rows if row.quantity == "delta_p_reference_difference"]
    assert {(row.group, row.truth) for row in means} == {(group, truth) for group in GROUPS for truth in TRUTHS}
    assert {(row.group, row.truth) for row in differences} == {(None, truth) for truth in TRUTHS}
    assert not missing
    for row in differences:
        of_groups = [one for one in means if (one.layer, one.truth) == (row.layer, row.truth)]
        (first,), (second,) = ([one for one in of_groups if one.group == group] for group in GROUPS)
        assert row.estimate.value == pytest.approx(first.estimate.value - second.estimate.value)
        assert row.estimate.n == first.estimate.n + second.estimate.n
    for row in rows:
        assert row.estimate.ci_low <= row.estimate.value <= row.estimate.ci_high
        assert row.p_value is not None
        assert row.p_value <= row.q_value <= 1
        assert row.effect_size is not None
        assert np.sign(row.effect_size) == np.sign(row.estimate.value)


def test_too_small_a_group_is_named_and_has_no_row() -> None:
    inputs = make_inputs(asks=np.arange(160) < 6)
    found = [int(calls.members(GROUPS[0]).sum()) for calls in inputs.calls.values()]
    assert found[0] < FEW  # else this test asks nothing
    rows, missing = reference_statistics(effects_of(inputs, "plain", [one_cut(inputs, 0)]))
    assert {row.group for row in rows} == {GROUPS[1]}
    n = int(inputs.calls["plain"].members(GROUPS[0])[one_cut(inputs, 0).items].sum())
    assert f"only {n} items are Q-Anchored under the plain rule, 10 needed" in missing


def test_a_layer_that_few_items_can_see_is_named(inputs: ExperimentInputs) -> None:
    folds = inputs.measured.folds.copy()
    late = np.flatnonzero(folds == 3)[:-14]
    folds[late] = 0  # only 14 items, of both groups, are left in the fold whose reference layer is highest
    place = replace(inputs.measured, folds=folds, reference=np.tile([1, 1, 1, 4], (3, 1)))
    rows, missing = reference_statistics(effects_of(replace(inputs, measured=place), "plain", [one_cut(inputs, 3)]))
    assert not rows
    (line,) = missing
    assert line.startswith(
        "delta_p_reference of cuts so high that the reference layer of fewer than 10 items is not below"
    )
    assert "under the plain rule (single): Q-Anchored from layer 3 on, true Q-Anchored from layer 3 on" in line
