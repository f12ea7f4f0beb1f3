"""Sensitivity: what moves with the layer, the rule and the seed, on inputs whose pathways are known."""

from dataclasses import replace

import numpy as np
import pytest

from anchorscope.evidence.experiments.experiment import ExperimentInputs, Found, Statistic
from anchorscope.evidence.experiments.flip_rules import RULES
from anchorscope.evidence.experiments.sensitivity import EXPERIMENT, SEEDS, measured_anew
from anchorscope.evidence.measured import Measured
from anchorscope.evidence.pathways import Calls, plain_calls
from experiments_synthetic import make_inputs, planted

Q, A = "Q-Anchored", "A-Anchored"


def pick(found: Found, quantity: str, variant: str, **columns: object) -> list[Statistic]:
    return [
        row
        for row in found.statistics
        if (row.quantity, row.variant) == (quantity, variant)
        and all(getattr(row, name) == wanted for name, wanted in columns.items())
    ]


def only(found: Found, quantity: str, variant: str, **columns: object) -> Statistic:
    (row,) = pick(found, quantity, variant, **columns)
    return row


@pytest.fixture(scope="module")
def fair() -> tuple[ExperimentInputs, Found]:
    """The cut moves nobody who does not hang on the question."""
    inputs = make_inputs(n=200, seed=1)
    return inputs, EXPERIMENT.run(inputs)


@pytest.fixture(scope="module")
def shifted() -> tuple[ExperimentInputs, Found]:
    """The cut moves everybody towards "false", as real ones do."""
    inputs = make_inputs(n=200, seed=2, shift=1.5)
    return inputs, EXPERIMENT.run(inputs)


def test_the_label_bias_of_the_plain_rule_is_seen_and_that_the_corrected_one_has_none(
    fair: tuple[ExperimentInputs, Found], shifted: tuple[ExperimentInputs, Found]
) -> None:
    for rule in ("plain", "any flip", "half the margin"):
        assert only(shifted[1], "label_bias", f"rule: {rule}").estimate.ci_low > 0.1
        row = only(fair[1], "label_bias", f"rule: {rule}").estimate
        assert row.ci_low < 0 < row.ci_high
    row = only(shifted[1], "label_bias", "rule: corrected").estimate
    assert row.ci_low < 0 < row.ci_high
    true, false = (only(shifted[1], "true_share", "rule: plain", group=group).estimate for group in (Q, A))
    assert true.ci_low > 0.5 > false.ci_high
    difference = only(shifted[1], "true_share_difference", "rule: plain")
    assert difference.estimate.value == pytest.approx(true.value - false.value)
    assert difference.p_value is not None
    assert difference.p_value < 0.01


def test_every_rule_is_there_or_said_to_be_missing() -> None:
    found = EXPERIMENT.run(make_inputs(n=200, seed=1, truth_signal=3.0, retained=True))
    for name in RULES:
        share = only(found, "q_share", f"rule: {name}", truth="all").estimate
        assert 0 <= share.ci_low <= share.value <= share.ci_high <= 1
        kappas = pick(found, "kappa", f"rule: {name}")
        assert len(kappas) == (name != "plain") or any(name in line and "kappa" in line for line in found.missing)
    _, asks = planted(200)
    assert only(found, "q_share", "rule: plain", truth="all").estimate.value == pytest.approx(asks.mean(), abs=0.06)
    assert only(found, "kappa", "rule: any flip").estimate.value > 0.9
    assert only(found, "kappa", "rule: any flip").against == "plain"
    assert only(found, "q_share", "rule: corrected", truth="all").assignment == "corrected"
    assert only(found, "q_share", "rule: half the margin", truth="all").assignment is None


def test_the_reference_layer_is_moved_everywhere_it_can_go(fair: tuple[ExperimentInputs, Found]) -> None:
    inputs, found = fair
    reference = inputs.reference
    moves = range(-reference.max(), 6 - reference.min())
    variants = {move: f"l* {'+' if move > 0 else '−'} {abs(move)}" if move else "l*" for move in moves}
    seen = {row.variant for row in found.statistics if str(row.variant).startswith("l*")}
    assert seen == set(variants.values())
    for move, variant in variants.items():
        calls = plain_calls(inputs.measured, move=move)
        row = only(found, "q_share", variant, assignment="plain", truth="all")
        assert row.estimate.value == pytest.approx(calls.flipped[calls.correct].mean())
        assert row.estimate.n == calls.correct.sum()
        assert row.layer == round(np.clip(reference + move, 0, 5).mean())
        for assignment in ("plain", "corrected"):
            kappas = pick(found, "kappa", variant, assignment=assignment)
            assert len(kappas) == (move != 0)
            assert all(row.against == "l*" and 0 < row.estimate.value <= 1 for row in kappas)


def test_unmoved_layers_give_the_runs_own_groups(shifted: tuple[ExperimentInputs, Found]) -> None:
    inputs, found = shifted
    for assignment, calls in inputs.calls.items():
        for variant in ("l*", f"rule: {assignment}"):
            row = only(found, "q_share", variant, assignment=assignment, truth="all").estimate
            assert row.value == pytest.approx(calls.flipped[calls.correct].mean())
        one, other = (
            only(found, "q_share", variant, assignment=assignment, truth="true").estimate
            for variant in ("l*", f"rule: {assignment}")
        )
        assert one == other


def test_a_family_of_layers_has_its_false_discoveries_controlled(shifted: tuple[ExperimentInputs, Found]) -> None:
    _, found = shifted
    rows = [row for row in found.statistics if row.quantity == "label_bias" and str(row.variant).startswith("l*")]
    tested = [row for row in rows if row.p_value is not None]
    assert len(tested) > 6
    assert all(row.q_value is not None and row.p_value is not None and row.q_value >= row.p_value for row in tested)
    assert any(row.q_value > row.p_value for row in tested)  # type: ignore[operator]


def test_other_seeds_find_the_planted_pathways_again(fair: tuple[ExperimentInputs, Found]) -> None:
    inputs, found = fair
    for seed in range(1, 1 + SEEDS):
        variant = f"seed {inputs.setting.seed + seed}"
        kappa = only(found, "kappa", variant, assignment="plain")
        assert kappa.against == f"seed {inputs.setting.seed}"
        assert kappa.estimate.value > 0.7
        assert only(found, "delta_p_reference", variant, group=Q, truth="all").estimate.ci_high < -30
        stays = only(found, "delta_p_reference", variant, group=A, truth="all").estimate
        assert abs(stays.value) < 10
        difference = only(found, "delta_p_reference_difference", variant, truth="all")
        assert difference.estimate.ci_high < -25
        assert difference.effect_size is not None
        assert difference.effect_size < -1
        assert {row.truth for row in pick(found, "delta_p_reference", variant)} == {"all", "true", "false"}


def test_seeds_are_summed_up_by_mean_and_range(fair: tuple[ExperimentInputs, Found]) -> None:
    inputs, found = fair
    seeds = [f"seed {inputs.setting.seed + seed}" for seed in range(1, 1 + SEEDS)]
    for quantity, columns in (
        ("kappa", {"assignment": "corrected"}),
        ("q_share", {"assignment": "plain", "truth": "true"}),
        ("delta_p_reference", {"group": A, "truth": "false"}),
    ):
        values = [only(found, quantity, seed, **columns).estimate.value for seed in seeds]
        row = only(found, quantity, "seeds", **columns).estimate
        assert (row.value, row.ci_low, row.ci_high) == pytest.approx((np.mean(values), min(values), max(values)))
        assert "mean and range over 3 other seeds" in row.method


def test_another_seed_deals_out_other_folds_and_its_probes_never_saw_an_items_group(
    fair: tuple[ExperimentInputs, Found],
) -> None:
    inputs, _ = fair
    measured = measured_anew(inputs, 11)
    assert isinstance(measured, Measured)
    assert (measured.folds != inputs.measured.folds).any()
    for group in np.unique(measured.groups):
        assert len(np.unique(measured.folds[measured.groups == group])) == 1
    own = measured_anew(replace(inputs, states=lambda: inputs.states().clone()), 11)
    assert isinstance(own, Measured)
    assert (own.before == measured.before).all()
    # An item's own state teaches none of the probes that score it.
    item = 7
    states = inputs.states().clone()
    states[:, measured.groups == measured.groups[item]] += 3
    other = measured_anew(replace(inputs, states=lambda: states), 11)
    assert isinstance(other, Measured)
    same_fold = np.flatnonzero((measured.folds == measured.folds[item]) & (measured.groups != measured.groups[item]))
    assert other.before[:, :, same_fold] == pytest.approx(measured.before[:, :, same_fold], abs=5e-3)  # the solver's
    assert (other.before[:, :, item] != measured.before[:, :, item]).any()


def test_the_same_inputs_give_the_same_numbers(shifted: tuple[ExperimentInputs, Found]) -> None:
    inputs, found = shifted
    again = EXPERIMENT.run(inputs)
    assert (again.statistics, again.missing) == (found.statistics, found.missing)
    for one, other in zip(again.values, found.values, strict=True):
        assert (one.quantity, one.variant) == (other.quantity, other.variant)
        assert np.array_equal(one.items, other.items)
        assert np.array_equal(one.values, other.values)


def test_the_assignment_by_what_remains_is_moved_and_seeded_like_the_others() -> None:
    inputs = make_inputs(n=200, seed=4, after_cut=0.0, retained=True, resamples=50)
    found = EXPERIMENT.run(inputs)
    _, asks = planted(200)
    calls = inputs.calls["retained"]
    assert (calls.flipped == asks)[calls.correct].mean() > 0.8
    for variant in ("l*", "rule: retained"):
        row = only(found, "q_share", variant, assignment="retained", truth="all").estimate
        assert row.value == pytest.approx(calls.flipped[calls.correct].mean())
    assert only(found, "kappa", "l* + 1", assignment="retained").estimate.value > 0.3
    for seed in (5, 6, 7):
        kappa = only(found, "kappa", f"seed {seed}", assignment="retained").estimate.value
        assert kappa > 0.6
        assert kappa < 1  # other folds, other probes: some item near the line falls to the other side
    assert pick(found, "kappa", "seeds", assignment="retained")


def test_a_rule_that_joins_the_assignments_is_compared_too() -> None:
    inputs = make_inputs(seed=3, resamples=50)
    calls = {**inputs.calls, "by hand": Calls(np.ones(160, bool), np.arange(160) % 4 == 0)}
    inputs.__dict__["calls"] = calls  # where the cached property would put them
    found = EXPERIMENT.run(inputs)
    row = only(found, "q_share", "rule: by hand", truth="all")
    assert (row.assignment, row.estimate.value) == ("by hand", 0.25)
    assert only(found, "true_share", "rule: by hand", group=Q).estimate.value == 1


def with_cuts(inputs: ExperimentInputs, **cuts: tuple[np.ndarray, np.ndarray]) -> ExperimentInputs:
    """The inputs with cuts of other words: the items that have them, and which of those the cut turns."""
    place = inputs.measured
    turned = {name: np.where(turns, -1, 1) * place.before[:, :, items] for name, (items, turns) in cuts.items()}
    ran = {name: items for name, (items, _) in cuts.items()}
    numbers = {name: np.ones(len(items), np.int64) for name, items in ran.items()}
    return replace(
        inputs,
        measured=replace(
            place, after={**place.after, **turned}, ran={**place.ran, **ran}, n_cut={**place.n_cut, **numbers}
        ),
    )


def test_other_words_cut_make_groups_of_their_own() -> None:
    base = make_inputs(n=200, seed=1, resamples=100)
    plain, labels = base.calls["plain"], base.measured.labels
    everyone, some = np.arange(200), np.arange(0, 200, 3)
    found = EXPERIMENT.run(
        with_cuts(
            base, subject=(everyone, plain.flipped), property=(some, labels[some]), content=(everyone, ~plain.flipped)
        )
    )
    assert not any(line.startswith("cut:") for line in found.missing)
    for name, items, turned in (("subject", everyone, plain.flipped), ("property", some, labels)):
        right = items[plain.correct[items]]
        for truth, inside in (("all", right), ("true", right[labels[right]]), ("false", right[~labels[right]])):
            share = only(found, "q_share", f"cut: {name}", truth=truth)
            assert share.estimate.value == pytest.approx(turned[inside].mean())
            assert share.estimate.n == len(inside)
            assert share.assignment == "plain"
    assert only(found, "label_bias", "cut: property").estimate.value == 1
    assert only(found, "true_share", "cut: property", group=Q).estimate.value == 1
    kappa = {name: only(found, "kappa", f"cut: {name}") for name in ("subject", "property", "content")}
    assert {row.against for row in kappa.values()} == {"plain"}
    assert kappa["subject"].estimate.value == 1
    assert kappa["content"].estimate.value < -0.9
    assert kappa["property"].estimate.ci_low < 0 < kappa["property"].estimate.ci_high  # the label is no pathway here
    assert kappa["property"].estimate.n == plain.correct[some].sum()
    assert any("kappa with plain" in line and "cut: random" in line for line in found.missing)  # it turns nearly nobody


def test_words_that_were_not_cut_are_said_not_to_be(fair: tuple[ExperimentInputs, Found]) -> None:
    _, found = fair
    assert {row.variant for row in found.statistics if str(row.variant).startswith("cut: ")} == {"cut: random"}
    (line,) = [line for line in found.missing if line.startswith("cut: ")]
    assert line.startswith("cut: subject, property, content: not run; --evidence exact-tokens")


def test_nobody_who_hangs_on_the_question_is_said_not_to_be_there() -> None:
    found = EXPERIMENT.run(make_inputs(after_cut=1.0, resamples=50))
    assert not pick(found, "true_share", "rule: plain", group=Q)
    assert not pick(found, "kappa", "seed 1")
    assert not pick(found, "delta_p_reference_difference", "seed 1")
    assert only(found, "true_share", "rule: plain", group=A).estimate.n > 100
    assert any(line.startswith("only 0") and "are Q-Anchored under" in line for line in found.missing)
    assert any("kappa" in line for line in found.missing)
    assert all(np.isfinite(row.estimate.value) for row in found.statistics)


def test_what_was_not_kept_is_said_to_be_missing() -> None:
    inputs = make_inputs(resamples=50)
    found = EXPERIMENT.run(replace(inputs, cut_states=lambda: {"random": inputs.cut_states()["random"]}))
    assert not [row for row in found.statistics if str(row.variant).startswith("seed")]
    assert not [row for row in found.statistics if row.variant in ("rule: refit flip", "rule: retained")]
    assert sum("states under the knockout were not kept" in line for line in found.missing) == 1
    unfitted = sum(rule.needs_refit for rule in RULES.values())
    assert sum("no probe was trained on states under the knockout" in line for line in found.missing) == unfitted
    assert pick(found, "q_share", "rule: plain")


def test_an_item_without_a_number_is_not_counted() -> None:
    inputs = make_inputs(resamples=50)
    after = inputs.measured.after["knockout"].copy()
    item = int(np.flatnonzero(inputs.calls["plain"].correct)[0])
    after[:, :, item] = np.nan
    place = replace(inputs.measured, after={**inputs.measured.after, "knockout": after})
    whole, lacking = EXPERIMENT.run(inputs), EXPERIMENT.run(replace(inputs, measured=place))
    for variant in ("rule: plain", "rule: loss > 25", "l*"):
        columns = {"truth": "all"} | ({"assignment": "plain"} if variant == "l*" else {})
        numbers = [only(found, "q_share", variant, **columns).estimate.n for found in (whole, lacking)]
        assert numbers[1] == numbers[0] - 1


def test_folds_that_another_seed_cannot_deal_out_are_said_to_be_so() -> None:
    inputs = make_inputs(resamples=50)
    one_sided = np.where(inputs.measured.labels, 0, 1)  # all true answers in one group
    found = EXPERIMENT.run(replace(inputs, measured=replace(inputs.measured, groups=one_sided)))
    assert sum("leave only true or only false answers" in line for line in found.missing) == SEEDS
