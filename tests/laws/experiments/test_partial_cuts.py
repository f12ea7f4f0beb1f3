"""ΔP of cuts in some layers: the same numbers as the chart where the cut is the same, and nothing below a cut."""

from dataclasses import replace

import numpy as np
import pytest

from anchorscope.catalogue import KNOCKOUT
from anchorscope.evidence.delta_p import GROUPS, true_label_probability
from anchorscope.evidence.tables import summarise
from anchorscope.experiments.experiment import ExperimentInputs
from anchorscope.experiments.partial_cuts import CutEffects, PartialCut, Scored
from anchorscope.experiments.statistics import estimate_of
from experiments_synthetic import make_inputs


@pytest.fixture(scope="module")
def inputs() -> ExperimentInputs:
    """Its folds have three different reference layers: 1, 3 and 4."""
    made = make_inputs(shift=0.5)
    return replace(
        made, measured=replace(made.measured, reference=np.array([1, 3, 4, 4]))
    )


def cut_from(inputs: ExperimentInputs, first: int) -> CutEffects:
    """The knockout's log-odds from a layer on, for some of the items, with noise."""
    rng = np.random.default_rng(0)
    items = np.sort(rng.choice(inputs.n, size=inputs.n - 30, replace=False))
    logits = inputs.measured.before[:, items].copy()
    logits[first:] = inputs.measured.after[KNOCKOUT][first:, items] + rng.normal(
        0, 0.3, logits[first:].shape
    )
    return CutEffects(
        inputs, PartialCut("single", range(first, first + 1)), Scored(items, logits)
    )


def test_the_knockout_in_all_layers_gives_the_charts_own_numbers(
    inputs: ExperimentInputs,
) -> None:
    whole = Scored(np.arange(inputs.n), inputs.measured.after[KNOCKOUT])
    effects = CutEffects(
        inputs, PartialCut("cumulative", range(inputs.measured.n_layers)), whole
    )
    rows = {
        row.group: row.estimate
        for row in summarise(inputs.measured, inputs.draws)
        if (row.quantity, row.intervention) == ("delta_p_reference", KNOCKOUT)
    }
    for group in GROUPS:
        found = estimate_of(effects.reference(group), rows[group].n)
        assert vars(found) == pytest.approx(vars(rows[group]))


@pytest.mark.parametrize("first", [0, 2, 4, 5])
def test_the_first_draw_is_the_mean_over_the_members_that_see_the_cut(
    inputs: ExperimentInputs, first: int
) -> None:
    effects = cut_from(inputs, first)
    items, measured = effects.items, inputs.measured
    layers = inputs.reference[items]
    labels = measured.labels[items]
    clean = measured.before[layers, items]
    cut = effects.scored.logits[layers, np.arange(len(items))]
    change = 100 * (
        true_label_probability(cut, labels) - true_label_probability(clean, labels)
    )
    for group in GROUPS:
        seen = effects.reached(group)
        assert (seen == (effects.members(group) & (layers >= first))).all()
        total, number = (float(part[0]) for part in effects.reference_sums[group])
        assert number == seen.sum()
        assert total == pytest.approx(change[seen].sum())
