"""need(V) and the parts: a slow reference by definition, what is so in Gaussian worlds, and how items move them."""

import numpy as np
import pytest
import torch

from anchorscope.evidence_parts.need import UNDERSMOOTHED, Terms, best_penalty
from anchorscope.evidence_parts.parts import (
    ANSWER,
    BEFORE,
    BOTH,
    CUT,
    EITHER,
    PARTS,
    QUESTION,
    TOGETHER,
    evidence_parts,
    needs_by_name,
    side_by_side,
    terms_by_name,
)


def ridge(states, target, penalty, learned, asked):
    """Predictions of the asked items by ridge regression on others."""
    mean, level = states[learned].mean(0), target[learned].mean()
    centred = states[learned] - mean
    gram = centred.T @ centred + penalty * np.eye(states.shape[1])
    return level + (states[asked] - mean) @ np.linalg.solve(
        gram, centred.T @ (target[learned] - level)
    )


def terms_by_definition(case, evidence, problem):
    """The four terms of one problem, looped over splits, halves and folds."""
    states = case.cut[problem].double().numpy()
    sign = np.where(case.labels, 1.0, -1.0)
    by_probe = evidence.by_probe[problem].double()
    best = best_penalty(
        case.cut[problem : problem + 1].double(), by_probe.flatten(0, 1)[None]
    )
    penalty, by_probe = UNDERSMOOTHED * float(best[0]), by_probe.numpy()
    terms = np.zeros((4, len(sign)))
    for split, first in enumerate(case.halves.first):
        for half in (True, False):
            z, mine = (
                by_probe[split, 1 if half else 0],
                first == half,
            )  # the probe of the other half
            terms[2, mine] += (sign - sign[mine].mean())[mine] * (z - z[mine].mean())[
                mine
            ]
            terms[3, mine] += np.square(sign - sign[mine].mean())[mine]
            for fold in range(5):
                inside = mine & (case.halves.folds[split] == fold)
                learned = mine & (case.halves.folds[split] != fold)
                s_left, z_left = (
                    (target[inside] - ridge(states, target, penalty, learned, inside))
                    for target in (sign, z)
                )
                terms[0, inside] += s_left * z_left
                terms[1, inside] += np.square(s_left)
    return terms / len(case.halves.first)


def test_the_terms_are_what_the_definition_says(make_case):
    case = make_case(90, 6, 0.8, 0.6, problems=2, splits=3)
    terms, evidence = case.terms(), case.evidence()
    for problem in range(2):
        wanted = terms_by_definition(case, evidence, problem)
        for measured, expected in zip(terms[:4], wanted, strict=True):
            np.testing.assert_allclose(
                measured[problem], expected, rtol=2e-5, atol=2e-6
            )
        lost, left, had, label = wanted.sum(1)
        assert terms.need().value[problem] == pytest.approx(
            (lost / left) / (had / label), rel=1e-4
        )


@pytest.mark.parametrize(
    ("strength", "true_share"), [(0.4, 0.5), (0.7, 0.2), (1.2, 0.5)]
)
def test_half_of_the_evidence_is_half_whatever_the_auc_and_the_base_rate(
    make_case, strength, true_share
):
    case = make_case(
        800, 12, strength, strength, problems=8, seed=3, true_share=true_share
    )
    needs = case.terms().need().value
    error = needs.std(ddof=1) / np.sqrt(len(needs))
    assert error < 0.06
    assert needs.mean() == pytest.approx(0.5, abs=3.5 * error)


def test_nothing_is_needed_of_a_view_that_holds_everything(make_case):
    case = make_case(600, 10, 0.6, 0.6, problems=4, seed=1)
    assert np.abs(case.terms(case.clean).need().value).max() < 0.01


def test_everything_is_needed_where_all_of_the_evidence_was_in_the_question(make_case):
    case = make_case(600, 10, 0.9, 0.0, problems=4, seed=2)
    assert case.terms().need().value.mean() == pytest.approx(1, abs=0.05)


def test_everything_is_needed_of_a_view_that_is_the_same_for_all_items(make_case):
    case = make_case(120, 6, 0.9, 0.9, splits=2)
    assert case.terms(torch.zeros_like(case.cut)).need().value == pytest.approx(
        1, abs=0.02
    )


def test_a_share_of_no_evidence_is_undefined_without_a_warning(make_case):
    """Such as that of a layer whose state is the same for every item: its probe says nothing."""
    case = make_case(90, 6, 0.8, 0.6, problems=3, splits=3)
    whole = case.terms()
    for states in (case.clean, case.cut):
        states[1] = 0.5
    nothing = case.terms()
    infinite = whole._replace(lost=np.where(whole.lost > 0, np.inf, whole.lost))
    for terms, undefined in (
        (nothing, [False, True, False]),
        (whole._replace(label_left=0 * whole.label_left), [True] * 3),
        (whole._replace(label=0 * whole.label), [True] * 3),
        (infinite, [True] * 3),
    ):
        share = terms.need()
        width = share.half_width(np.arange(90))
        known = ~np.array(undefined)
        for values in (share.value, width, (1 - share - share).value):
            np.testing.assert_array_equal(np.isfinite(values), known)
        np.testing.assert_allclose(
            share.value[known], whole.need().value[known], rtol=1e-12
        )


def test_the_standard_error_is_the_spread_over_replicas_of_a_view_with_many_directions(
    make_case,
):
    """Without what items teach the regressions it is 0.85 of it."""
    share = make_case(120, 20, 0.9, 0.9, problems=120, splits=4).terms().need()
    expected = np.sqrt(np.square(share.standard_error(np.arange(120))).mean())
    assert 0.95 < expected / share.value.std() < 1.25


def test_permuted_labels_have_no_evidence_that_needs_anything(make_case):
    """The world in which it must say no: probes of labels that mean nothing."""
    case = make_case(600, 10, 0.0, 0.0, problems=6, seed=4)
    terms = case.terms()
    real = make_case(600, 10, 0.7, 0.7, problems=6, seed=4).terms()
    share = terms._replace(had=real.had, label=real.label).need()
    assert (np.abs(share.value) < 0.05).all()


def test_the_influence_is_how_the_need_moves_with_an_items_weight(make_case):
    terms = make_case(120, 6, 0.8, 0.6, splits=3).terms()
    still = terms._replace(taught=np.zeros_like(terms.taught))
    share, step = still.need(), 1e-3
    for item in range(0, 120, 17):
        weights = np.ones(120)
        weights[item] += step
        heavier = Terms(
            *(part * weights for part in still[:4]), still.taught, still.by_split
        )
        slope = (heavier.need().value[0] - share.value[0]) / step
        assert share.influence[0, item] == pytest.approx(slope, rel=0.02, abs=1e-5)
    assert share.influence.sum() == pytest.approx(0, abs=1e-4)


def test_intervals_count_clusters_and_splits(make_case):
    share = make_case(240, 6, 0.8, 0.6, splits=4).terms().need()
    alone, pairs = np.arange(240), np.arange(240) // 2
    assert share.standard_error(alone) != pytest.approx(share.standard_error(pairs))
    assert share.half_width(alone, pairs) == pytest.approx(
        max(share.half_width(alone), share.half_width(pairs))
    )
    assert (share - share).half_width(alone) == pytest.approx(0)
    few = share.half_width(np.arange(240) % 3) / share.standard_error(
        np.arange(240) % 3
    )
    # Student's t with two degrees of freedom
    assert few == pytest.approx(4.303, abs=0.01)


def test_parts_sum_to_one_and_survive_storing(make_case):
    case = make_case(240, 6, 0.8, 0.6, problems=2)
    before = torch.randn(2, 240, 6, generator=torch.Generator().manual_seed(0))
    needs = {
        CUT: case.terms(),
        BEFORE: case.terms(before),
        BOTH: case.terms(side_by_side(before, case.cut)),
    }
    parts = evidence_parts(needs)
    np.testing.assert_allclose(sum(parts[part].value for part in PARTS), 1.0)
    np.testing.assert_allclose(
        sum(parts[part].influence for part in PARTS), 0.0, atol=1e-6
    )
    # The state before the answer tells nothing here: what needs the question needs the answer as well.
    assert np.abs(parts[QUESTION].value).max() < 0.05
    assert np.abs(parts[EITHER].value).max() < 0.05
    assert parts[TOGETHER].value.mean() + parts[ANSWER].value.mean() == pytest.approx(
        1, abs=0.05
    )
    again = evidence_parts(
        needs_by_name(terms_by_name({"knockout": needs}))["knockout"]
    )
    assert all(np.array_equal(again[part].value, parts[part].value) for part in parts)
