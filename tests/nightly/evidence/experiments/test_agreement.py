"""Agreement: methods that do the same agree, those that sort by the label agree only because of it, others do not."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.metrics import cohen_kappa_score

from anchorscope.catalogue import KNOCKOUT
from anchorscope.evidence.experiments.agreement import EXPERIMENT, TABLE
from anchorscope.evidence.experiments.compare import FEW
from anchorscope.evidence.experiments.experiment import ExperimentInputs, Found, ItemValues, Statistic
from anchorscope.evidence.experiments.method_calls import RULES, SALIENCY, correct_before, method_calls
from anchorscope.evidence.measured import Measured
from anchorscope.evidence.pathways import GROUPS
from anchorscope.stats.auc import auc
from experiments_synthetic import make_inputs, planted

N = 240
LABELS, ASKS = planted(N)
SIGN = np.where(LABELS, 1.0, -1.0)


def with_methods(inputs: ExperimentInputs, **after: tuple[NDArray[np.int64], NDArray[np.floating]]) -> ExperimentInputs:
    """The inputs with more interventions: runs and log-odds [run], the same at every layer."""
    place = inputs.measured
    names = {name.replace("_", "-"): given for name, given in after.items()}
    shape = place.before.shape[:2]
    return replace(
        inputs,
        measured=replace(
            place,
            after={
                **place.after,
                **{
                    name: np.broadcast_to(odds, (*shape, len(odds))).astype(np.float32)
                    for name, (_, odds) in names.items()
                },
            },
            ran={**place.ran, **{name: runs for name, (runs, _) in names.items()}},
            n_cut={**place.n_cut, **{name: np.ones(len(runs), np.int64) for name, (runs, _) in names.items()}},
        ),
    )


@pytest.fixture(scope="module")
def base() -> ExperimentInputs:
    return make_inputs(n=N, truth_signal=2.5)


@pytest.fixture(scope="module")
def inputs(base: ExperimentInputs) -> ExperimentInputs:
    """Patching follows the planted pathways, with three donors; without the question everything looks false."""
    rng = np.random.default_rng(0)
    everyone = np.arange(N)
    return with_methods(
        base,
        patch_same=(np.repeat(everyone, 3), np.repeat(np.where(ASKS, -2.0, 2.0) * SIGN, 3) + rng.normal(0, 0.4, 3 * N)),
        answer_bare=(everyone, -3 + rng.normal(0, 0.3, N)),
        answer_template=(everyone, np.where(rng.random(N) < 0.5, -2.0, 2.0) * SIGN + rng.normal(0, 0.4, N)),  # a coin
        zeroing=(everyone[:60], (np.where(ASKS, -2.0, 2.0) * SIGN + rng.normal(0, 0.4, N))[:60]),  # some of the items
    )


@pytest.fixture(scope="module")
def found(inputs: ExperimentInputs) -> Found:
    return EXPERIMENT.run(inputs)


def pair(found: Found, quantity: str, first: str, second: str, rule: str = "plain", truth: str = "all") -> Statistic:
    wanted = (quantity, first, second, rule, truth)
    rows = [r for r in found.statistics if (r.quantity, r.variant, r.against, r.assignment, r.truth) == wanted]
    assert len(rows) == 1, wanted
    return rows[0]


@pytest.mark.parametrize("rule", RULES)
def test_the_knockouts_calls_are_those_of_the_pathways(inputs: ExperimentInputs, rule: str) -> None:
    knockout, *_ = method_calls(inputs, rule)
    calls = inputs.calls[rule]
    assert knockout.method == KNOCKOUT
    assert (knockout.sample() == calls.flipped).all()
    assert (correct_before(inputs.measured) == calls.correct).all()


@pytest.mark.parametrize("truth", ["all", "true", "false"])
@pytest.mark.parametrize("rule", RULES)
def test_methods_that_follow_the_same_pathways_agree_also_within_a_label(found: Found, rule: str, truth: str) -> None:
    row = pair(found, "kappa", KNOCKOUT, "patch-same", rule, truth)
    assert row.estimate.value > 0.6
    assert row.estimate.ci_low > 0.4
    assert row.q_value is not None
    assert row.q_value < 1e-6
    assert pair(found, "auc", "patch-same", KNOCKOUT, rule, truth).estimate.ci_low > 0.8


def test_agreement_by_the_label_alone_vanishes_within_it(base: ExperimentInputs) -> None:
    rng = np.random.default_rng(1)
    everyone = np.arange(N)
    noisy = lambda: (everyone, -1.0 + rng.normal(0, 1.2, N))  # noqa: E731
    found = EXPERIMENT.run(with_methods(base, answer_bare=noisy(), answer_template=noisy()))
    names = ("answer-template", "answer-bare")
    assert pair(found, "kappa", *names).estimate.ci_low > 0.15
    for truth in ("true", "false"):
        row = pair(found, "kappa", *names, truth=truth)
        assert row.estimate.ci_low < 0 < row.estimate.ci_high
    shares = {
        r.variant: r.estimate.value for r in found.statistics if (r.quantity, r.assignment) == ("true_share", "plain")
    }
    assert shares["answer-bare"] > 0.7  # the label bias
    assert abs(shares[KNOCKOUT] - 0.5) < 0.2


def test_a_coin_agrees_with_nobody(found: Found) -> None:
    for truth in ("all", "true", "false"):
        row = pair(found, "kappa", KNOCKOUT, "answer-template", truth=truth)
        assert row.estimate.ci_low < 0 < row.estimate.ci_high
        area = pair(found, "auc", "answer-template", KNOCKOUT, truth=truth)
        assert area.estimate.ci_low < 0.5 < area.estimate.ci_high


def plain_kappas(found: Found, first: str, second: str) -> dict[str | None, Statistic]:
    """Kappa of a pair by truth, where it is given."""
    wanted = ("kappa", first, second, "plain")
    return {r.truth: r for r in found.statistics if (r.quantity, r.variant, r.against, r.assignment) == wanted}


def test_a_method_that_calls_all_true_answers_has_no_kappa_within_them(found: Found) -> None:
    """Every true answer flips and no false one does: a constant call of one side is enough."""
    assert set(plain_kappas(found, "patch-same", "answer-bare")) == {"all"}
    assert pair(found, "both_q", "patch-same", "answer-bare", truth="true").estimate.value > 0.3  # the table stays
    twins = EXPERIMENT.run(
        with_methods(
            make_inputs(n=N),
            answer_bare=(np.arange(N), np.full(N, -9.0)),
            answer_template=(np.arange(N), np.full(N, -9.0)),
        )
    )
    assert pair(twins, "kappa", "answer-template", "answer-bare").estimate.value == 1
    lines = [line for line in twins.missing if "no kappa under the plain rule" in line]
    assert len(lines) == 2  # of the true ones and of the false ones: all pairs share a line
    for kind, line in zip(("true answers", "false answers"), lines, strict=True):
        assert f"only so many {kind} (in brackets)" in line
        assert line.startswith("knockout and answer-template (0), knockout and answer-bare (0), answer-template and")


@pytest.mark.parametrize("side", [False, True])
@pytest.mark.parametrize("number", [FEW - 1, FEW])
def test_kappa_needs_some_items_of_each_call_of_both_methods(base: ExperimentInputs, side: bool, number: int) -> None:
    """Two methods that agree on a handful of rare calls would get a tiny p-value from them."""
    rare = np.isin(np.arange(N), np.flatnonzero(base.calls["plain"].correct & LABELS)[:number])
    before = base.measured.before[0, base.reference, np.arange(N)]
    odds = np.where(rare ^ side, -before, before)
    made = with_methods(base, answer_bare=(np.arange(N), odds), answer_template=(np.arange(N), odds))
    found = EXPERIMENT.run(made)
    rows = plain_kappas(found, "answer-template", "answer-bare")
    if number < FEW:
        assert not rows
        assert any(f"answer-template and answer-bare ({number})" in line for line in found.missing)
    else:
        assert (rows["all"].estimate.value, rows["all"].p_value) == (1, None)  # they agree in every draw


def test_groups_that_do_not_follow_the_draw_are_said_not_to(found: Found) -> None:
    """Kappa's groups under the corrected rule are each draw's own; the areas are those of the sample's."""
    stay = {(row.quantity, row.assignment) for row in found.statistics if "groups of the sample" in row.estimate.method}
    assert stay == {("auc", "corrected")}


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("names", [(KNOCKOUT, "patch-same"), ("patch-same", "answer-template"), (KNOCKOUT, "zeroing")])
@pytest.mark.parametrize("truth", ["all", "true", "false"])
def test_kappa_and_table_are_what_counting_gives(
    inputs: ExperimentInputs, found: Found, rule: str, names: tuple[str, str], truth: str
) -> None:
    calls = {one.method: one for one in method_calls(inputs, rule)}
    first, second = (calls[name] for name in names)
    inside = inputs.calls["plain"].correct & first.ran & second.ran
    if truth != "all":
        inside &= inputs.measured.labels == (truth == "true")
    a, b = first.sample()[inside], second.sample()[inside]
    row = pair(found, "kappa", *names, rule, truth)
    assert row.estimate.n == inside.sum()
    assert row.estimate.value == pytest.approx(cohen_kappa_score(a, b))
    counted = [(a & b).sum(), (a & ~b).sum(), (~a & b).sum(), (~a & ~b).sum()]
    table = [pair(found, name, *names, rule, truth).estimate for name in TABLE]
    assert [one.value for one in table] == counted
    assert all(one.ci_low <= one.value <= one.ci_high for one in table)
    assert pair(found, "both_q", *names, rule, truth).estimate.value == pytest.approx((a & b).mean())
    share = next(
        r
        for r in found.statistics
        if (r.quantity, r.variant, r.assignment, r.truth) == ("q_share", second.method, rule, truth)
    )
    own = (
        inputs.calls["plain"].correct
        & second.ran
        & (np.ones(N, bool) if truth == "all" else inputs.measured.labels == (truth == "true"))
    )
    assert share.estimate.value == pytest.approx(second.sample()[own].mean())


def test_auc_compares_scores_of_one_fold_only(inputs: ExperimentInputs, found: Found) -> None:
    calls = {one.method: one for one in method_calls(inputs, "plain")}
    inside = inputs.calls["plain"].correct
    wanted = auc(calls["patch-same"].score[inside], calls[KNOCKOUT].sample()[inside], inputs.measured.folds[inside])
    assert pair(found, "auc", "patch-same", KNOCKOUT).estimate.value == pytest.approx(float(wanted))


def test_a_rule_that_only_the_knockout_can_follow_is_compared_by_scores_alone(inputs: ExperimentInputs) -> None:
    left = {KNOCKOUT: np.where(ASKS, 0.1, 0.9) * inputs.measured.before[0]}
    inputs = replace(inputs, measured=replace(inputs.measured, refits=left))
    found = EXPERIMENT.run(inputs)
    rows = [row for row in found.statistics if row.assignment == "retained"]
    assert {row.quantity for row in rows} == {"auc"}
    assert {row.variant for row in rows} >= {KNOCKOUT, "patch-same"}
    assert pair(found, "auc", KNOCKOUT, KNOCKOUT, "retained").estimate.ci_low > 0.8
    inside = inputs.calls["retained"].correct
    score = {one.method: one.score for one in method_calls(inputs, "plain")}["patch-same"]
    wanted = auc(score[inside], ASKS[inside], inputs.measured.folds[inside])
    assert pair(found, "auc", "patch-same", KNOCKOUT, "retained").estimate.value == pytest.approx(float(wanted))


def place_of(before: float, runs: list[float]) -> Measured:
    """One layer, one fold, two true items that end as given; the second has one run of the knockout alone."""
    odds = np.full((3, 1, 2), before)
    return Measured(
        labels=np.array([True, True]),
        groups=np.arange(2),
        folds=np.zeros(2, np.int64),
        probes=("full", "a", "b"),
        before=odds,
        after={KNOCKOUT: -odds, "patch-random": np.broadcast_to(runs, (3, 1, len(runs))).copy()},
        ran={KNOCKOUT: np.arange(2), "patch-random": np.zeros(len(runs), np.int64)},
        n_cut={KNOCKOUT: np.ones(2, np.int64), "patch-random": np.ones(len(runs), np.int64)},
        reference=np.zeros((3, 1), np.int64),
    )


@given(runs=st.lists(st.floats(-5, 5).filter(lambda odds: odds != 0), min_size=1, max_size=6))
def test_the_majority_of_an_items_runs_decides_and_their_mean_if_it_is_a_tie(
    base: ExperimentInputs, runs: list[float]
) -> None:
    inputs = replace(base, measured=place_of(1.0, runs))
    _, patched = method_calls(inputs, "plain")
    flips = sum(odds < 0 for odds in runs)
    if 2 * flips == len(runs):
        wanted = bool(np.float64(np.mean(runs)) <= 0)
        if abs(np.mean(runs)) < 1e-9:
            return  # rounding may put it on either side
    else:
        wanted = 2 * flips > len(runs)
    assert bool(patched.sample()[0]) == wanted
    assert patched.ran.tolist() == [True, False]
    assert np.isnan(patched.score[1])
    lost = 100 * (1 / (1 + np.exp(-1)) - 1 / (1 + np.exp(-np.array(runs))))
    assert patched.score[0] == pytest.approx(lost.mean())


def test_the_corrected_rule_takes_each_methods_own_shift(base: ExperimentInputs) -> None:
    everyone = np.arange(N)
    before = base.measured.before[0, base.reference, everyone]
    moved = with_methods(base, patch_random=(everyone, before - 2))
    moved = replace(
        moved,
        measured=replace(moved.measured, after={**moved.measured.after, "patch-random": base.measured.before - 2}),
    )
    plain, corrected = (method_calls(moved, rule)[-1] for rule in RULES)
    right = base.calls["plain"].correct
    assert plain.sample()[right & LABELS].mean() > 0.3
    assert not corrected.sample()[right].any()
    assert np.abs(corrected.score).max() < 1e-3


def test_saliency_calls_as_many_as_the_knockout(base: ExperimentInputs) -> None:
    some = np.arange(0, N, 2) + (np.arange(0, N, 2) // 2) % 2  # both labels and pathways, half of the items
    values = np.where(ASKS, 0.8, 0.1)[some] + np.random.default_rng(0).normal(0, 0.01, len(some))
    values[3] = np.nan
    other = ItemValues("question_to_answer", some, -values, "loss")
    inputs = replace(base, earlier={"saliency": Found(values=(other, ItemValues("share", some, values, "log_odds")))})
    found = EXPERIMENT.run(inputs)
    for rule in RULES:
        knockout, saliency = method_calls(inputs, rule)
        known = np.zeros(N, dtype=bool)
        known[some] = np.isfinite(values)
        assert (saliency.ran == known).all()
        among = known & inputs.calls[rule].correct
        assert saliency.sample()[among].sum() == knockout.sample()[among].sum()
        assert (
            saliency.score[among][saliency.sample()[among]].min()
            >= saliency.score[among][~saliency.sample()[among]].max()
        )
        row = pair(found, "kappa", KNOCKOUT, SALIENCY, rule)
        assert row.estimate.value > 0.6
        assert row.estimate.n == among.sum()
        assert "as many as the knockout's" in row.estimate.method
        assert pair(found, "auc", SALIENCY, KNOCKOUT, rule).estimate.value > 0.8


def test_one_method_alone_has_nobody_to_agree_with(base: ExperimentInputs) -> None:
    found = EXPERIMENT.run(base)
    assert not found.statistics
    assert found.missing == (
        "agreement needs at least two methods, and only knockout was run; add --evidence patching,answer-only,saliency",
    )


def test_too_few_common_items_are_named(base: ExperimentInputs) -> None:
    few = np.arange(12)
    found = EXPERIMENT.run(with_methods(base, patch_same=(few, -SIGN[few])))
    assert not [row for row in found.statistics if row.truth in ("true", "false") and row.variant == "patch-same"]
    assert any("knockout and patch-same: only " in line and "true answers" in line for line in found.missing)
    assert any(line.startswith("auc of patch-same under the plain rule") for line in found.missing)


def test_controls_are_no_methods(found: Found) -> None:
    assert "random" not in {row.variant for row in found.statistics} | {row.against for row in found.statistics}
    assert {row.group for row in found.statistics} == {None, GROUPS[0]}
