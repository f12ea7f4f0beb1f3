"""Single heads: the one that reads the question is found among those that do not."""

from dataclasses import replace

import numpy as np
import pytest

from anchorscope.catalogue import KNOCKOUT
from anchorscope.evidence.measured import GROUPS
from anchorscope.experiments.experiment import ExperimentInputs, Found, Statistic
from anchorscope.experiments.heads import ALL_HEADS, EXPERIMENT, analyse, head_knockouts
from anchorscope.experiments.partial_cuts import Outcome, PartialCut, run_partial_cuts
from anchorscope.models.language_model import LanguageModel
from experiments_synthetic import make_inputs
from partial_cuts_synthetic import tiny_inputs

READS = 1
"""The head that carries the question."""


def rows_of(found: Found, quantity: str, **wanted: object) -> dict[str | None, Statistic]:
    return {
        row.variant: row
        for row in found.statistics
        if row.quantity == quantity and all(getattr(row, name) == value for name, value in wanted.items())
    }


@pytest.fixture(scope="module")
def inputs() -> ExperimentInputs:
    made = make_inputs(n=200)
    return replace(made, measured=replace(made.measured, reference=np.tile([4, 4, 3, 2], (3, 1))))


def outcomes_of(inputs: ExperimentInputs, planted: int | None) -> list[Outcome]:
    rng = np.random.default_rng(0)
    before, after = inputs.measured.before[0], inputs.measured.after[KNOCKOUT][0]
    found = []
    for way in (way for family in head_knockouts(3, 4, 3) for way in family):
        logits = before + rng.normal(0, 0.3, before.shape)
        if planted is not None and (way.heads is None or planted in way.heads):
            logits = after.copy()
        found.append(Outcome(way, np.arange(inputs.n), logits))
    return found


def test_every_head_is_cut_in_one_layer_and_in_a_window_that_ends_there() -> None:
    single, window = head_knockouts(2, 4, 3)
    assert single == [
        PartialCut("head 0", range(4, 5), (0,)),
        PartialCut("head 1", range(4, 5), (1,)),
        PartialCut(ALL_HEADS, range(4, 5)),
    ]
    assert [way.variant for way in window] == ["head 0, layers 2–4", "head 1, layers 2–4", "all heads, layers 2–4"]
    assert {way.layers for way in window} == {range(2, 5)}
    (alone,) = head_knockouts(2, 0, 3)  # there is nothing before the first layer
    assert {way.layers for way in alone} == {range(1)}


def test_the_layer_is_that_of_most_folds(inputs: ExperimentInputs) -> None:
    assert inputs.most_frequent_reference == 4


@pytest.mark.parametrize("assignment", ["plain", "corrected"])
def test_the_head_that_reads_the_question_is_found(inputs: ExperimentInputs, assignment: str) -> None:
    found = analyse(inputs, outcomes_of(inputs, READS))
    rows = rows_of(found, "delta_p_reference_difference", assignment=assignment, truth="all")
    assert set(rows) == {way.variant for family in head_knockouts(3, 4, 3) for way in family}
    for variant, row in rows.items():
        assert row.q_value is not None
        if variant is not None and (variant.startswith((f"head {READS}", ALL_HEADS))):
            assert row.q_value < 1e-6
            assert row.estimate.ci_high < -20
        else:
            assert abs(row.estimate.value) < 6
    in_layer = rows_of(found, "delta_p_reference", assignment=assignment, truth="all", layer=4)
    in_window = rows_of(found, "delta_p_reference", assignment=assignment, truth="all", layer=2)
    assert len(in_layer) == len(in_window) == 4
    assert in_layer["head 0"].estimate.n < in_window["head 0, layers 2–4"].estimate.n  # more items can see it


def test_no_head_is_found_where_none_reads(inputs: ExperimentInputs) -> None:
    found = analyse(inputs, outcomes_of(inputs, None))
    rows = [row for row in found.statistics if row.truth == "all" and row.assignment == "plain"]
    assert np.mean([row.estimate.ci_low <= 0 <= row.estimate.ci_high for row in rows]) > 0.7
    assert min(row.q_value for row in rows if row.q_value is not None) > 1e-3


def test_the_whole_experiment_on_a_model(tiny_llama: LanguageModel) -> None:
    inputs = tiny_inputs(tiny_llama)
    found = EXPERIMENT.run(inputs)
    first = rows_of(found, "delta_p_reference", assignment="plain", truth="all", group=GROUPS[0])
    assert set(first) == {way.variant for family in head_knockouts(4, 3, 2) for way in family}
    # All heads of a layer together are that layer.
    ((layer,), _) = run_partial_cuts(inputs, [PartialCut("single", range(3, 4))], "layers")
    ((heads,), _) = run_partial_cuts(inputs, [PartialCut("heads", range(3, 4), (0, 1, 2, 3))], "heads")
    ((one,), _) = run_partial_cuts(inputs, [PartialCut("head", range(3, 4), (2,))], "heads")
    assert heads.logits == pytest.approx(layer.logits, abs=1e-4)
    assert np.abs(one.logits - layer.logits)[3].max() > 1e-2
