"""Flip rules: what each calls Q-Anchored, that scores and calls agree, and what must not matter to them."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from anchorscope.evidence.experiments.flip_rules import RULES, Seen, corrected_after, seen_at_reference
from experiments_synthetic import make_inputs

SCORED_FROM = {
    "plain": 0.0,
    "any flip": 0.0,
    "change > 1": 1.0,
    "change > 2": 2.0,
    "loss > 10": 10.0,
    "loss > 25": 25.0,
    "loss > 50": 50.0,
    "half the margin": 0.0,
    "corrected": 0.0,
    "refit flip": 0.0,
    "refit half the margin": 0.0,
    "retained": 0.0,
}
"""The line of each rule's score, where noise plays no part."""


def one(before: float, after: float, label: bool, refit: float = 0.0, noise: float = 0.0) -> Seen:
    """A single item."""
    return Seen(np.array([before]), np.array([after]), np.array([refit]), np.array([label]), np.array([0]), noise)


def some(seed: int, n: int = 60) -> Seen:
    """Items called right and wrong, in three folds, moved towards "false" and back."""
    rng = np.random.default_rng(seed)
    return Seen(
        before=rng.normal(0, 2, n),
        after=rng.normal(-0.5, 2, n),
        refit=rng.normal(0, 1, n),
        labels=rng.random(n) < 0.5,
        folds=np.arange(n) % 3,
        noise=0.0,
    )


@pytest.mark.parametrize(
    ("rule", "before", "after", "flips"),
    [
        ("plain", 2.0, -0.1, True),
        ("plain", 2.0, 0.1, False),
        ("any flip", 0.001, -0.001, True),
        ("change > 1", 3.0, 1.9, True),
        ("change > 1", 3.0, 2.1, False),
        ("change > 1", 3.0, 4.1, True),  # any direction
        ("change > 2", 3.0, 0.9, True),
        ("change > 2", 3.0, 1.1, False),
        ("loss > 10", 0.0001, -0.45, True),  # 50 % to 39 %
        ("loss > 10", 0.0001, -0.35, False),  # to 41 %
        ("loss > 25", 0.0001, -1.2, True),  # to 23 %
        ("loss > 25", 0.0001, -1.0, False),  # to 27 %
        ("loss > 50", 4.0, -0.1, True),  # 98 % to 48 %
        ("loss > 50", 4.0, 0.1, False),
        ("loss > 50", 2.0, 9.0, False),  # a gain is no loss
        ("half the margin", 4.0, 1.9, True),
        ("half the margin", 4.0, 2.1, False),
    ],
)
def test_the_rules_item_by_item_and_for_false_answers_mirrored(
    rule: str, before: float, after: float, flips: bool
) -> None:
    assert RULES[rule].flipped(one(before, after, True)).tolist() == [flips]
    assert RULES[rule].flipped(one(-before, -after, False)).tolist() == [flips]


def test_small_flips_count_only_where_noise_is_not_asked_about() -> None:
    close = one(0.1, -0.1, True, noise=0.5)
    assert not RULES["plain"].flipped(close).any()
    assert RULES["any flip"].flipped(close).all()


@pytest.mark.parametrize(("refit", "flips", "halves"), [(-0.5, True, True), (0.5, False, True), (1.5, False, False)])
def test_refit_rules_look_at_the_refit_probe_only(refit: float, flips: bool, halves: bool) -> None:
    for after in (-9.0, 9.0):
        assert RULES["refit flip"].flipped(one(2.0, after, True, refit)).tolist() == [flips]
        assert RULES["refit half the margin"].flipped(one(2.0, after, True, refit)).tolist() == [halves]


@pytest.mark.parametrize(("refit", "lost"), [(-0.5, True), (0.75, True), (0.85, False), (1.5, False)])
def test_what_is_retained_is_told_by_probabilities_above_chance(refit: float, lost: bool) -> None:
    # A margin of 2 is a probability of 0.88: half of what is above 0.5 remains at 0.69, a margin of 0.80.
    for after in (-9.0, 9.0):
        assert RULES["retained"].flipped(one(2.0, after, True, refit)).tolist() == [lost]
        assert RULES["retained"].flipped(one(-2.0, after, False, -refit)).tolist() == [lost]


def test_every_rule_is_among_those_that_need_a_refit_or_works_without() -> None:
    without = replace(some(1), refit=None)
    for name, rule in RULES.items():
        assert rule.needs_refit == name.startswith(("refit", "retained"))
        if not rule.needs_refit:
            assert np.isfinite(rule.score(without)).all()
            assert rule.flipped(without).dtype == bool


@given(seed=st.integers(0, 2**32 - 1))
def test_a_rule_calls_flipped_what_its_score_puts_above_its_line(seed: int) -> None:
    seen = some(seed)
    assert set(SCORED_FROM) == set(RULES)
    for name, rule in RULES.items():
        assert (rule.flipped(seen) == (rule.score(seen) > SCORED_FROM[name])).all(), name


@given(seed=st.integers(0, 2**32 - 1))
def test_true_and_false_are_treated_alike(seed: int) -> None:
    seen = some(seed)
    mirrored = replace(
        seen,
        before=-seen.before,
        after=-seen.after,
        refit=-seen.refit,
        labels=~seen.labels,  # type: ignore[operator]
    )
    for name, rule in RULES.items():
        assert rule.score(mirrored) == pytest.approx(rule.score(seen)), name
        assert (mirrored.correct == seen.correct).all()


@given(seed=st.integers(0, 2**32 - 1), further=st.floats(0.01, 5))
def test_an_item_that_is_pushed_further_from_its_label_stays_flipped(seed: int, further: float) -> None:
    seen = some(seed)
    pushed = replace(seen, after=seen.after - further * seen.sign)
    for name in ("plain", "any flip", "loss > 10", "loss > 25", "loss > 50", "half the margin"):
        before, after = (RULES[name].flipped(one)[seen.correct] for one in (seen, pushed))
        assert (after | ~before).all(), name


@given(seed=st.integers(0, 2**32 - 1), shift=st.floats(-6, 6))
def test_a_common_shift_does_not_reach_the_corrected_rule(seed: int, shift: float) -> None:
    seen = some(seed)
    moved = replace(seen, after=seen.after + shift * (1 + seen.folds))  # each fold has its own
    assert corrected_after(moved) == pytest.approx(corrected_after(seen))


def test_the_common_shift_reaches_the_other_rules() -> None:
    seen = some(3)
    moved = replace(seen, after=seen.after - 3)
    for name in ("plain", "any flip", "change > 1", "change > 2", "loss > 10", "loss > 25", "half the margin"):
        assert (RULES[name].flipped(moved) != RULES[name].flipped(seen)).any(), name


def test_three_rules_are_the_assignments_of_the_main_job() -> None:
    inputs = make_inputs(shift=1.0, seed=2, after_cut=-0.1, retained=True)
    seen = seen_at_reference(inputs)
    assert set(inputs.calls) == {"plain", "corrected", "retained"}
    for name in inputs.calls:
        calls = inputs.calls[name]
        assert (seen.correct == calls.correct).all()
        assert (RULES[name].flipped(seen) == calls.flipped).all()
        assert 0 < calls.flipped[calls.correct].mean() < 1


def test_the_refit_is_read_at_each_items_own_reference_layer() -> None:
    inputs = make_inputs(seed=3, retained=True)
    place = replace(inputs.measured, reference=np.array([[0, 1, 2, 3]] * 3))
    seen = seen_at_reference(replace(inputs, measured=place))
    folds = inputs.measured.folds
    assert seen.refit is not None
    wanted = [inputs.measured.refits["knockout"][folds[item], item] for item in range(inputs.n)]
    assert seen.refit.tolist() == wanted


def test_without_a_number_there_is_no_score() -> None:
    seen = some(4)
    unknown: NDArray[np.bool_] = np.arange(60) == 7
    broken = replace(seen, after=np.where(unknown, np.nan, seen.after), refit=np.where(unknown, np.nan, seen.refit))
    for name, rule in RULES.items():
        assert (np.isnan(rule.score(broken)) == unknown).all(), name
