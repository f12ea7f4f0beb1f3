"""Lost evidence: a slow reference by definition, the closed form of Gaussian evidence, and the floor."""

import numpy as np
import pytest
import torch

from anchorscope.question_share.evidence import GROUPS, Lost, Spectrum
from anchorscope.question_share.shares import ShareDraws


def shares_of(lost: Lost) -> np.ndarray:
    """Λ of every group, [problem, group]."""
    return (lost.members * lost.lost[:, None]).sum(-1) / (lost.members * lost.had[:, None]).sum(-1)


def ridge(states, target, penalty, learned, asked):
    """Predictions of the asked items by ridge regression on others, and what enters its variance."""
    mean, level = states[learned].mean(0), target[learned].mean()
    centred = states[learned] - mean
    gram = centred.T @ centred
    weight = np.linalg.solve(gram + penalty * np.eye(states.shape[1]), centred.T @ (target[learned] - level))
    towards = np.linalg.solve(gram + penalty * np.eye(states.shape[1]), (states[asked] - mean).T)
    return level + (states[asked] - mean) @ weight, gram, towards


def lost_by_definition(case, evidence, problem):
    """c and d of one problem, looped over splits, halves and folds."""
    states = case.cut[problem].double().numpy()
    doubled = case.cut[problem : problem + 1].double()
    sign = np.where(case.labels, 1.0, -1.0)
    by_probe = evidence.by_probe[problem].double().numpy()
    of_s = float(Spectrum(doubled).penalty(torch.from_numpy(sign)[None, None])[0])
    of_z = 0.1 * float(Spectrum(doubled).penalty(torch.from_numpy(by_probe).flatten(0, 1)[None])[0])
    lost, had = np.zeros(len(sign)), np.zeros(len(sign))
    for split, first in enumerate(case.halves.first):
        for half in (True, False):
            z = by_probe[split, 1 if half else 0]  # the probe of the other half
            for fold in range(5):
                inside = (first == half) & (case.halves.folds[split] == fold)
                learned = (first == half) & (case.halves.folds[split] != fold)
                s_hat, gram, towards_s = ridge(states, sign, of_s, learned, inside)
                z_hat, _, towards_z = ridge(states, z, of_z, learned, inside)
                inflation = np.einsum("ki,kl,li->i", towards_s, gram, towards_z) + 1 / learned.sum()
                lost[inside] += (sign[inside] - s_hat) * (z[inside] - z_hat) / (1 + inflation)
                had[inside] += sign[inside] * z[inside]
    return lost / len(case.halves.first), had / len(case.halves.first)


def test_lost_and_had_are_what_the_definition_says(make_case):
    case = make_case(90, 6, 0.8, 0.6, problems=2, splits=3)
    found, evidence = case.lost(), case.evidence()
    for problem in range(2):
        lost, had = lost_by_definition(case, evidence, problem)
        np.testing.assert_allclose(found.lost[problem], lost, rtol=1e-6, atol=1e-9)
        np.testing.assert_allclose(found.had[problem], had, rtol=1e-6, atol=1e-9)
        assert shares_of(found)[problem, 0] == pytest.approx(lost.sum() / had.sum())


def test_no_probe_scores_an_item_that_it_learned_from(make_case):
    case = make_case(90, 6, 0.8, 0.6, splits=3)
    evidence = case.evidence()
    z = evidence.held_out(case.halves)[0]
    for split, first in enumerate(case.halves.first):
        learned = case.halves.training.reshape(3, 2, -1)[split]
        assert not (learned[1] & first).any()
        assert not (learned[0] & ~first).any()
        assert torch.equal(z[split][first], evidence.by_probe[0, split, 1][first])


@pytest.mark.parametrize(("question", "answer"), [(0.65, 0.65), (0.8, 0.3), (0.3, 0.8), (0.7, 0.0)])
def test_gaussian_evidence_has_the_share_of_the_closed_form(make_case, question, answer):
    """Evidence that both parts have counts as the answer's: [μ_q²/(1 + μ_a²)] / (μ_q² + μ_a²)."""
    case = make_case(800, 12, question, answer, problems=8, seed=3)
    shares = shares_of(case.lost())[:, 0]
    expected = question**2 / (1 + answer**2) / (question**2 + answer**2)
    error = shares.std(ddof=1) / np.sqrt(len(shares))
    assert error < 0.04
    assert shares.mean() == pytest.approx(expected, abs=3.5 * error)


def test_nothing_is_lost_where_nothing_is_cut(make_case):
    case = make_case(600, 10, 0.6, 0.6, problems=4, seed=1)
    assert np.abs(shares_of(case.lost(case.clean))[:, 0]).max() < 0.01


def test_everything_is_lost_where_all_of_the_evidence_was_in_the_question(make_case):
    case = make_case(600, 10, 0.9, 0.0, problems=4, seed=2)
    assert shares_of(case.lost())[:, 0].mean() == pytest.approx(1, abs=0.06)


def test_groups_are_by_truth_and_in_thirds_of_every_fold(make_case):
    case = make_case(150, 6, 0.8, 0.6)
    found = case.lost()
    members = dict(zip(GROUPS, found.members[0], strict=True))
    assert members["all"].all()
    assert np.array_equal(members["true"], case.labels)
    assert np.array_equal(members["false"], ~case.labels)
    thirds = np.stack([members[name] for name in GROUPS[3:]])
    assert (thirds.sum(0) == 1).all()
    for fold in range(5):
        inside = case.folds == fold
        assert thirds[:, inside].sum(1).tolist() == [10, 10, 10]
        predicted = found.predicted[0]
        assert predicted[inside & thirds[0]].max() <= predicted[inside & thirds[1]].min()
        assert predicted[inside & thirds[1]].max() <= predicted[inside & thirds[2]].min()


def test_the_first_draw_is_the_sample_and_intervals_surround_it(make_case):
    case = make_case(400, 8, 0.8, 0.6, problems=2)
    found, rng = case.lost(), np.random.default_rng(0)
    weights = rng.multinomial(400, np.full(400, 1 / 400), size=400).astype(np.float32)
    draws = ShareDraws(weights, case.halves.n_splits, rng)
    for group in range(len(GROUPS)):
        shares = draws.shares(found, group)
        np.testing.assert_allclose(shares[:, 0], shares_of(found)[:, group], rtol=1e-4)
        low, high = np.percentile(shares[:, 1:], [2.5, 97.5], axis=1)
        assert (low < shares[:, 0]).all()
        assert (shares[:, 0] < high).all()
    assert draws.has_evidence(found.had).all()
    assert not draws.has_evidence(-found.had).any()
