"""Where the cut matters: a planted layer is found, no effect is none, and what cannot be said is named."""

from dataclasses import replace

import numpy as np
import pytest

from anchorscope.catalogue import KNOCKOUT
from anchorscope.evidence.measured import GROUPS
from anchorscope.experiments.experiment import ExperimentInputs, Found, Statistic
from anchorscope.experiments.layers import EXPERIMENT, SINGLE, analyse
from anchorscope.experiments.partial_cuts import Outcome, PartialCut
from anchorscope.models.language_model import LanguageModel
from experiments_synthetic import make_inputs
from partial_cuts_synthetic import tiny_inputs

PLANTED = 2
"""The only layer whose cut does anything."""


def outcomes_of(inputs: ExperimentInputs, planted: int | None, noise: float = 0.3) -> list[Outcome]:
    """Single layers, and windows of two: the knockout's own log-odds where the planted layer is cut, else noise."""
    rng = np.random.default_rng(0)
    before, after = inputs.measured.before[0], inputs.measured.after[KNOCKOUT][0]
    ways = [PartialCut(SINGLE, range(layer, layer + 1)) for layer in range(len(before))]
    ways += [PartialCut("window 2", range(layer, layer + 2)) for layer in range(len(before) - 1)]
    found = []
    for way in ways:
        logits = before + rng.normal(0, noise, before.shape)
        if planted is not None and planted in way.layers:
            logits = after.copy()
        logits[: way.layers.start] = before[: way.layers.start]
        found.append(Outcome(way, np.arange(inputs.n), logits))
    return found


@pytest.fixture(scope="module")
def inputs() -> ExperimentInputs:
    made = make_inputs(n=200, after_cut=-0.8)
    return replace(made, measured=replace(made.measured, reference=np.full_like(made.measured.reference, 4)))


@pytest.fixture(scope="module")
def planted(inputs: ExperimentInputs) -> Found:
    return analyse(inputs, outcomes_of(inputs, PLANTED, noise=0.05))


def chosen(found: Found, quantity: str, **wanted: object) -> list[Statistic]:
    return [
        row
        for row in found.statistics
        if row.quantity == quantity and all(getattr(row, name) == value for name, value in wanted.items())
    ]


@pytest.mark.parametrize("assignment", ["plain", "corrected"])
def test_the_planted_layer_is_found(planted: Found, assignment: str) -> None:
    (row,) = chosen(planted, "deepest_layer", assignment=assignment, group=GROUPS[0])
    assert (row.estimate.value, row.estimate.ci_low, row.estimate.ci_high) == (PLANTED, PLANTED, PLANTED)
    (share,) = chosen(planted, "share_of_cumulative", assignment=assignment, group=GROUPS[0])
    assert share.estimate.value == pytest.approx(1, abs=0.1)
    assert share.estimate.ci_low < 1 < share.estimate.ci_high
    wanted = {"assignment": assignment, "variant": SINGLE, "truth": "all"}
    for row in chosen(planted, "delta_p_reference_difference", **wanted):
        if row.layer == PLANTED:
            assert row.estimate.ci_high < -20
            assert row.q_value is not None
            assert row.q_value < 1e-6
            assert row.effect_size is not None
            assert row.effect_size < -1
        else:
            assert abs(row.estimate.value) < 5


def test_the_heat_map_has_a_cell_for_every_probe_that_can_see_the_cut(planted: Found) -> None:
    for variant, n_ways in ((SINGLE, 6), ("window 2", 5)):
        cells = chosen(planted, "delta_p", variant=variant, assignment="plain", group=GROUPS[0])
        assert [(row.layer, row.probe_layer) for row in cells] == [
            (layer, probe) for layer in range(n_ways) for probe in range(layer, 6)
        ]
        for row in cells:
            assert row.q_value is not None
            reaches = row.layer <= PLANTED < row.layer + (1 if variant == SINGLE else 2)
            if reaches:
                assert row.q_value < 0.01
                assert row.estimate.ci_high < 0
    assert all(row.estimate.n == cells[0].estimate.n for row in cells)


def test_no_effect_gives_hardly_any_discovery(inputs: ExperimentInputs) -> None:
    found = analyse(inputs, outcomes_of(inputs, None))
    cells = chosen(found, "delta_p", assignment="plain")
    covered = np.mean([row.estimate.ci_low <= 0 <= row.estimate.ci_high for row in cells])
    assert covered > 0.8
    shares = chosen(found, "share_of_cumulative", assignment="plain", group=GROUPS[0])
    assert all(row.estimate.ci_low < 0.1 for row in shares)


def test_a_knockout_without_effect_has_no_share() -> None:
    inputs = make_inputs(n=120, after_cut=1.0)
    found = analyse(inputs, outcomes_of(inputs, PLANTED))
    assert not chosen(found, "share_of_cumulative", assignment="plain", group=GROUPS[1])
    assert any("share_of_cumulative of A-Anchored items under the plain rule" in line for line in found.missing)
    assert any("items are Q-Anchored under the plain rule, 10 needed" in line for line in found.missing)


def test_a_layer_that_could_not_be_cut_leaves_no_share(inputs: ExperimentInputs) -> None:
    found = analyse(inputs, outcomes_of(inputs, PLANTED)[1:])
    assert not chosen(found, "share_of_cumulative")
    assert not found.values
    assert "share_of_cumulative: not every single layer could be cut in every item" in found.missing


def test_each_items_sum_is_that_of_its_single_layers(inputs: ExperimentInputs, planted: Found) -> None:
    (values,) = planted.values
    assert (values.quantity, values.variant) == ("delta_p_reference_sum", SINGLE)
    assert values.items.tolist() == list(range(inputs.n))
    plain = inputs.calls["plain"]
    means = {
        row.group: row.estimate.value
        for row in chosen(planted, "delta_p_reference", variant=SINGLE, truth="all", assignment="plain", layer=PLANTED)
    }
    for group in GROUPS:
        assert values.values[plain.members(group)].mean() == pytest.approx(means[group], abs=5)


def test_the_whole_experiment_on_a_model(tiny_llama: LanguageModel) -> None:
    inputs = tiny_inputs(tiny_llama, most_items=120)
    found = EXPERIMENT.run(inputs)
    singles = chosen(found, "delta_p", variant=SINGLE, assignment="plain", group=GROUPS[0])
    assert {(row.layer, row.probe_layer) for row in singles} == {(a, b) for a in range(4) for b in range(a, 4)}
    assert {row.layer for row in chosen(found, "delta_p_reference", variant="window 2")} == {0, 1, 2}
    assert all(np.isfinite(row.estimate.value) for row in found.statistics)
    assert [row.estimate for row in found.statistics] == [row.estimate for row in EXPERIMENT.run(inputs).statistics]
