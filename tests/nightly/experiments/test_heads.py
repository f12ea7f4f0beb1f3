"""Single heads: the one that reads the question is found among those that do not."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from anchorscope.catalogue import KNOCKOUT
from anchorscope.evidence.delta_p import GROUPS
from anchorscope.experiments import heads
from anchorscope.experiments.experiment import ExperimentInputs, Found
from anchorscope.experiments.heads import ALL_HEADS, EXPERIMENT
from anchorscope.experiments.partial_cuts import CutEffects, PartialCut, Scored
from experiments_synthetic import make_inputs, rows

N_HEADS, LAYER = 3, 4


@pytest.fixture(scope="module")
def inputs() -> ExperimentInputs:
    made = make_inputs(n=200)
    measured = replace(made.measured, reference=np.array([LAYER, LAYER, 3, 2]))
    return replace(
        made, measured=measured, planner=replace(made.planner, n_heads=N_HEADS)
    )


def run(inputs: ExperimentInputs, reads: int | None) -> Found:
    """The experiment on a model one of whose heads carries the question."""
    rng = np.random.default_rng(0)
    before, after = inputs.measured.before, inputs.measured.after[KNOCKOUT]

    def run_cuts(
        _: ExperimentInputs, cuts: Sequence[PartialCut], title: str
    ) -> tuple[list[CutEffects], list[str]]:
        assert {cut.layers for cut in cuts} == {range(LAYER, LAYER + 1)}, (
            "the layer of most folds"
        )
        carried = [
            reads is not None and (cut.heads is None or reads in cut.heads)
            for cut in cuts
        ]
        logits = [
            after if gone else before + rng.normal(0, 0.3, before.shape)
            for gone in carried
        ]
        everyone = np.arange(inputs.n)
        return [
            CutEffects(inputs, cut, Scored(everyone, part))
            for cut, part in zip(cuts, logits, strict=True)
        ], []

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(heads, "run_partial_cuts", run_cuts)
        return EXPERIMENT.run(inputs)


def test_the_head_that_reads_the_question_is_found(inputs: ExperimentInputs) -> None:
    found = {
        row.variant: row
        for row in rows(run(inputs, 1), "delta_p_reference", group=GROUPS[0])
    }
    assert list(found) == ["head 0", "head 1", "head 2", ALL_HEADS]
    for variant, row in found.items():
        if variant in ("head 1", ALL_HEADS):
            assert row.q_value < 1e-6
            assert row.estimate.ci_high < -20
        else:
            assert abs(row.estimate.value) < 6
        members = inputs.calls.members(GROUPS[0])
        assert row.estimate.n == (members & (inputs.reference >= LAYER)).sum()


def test_no_head_is_found_where_none_reads(inputs: ExperimentInputs) -> None:
    found = rows(run(inputs, None), "delta_p_reference")
    assert (
        np.mean([row.estimate.ci_low <= 0 <= row.estimate.ci_high for row in found])
        > 0.7
    )
    assert min(row.q_value for row in found if row.q_value is not None) > 1e-3
