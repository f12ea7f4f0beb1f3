"""ΔP of cuts in some layers: the same numbers as the chart where the cut is the same, and nothing below a cut."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from anchorscope.evidence.experiments.ground import Ground
from anchorscope.evidence.experiments.windows import Outcome, Way
from experiments_synthetic import make_ground

from anchorscope.evidence.corrected import cell_sums, correct_shift, curve_samples, reference_samples
from anchorscope.evidence.curves import TRUTHS
from anchorscope.evidence.experiments.compare import FEW
from anchorscope.evidence.experiments.cut_effects import Effects, cumulative, effects_of
from anchorscope.evidence.experiments.cut_statistics import reference_statistics
from anchorscope.evidence.items import KNOCKOUT, true_label_probability
from anchorscope.evidence.pathways import GROUPS


@pytest.fixture(scope="module")
def ground() -> Ground:
    """Its folds have three different reference layers: 1, 3 and 4."""
    made = make_ground(shift=0.5)
    return replace(made, place=replace(made.place, reference=np.tile([1, 3, 4, 4], (3, 1))))


def one_cut(ground: Ground, first: int, seed: int = 0) -> Outcome:
    """The knockout's log-odds from a layer on, for some of the items, with noise."""
    rng = np.random.default_rng(seed)
    items = np.sort(rng.choice(ground.n, size=ground.n - 30, replace=False))
    logits = ground.place.before[0][:, items].copy()
    logits[first:] = ground.place.after[KNOCKOUT][0][first:, items] + rng.normal(0, 0.3, logits[first:].shape)
    return Outcome(Way("single", range(first, first + 1)), items, logits)


def test_the_knockout_as_an_outcome_gives_the_charts_own_numbers(ground: Ground) -> None:
    corrected = correct_shift(ground.place, ground.draws)
    sums = cell_sums(corrected, KNOCKOUT)
    (effects,) = effects_of(ground, "corrected", [cumulative(ground, np.arange(ground.n))])
    for group in GROUPS:
        torch.testing.assert_close(effects.curve(group), curve_samples(sums, group, "all"))
        wanted = reference_samples(sums, ground.place.reference[0], group)
        torch.testing.assert_close(effects.reference(group), wanted)


@pytest.mark.parametrize("assignment", ["plain", "corrected"])
@pytest.mark.parametrize("first", [0, 1, 2, 4, 5])
def test_the_first_draw_is_the_mean_over_the_members_that_see_the_cut(
    ground: Ground, assignment: str, first: int
) -> None:
    (effects,) = effects_of(ground, assignment, [one_cut(ground, first)])
    assert (np.isnan(effects.at_reference) == (ground.reference[effects.items] < first)).all()
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


def test_plain_values_are_changes_of_the_true_labels_probability(ground: Ground) -> None:
    outcome = one_cut(ground, 2)
    effects = Effects(ground, "plain", outcome)
    labels = ground.place.labels[outcome.items]
    for item, layer in [(0, 2), (17, 3), (101, 5)]:
        before = ground.place.before[0, layer, outcome.items[item]]
        wanted = 100 * (true_label_probability(outcome.logits[layer, item], labels[item])
                        - true_label_probability(before, labels[item]))  # fmt: skip
        assert effects.values[item, layer - 2] == pytest.approx(wanted)


def test_a_shift_of_all_items_alike_is_no_effect_under_the_corrected_rule(ground: Ground) -> None:
    moved = Outcome(Way("single", range(2, 3)), np.arange(ground.n), ground.place.before[0] - 1.5)
    (effects,) = effects_of(ground, "corrected", [moved])
    assert np.abs(effects.values).max() < 1e-3
    assert float(effects.curve(GROUPS[0]).abs().max()) < 1e-2
    (plain,) = effects_of(ground, "plain", [moved])
    assert np.abs(plain.values).max() > 10


def test_statistics_have_a_row_per_group_truth_and_difference(ground: Ground) -> None:
    family = effects_of(ground, "plain", [one_cut(ground, first) for first in (0, 2, 5)])
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
    ground = make_ground(asks=np.arange(160) < 6)
    found = [int(calls.members(GROUPS[0]).sum()) for calls in ground.calls.values()]
    assert found[0] < FEW  # else this test asks nothing
    rows, missing = reference_statistics(effects_of(ground, "plain", [one_cut(ground, 0)]))
    assert {row.group for row in rows} == {GROUPS[1]}
    n = int(ground.calls["plain"].members(GROUPS[0])[one_cut(ground, 0).items].sum())
    assert f"only {n} items are Q-Anchored under the plain rule, 10 needed" in missing


def test_a_layer_that_few_items_can_see_is_named(ground: Ground) -> None:
    folds = ground.place.folds.copy()
    late = np.flatnonzero(folds == 3)[:-14]
    folds[late] = 0  # only 14 items, of both groups, are left in the fold whose reference layer is highest
    place = replace(ground.place, folds=folds, reference=np.tile([1, 1, 1, 4], (3, 1)))
    rows, missing = reference_statistics(effects_of(replace(ground, place=place), "plain", [one_cut(ground, 3)]))
    assert not rows
    (line,) = missing
    assert line.startswith(
        "delta_p_reference of cuts so high that the reference layer of fewer than 10 items is not below"
    )
    assert "under the plain rule (single): Q-Anchored from layer 3 on, true Q-Anchored from layer 3 on" in line
