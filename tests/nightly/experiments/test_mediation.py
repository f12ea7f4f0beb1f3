"""Mediation: pairs that are what they should be, shares as they were planted, and real patches on a model."""

from dataclasses import replace

import numpy as np
import pytest

from anchorscope.experiments.experiment import ExperimentInputs
from anchorscope.experiments.mediation import (
    EXPERIMENT,
    OPPOSITE,
    OTHER,
    SAME,
    Pair,
    analyse,
    draw_pairs,
    plan_patches,
)
from anchorscope.experiments.partial_cuts import Scored
from anchorscope.items import Item
from anchorscope.models.language_model import LanguageModel
from experiments_synthetic import make_inputs, only, rows
from partial_cuts_synthetic import tiny_inputs, tiny_items


def with_relations(items: list[Item], number: int = 3) -> list[Item]:
    return [
        replace(
            one, question=replace(one.question, relation=f"relation {index % number}")
        )
        for index, one in enumerate(items)
    ]


@pytest.fixture(scope="module")
def tiny_world(tiny_llama: LanguageModel) -> ExperimentInputs:
    items = with_relations(tiny_items(gap=3))
    # Some questions have fewer exact tokens: such items are paired among themselves.
    items = [
        replace(
            one,
            tokens=replace(
                one.located,
                question_tokens=one.located.question_tokens[: 3 + index % 2],
            ),
        )
        for index, one in enumerate(items)
    ]
    return tiny_inputs(tiny_llama, items)


def test_pairs_are_alike_in_all_but_truth_and_nobody_is_in_two(
    tiny_world: ExperimentInputs,
) -> None:
    pairs = draw_pairs(tiny_world)
    place, items = tiny_world.measured, tiny_world.used_items
    members = [item for pair in pairs for item in pair]
    assert len(set(members)) == len(members)
    assert len(pairs) > 30
    for first, second in pairs:
        true, false = items[first], items[second]
        assert place.labels[[first, second]].tolist() == [True, False]
        assert true.question.relation == false.question.relation
        assert len(true.located.question_tokens) == len(false.located.question_tokens)
        assert place.groups[first] != place.groups[second]
    assert pairs == draw_pairs(tiny_world)
    other = replace(tiny_world, setting=replace(tiny_world.setting, seed=1))
    assert pairs != draw_pairs(other)


def test_every_kind_of_donor_is_what_it_is_called(tiny_world: ExperimentInputs) -> None:
    pairs = draw_pairs(tiny_world)
    patches, items = plan_patches(tiny_world, pairs), tiny_world.used_items
    labels, groups = tiny_world.measured.labels, tiny_world.measured.groups
    partner = dict(pairs) | {false: true for true, false in pairs}
    assert set(patches[OPPOSITE]) == set(partner)
    for kind, found in patches.items():
        assert len(found) > 20
        for item, patch in found.items():
            own, donor = items[item].located, items[patch.donor].located
            assert len(patch.positions) == len(own.question_tokens)
            assert groups[patch.donor] != groups[item]
            assert (labels[patch.donor] == labels[item]) == (kind == SAME)
            if kind == OTHER:
                assert not set(patch.positions) & set(own.question_tokens)
                assert not set(patch.donor_positions) & set(donor.question_tokens)
                assert max(patch.positions) < own.answer_start
            else:
                assert patch.positions == own.question_tokens
                assert patch.donor_positions == donor.question_tokens
            if kind != SAME:
                assert patch.donor == partner[item]


def test_items_without_a_relation_are_in_no_pair(tiny_llama: LanguageModel) -> None:
    found = EXPERIMENT.run(tiny_inputs(tiny_llama))
    assert not found.statistics
    assert found.missing[0].startswith("0 pairs of a true and a false answer")


PLANTED = {
    (OPPOSITE, 0): 0.8,
    (OPPOSITE, 1): 0.5,
    (OPPOSITE, 2): 0.0,
    (SAME, 0): 0.1,
    (SAME, 1): 0.1,
    (OTHER, 0): 0.0,
}
"""Which share of its pair's gap each target moves."""


def planted(
    inputs: ExperimentInputs, pairs: list[Pair], both_ways: bool = True
) -> dict[tuple[str, int], Scored]:
    rng, place = np.random.default_rng(0), inputs.measured
    before = place.before
    own = before[inputs.reference, np.arange(inputs.n)]
    ran = {}
    for name, share in PLANTED.items():
        logits = before + rng.normal(0, 0.01, before.shape)
        for true, false in pairs:
            gap = own[true] - own[false]
            logits[:, true] -= share * gap
            logits[:, false] += share * gap * both_ways
        ran[name] = Scored(np.arange(inputs.n), logits)
    return ran


@pytest.fixture(scope="module")
def inputs() -> ExperimentInputs:
    made = make_inputs(n=200)
    return replace(
        made,
        measured=replace(
            made.measured, reference=np.full_like(made.measured.reference, 4)
        ),
    )


def pairs_of(inputs: ExperimentInputs) -> list[Pair]:
    true, false = (
        np.flatnonzero(inputs.measured.labels == truth).tolist()
        for truth in (True, False)
    )
    return list(zip(true, false[::-1], strict=False))


@pytest.mark.parametrize("both_ways", [True, False])
def test_planted_shares_are_found_in_their_directions(
    inputs: ExperimentInputs, both_ways: bool
) -> None:
    pairs = pairs_of(inputs)
    found = analyse(inputs, pairs, planted(inputs, pairs, both_ways))
    for quantity, there in (("necessity", True), ("sufficiency", both_ways)):
        for (kind, layer), share in PLANTED.items():
            row = only(found, quantity, variant=kind, layer=layer)
            assert row.estimate.value == pytest.approx(share * there, abs=0.01)
            assert (
                row.estimate.ci_low - 0.01
                <= row.estimate.value
                <= row.estimate.ci_high + 0.01
            )
            assert row.estimate.n == len(pairs)
        gap = only(found, f"{quantity}_difference", against=SAME, layer=0)
        assert gap.estimate.value == pytest.approx(0.7 * there, abs=0.01)
    assert only(found, "gap_log_odds").estimate.ci_low > 0


def test_a_probe_below_the_patch_does_not_count(inputs: ExperimentInputs) -> None:
    low = replace(
        inputs,
        measured=replace(
            inputs.measured, reference=np.full_like(inputs.measured.reference, 1)
        ),
    )
    pairs = pairs_of(low)
    found = analyse(low, pairs, planted(low, pairs))
    assert {row.layer for row in rows(found, "necessity")} == {0, 1}


def test_members_that_do_not_differ_have_no_share(inputs: ExperimentInputs) -> None:
    pairs = [(false, true) for true, false in pairs_of(inputs)]
    found = analyse(inputs, pairs, planted(inputs, pairs))
    assert {row.quantity for row in found.statistics} == {"gap_log_odds"}
    assert "no share of which can be given" in found.missing[0]
