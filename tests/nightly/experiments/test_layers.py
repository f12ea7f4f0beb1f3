"""Where the cut matters: a planted layer is found, no effect is none, and what cannot be said is named."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anchorscope.catalogue import KNOCKOUT
from anchorscope.evidence.delta_p import GROUPS
from anchorscope.experiments.experiment import ExperimentInputs, Found
from anchorscope.experiments.layers import SINGLE, analyse, window_starts
from anchorscope.experiments.partial_cuts import CutEffects, PartialCut, Scored
from experiments_synthetic import make_inputs, only, rows

PLANTED = 2
"""The only layer whose cut does anything."""


def effects_of(
    inputs: ExperimentInputs, planted: int | None, noise: float = 0.3
) -> list[CutEffects]:
    """Single layers, and windows of two: the knockout's own log-odds where the planted layer is cut, else noise."""
    rng = np.random.default_rng(0)
    before, after = inputs.measured.before, inputs.measured.after[KNOCKOUT]
    ways = [PartialCut(SINGLE, range(layer, layer + 1)) for layer in range(len(before))]
    ways += [
        PartialCut("window 2", range(layer, layer + 2))
        for layer in range(len(before) - 1)
    ]
    found = []
    for way in ways:
        logits = before + rng.normal(0, noise, before.shape)
        if planted is not None and planted in way.layers:
            logits = after.copy()
        logits[: way.layers.start] = before[: way.layers.start]
        found.append(CutEffects(inputs, way, Scored(np.arange(inputs.n), logits)))
    return found


@pytest.fixture(scope="module")
def inputs() -> ExperimentInputs:
    made = make_inputs(n=200, after_cut=-0.8)
    return replace(
        made,
        measured=replace(
            made.measured, reference=np.full_like(made.measured.reference, 4)
        ),
    )


@pytest.fixture(scope="module")
def planted(inputs: ExperimentInputs) -> Found:
    return analyse(inputs, effects_of(inputs, PLANTED, noise=0.05))


def test_the_planted_layer_is_found(planted: Found) -> None:
    row = only(planted, "deepest_layer", group=GROUPS[0])
    assert (row.estimate.value, row.estimate.ci_low, row.estimate.ci_high) == (
        PLANTED,
        PLANTED,
        PLANTED,
    )
    share = only(planted, "share_of_cumulative", group=GROUPS[0])
    assert share.estimate.value == pytest.approx(1, abs=0.1)
    assert share.estimate.ci_low < 1 < share.estimate.ci_high
    for variant, width in ((SINGLE, 1), ("window 2", 2)):
        for row in rows(planted, "delta_p_reference", variant=variant, group=GROUPS[0]):
            if row.layer <= PLANTED < row.layer + width:
                assert row.estimate.ci_high < -20
                assert row.q_value < 1e-6
            else:
                assert abs(row.estimate.value) < 5


def test_no_effect_gives_hardly_any_discovery(inputs: ExperimentInputs) -> None:
    found = analyse(inputs, effects_of(inputs, None))
    cells = rows(found, "delta_p_reference")
    assert (
        np.mean([row.estimate.ci_low <= 0 <= row.estimate.ci_high for row in cells])
        > 0.8
    )
    assert all(
        row.estimate.ci_low < 0.1
        for row in rows(found, "share_of_cumulative", group=GROUPS[0])
    )


def test_a_knockout_without_effect_has_no_share() -> None:
    inputs = make_inputs(n=120, after_cut=1.0)
    found = analyse(inputs, effects_of(inputs, PLANTED))
    assert not rows(found, "share_of_cumulative", group=GROUPS[1])
    assert any(
        "share_of_cumulative of A-Anchored items" in line for line in found.missing
    )
    assert any("items are Q-Anchored, 10 needed" in line for line in found.missing)


@given(n_layers=st.integers(1, 80), width=st.integers(1, 80))
def test_windows_cover_every_layer_and_end_with_the_last(
    n_layers: int, width: int
) -> None:
    width = min(width, n_layers)
    starts = window_starts(n_layers, width)
    assert (starts[0], starts[-1] + width) == (0, n_layers)
    assert {layer for start in starts for layer in range(start, start + width)} == set(
        range(n_layers)
    )
    assert all(
        0 < later - start <= max(1, width // 2) for start, later in pairwise(starts)
    )
