"""ΔP of cuts in some layers: the same numbers as the chart where the cut is the same, and nothing below a cut."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from anchorscope.catalogue import KNOCKOUT
from anchorscope.evidence.delta_p import cell_sums, reference_samples, shifts
from anchorscope.evidence.draws import Draws
from anchorscope.evidence.measured import GROUPS, true_label_probability
from anchorscope.experiments.experiment import ExperimentInputs
from anchorscope.experiments.partial_cuts import CutEffects, PartialCut, Scored
from experiments_synthetic import make_inputs


@pytest.fixture(scope="module")
def inputs() -> ExperimentInputs:
    """Its folds have three different reference layers: 1, 3 and 4."""
    made = make_inputs(shift=0.5)
    return replace(
        made, measured=replace(made.measured, reference=np.tile([1, 3, 4, 4], (3, 1)))
    )


def cut_from(inputs: ExperimentInputs, first: int) -> CutEffects:
    """The knockout's log-odds from a layer on, for some of the items, with noise."""
    rng = np.random.default_rng(0)
    items = np.sort(rng.choice(inputs.n, size=inputs.n - 30, replace=False))
    logits = inputs.measured.before[0][:, items].copy()
    logits[first:] = inputs.measured.after[KNOCKOUT][0][first:, items] + rng.normal(
        0, 0.3, logits[first:].shape
    )
    return CutEffects(
        inputs, PartialCut("single", range(first, first + 1)), Scored(items, logits)
    )


def test_the_knockout_in_all_layers_gives_the_charts_own_numbers(
    inputs: ExperimentInputs,
) -> None:
    sums = cell_sums(inputs.corrected, KNOCKOUT)
    whole = Scored(np.arange(inputs.n), inputs.measured.after[KNOCKOUT][0])
    effects = CutEffects(
        inputs, PartialCut("cumulative", range(inputs.measured.n_layers)), whole
    )
    for group in GROUPS:
        wanted = reference_samples(sums, inputs.measured.reference[0], group)
        torch.testing.assert_close(effects.reference(group), wanted)


@pytest.mark.parametrize("first", [0, 2, 4, 5])
def test_the_first_draw_is_the_mean_over_the_members_that_see_the_cut(
    inputs: ExperimentInputs, first: int
) -> None:
    effects = cut_from(inputs, first)
    items, measured = effects.items, inputs.measured
    layers, folds, labels = (
        inputs.reference[items],
        measured.folds[items],
        measured.labels[items],
    )
    before, after = measured.before[0][:, items], effects.scored.logits
    sample = Draws(torch.ones((len(items), 1)))
    moved = shifts(before, after, folds, 4, sample)[..., 0].numpy()
    corrected = (after - moved[:, folds])[layers, np.arange(len(items))]
    clean = before[layers, np.arange(len(items))]
    change = 100 * (
        true_label_probability(corrected, labels)
        - true_label_probability(clean, labels)
    )
    for group in GROUPS:
        seen = effects.reached(group)
        assert (seen == (effects.members(group) & (layers >= first))).all()
        total, number = (float(part[0]) for part in effects.reference_sums[group])
        assert number == seen.sum()
        assert total == pytest.approx(change[seen].sum(), abs=1e-2)


def test_a_shift_of_all_items_alike_is_no_effect(inputs: ExperimentInputs) -> None:
    moved = Scored(np.arange(inputs.n), inputs.measured.before[0] - 1.5)
    effects = CutEffects(inputs, PartialCut("single", range(2, 3)), moved)
    assert all(float(effects.reference(group).abs().max()) < 1e-2 for group in GROUPS)
    assert np.abs(moved.at_reference(inputs)).max() > 10
