"""Permuted labels: what is dealt out anew stays in its stratum, and its probes and areas are real ones."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from anchorscope.probes.crossfit import (
    PERMUTATIONS,
    make_splits,
    null_scores,
    permute_within_strata,
    permuted_areas,
    permuted_truth,
    refit_logits,
    share_at_least,
)
from anchorscope.probes.folds import grouped_folds, truth_strata
from anchorscope.probes.logistic import TrainingSets, fit_layers
from anchorscope.progress import Silent
from anchorscope.stats.auc import auc
from anchorscope.stats.streams import unnamed


@given(seed=st.integers(0, 2**32 - 1), n=st.integers(4, 60), n_strata=st.integers(1, 4))
def test_dealing_anew_keeps_every_stratum_as_it_is(
    seed: int, n: int, n_strata: int
) -> None:
    rng = np.random.default_rng(seed)
    labels, strata = rng.random(n) < 0.4, rng.integers(0, n_strata, n)
    dealt = permute_within_strata(labels, strata, 30, rng)
    assert dealt.shape == (30, n)
    for stratum in range(n_strata):
        inside = strata == stratum
        assert (dealt[:, inside].sum(axis=1) == labels[inside].sum()).all()
        assert (
            not 0 < labels[inside].sum() < inside.sum()
            or (dealt[:, inside] != labels[inside]).any()
        )


def test_probes_of_permuted_labels_are_those_fitted_one_by_one() -> None:
    rng = np.random.default_rng(3)
    states = torch.as_tensor(
        rng.normal(0, 1, (2, 60, 8)) * [9, 3, 1, 1, 1, 1, 1, 0.1] + 5,
        dtype=torch.float32,
    )
    labels = rng.random(60) < 0.5
    folds = np.arange(60) % 3
    splits = make_splits(labels, np.arange(60), folds, 0)
    dealt = permute_within_strata(labels, folds, 4, rng)
    strength = np.array([[0.1, 0.01, 0.001], [0.02, 0.05, 0.1]])
    found = null_scores(states, splits, strength, dealt, torch.device("cpu"), Silent())
    assert found.shape == (4, 2, 60)
    training = torch.as_tensor(splits.training)
    for permutation, row in enumerate(dealt):
        for layer in range(2):
            sets = TrainingSets(
                torch.as_tensor(row),
                training,
                training,
                torch.arange(3),
                torch.as_tensor(strength[layer]),
            )
            logits = fit_layers(states[layer][None], sets).logits[0]
            wanted = logits[torch.as_tensor(folds), torch.arange(60)]
            assert found[permutation, layer] == pytest.approx(wanted.numpy(), abs=2e-3)


@pytest.mark.parametrize(
    ("real", "null", "share"),
    [
        (0.7, [0.4, 0.5, 0.6], 1 / 4),  # the real labels count among the permutations
        (0.6, [0.4, 0.5, 0.6], 2 / 4),
        (0.1, [0.4, 0.5, 0.6], 1),
        (
            0.7,
            [0.4, np.nan, 0.6, np.nan, np.nan],
            1 / 3,
        ),  # those without a value do not
        (0.5, [0.4, np.nan, 0.6, np.nan, np.nan], 2 / 3),
        (0.5, [np.nan] * 3, None),
        (np.nan, [0.4, 0.6], None),
    ],
)
def test_the_share_of_permutations_that_reach_a_value(
    real: float, null: list[float], share: float | None
) -> None:
    assert share_at_least(real, np.array(null)) == (
        share if share is None else pytest.approx(share)
    )


def refit_of(
    signal: float, relations: list[str], seed: int, even: bool = True
) -> tuple[np.ndarray, float]:
    """AUC of permuted labels at one layer, and of the real ones; states know the relation, and the label somewhat."""
    rng = np.random.default_rng(seed)
    n = len(relations)
    labels = np.arange(n) % 2 == 0
    names, relation = np.unique(relations, return_inverse=True)
    states = (
        rng.normal(size=(3, n, 12))
        + 3 * rng.normal(size=(3, len(names), 12))[:, relation]
    )
    states += signal * labels[:, None] * rng.normal(size=12)
    strata = truth_strata(labels, relations if even else None)
    folds = grouped_folds(np.arange(n), strata, 4, unnamed(seed, "test", n))
    splits = make_splits(
        labels, np.arange(n), folds, 0, relations=relations if even else None
    )
    splits = replace(splits, strata=truth_strata(labels, relations))
    cut = torch.as_tensor(states, dtype=torch.float32)
    reference = np.array([1, 2, 1, 1])
    null = permuted_areas(
        cut, splits, reference, permuted_truth(splits, rng), "cpu", Silent()
    )
    logits = refit_logits("knockout", cut, splits, Silent())
    return null, float(auc(logits[reference[folds], np.arange(n)], labels, folds))


RELATIONS = [f"relation {index // 12}" for index in range(240)]


def test_chance_is_one_half_where_folds_are_even_and_lower_where_they_are_not() -> None:
    even, uneven = (refit_of(0.0, RELATIONS, 2, even)[0] for even in (True, False))
    assert even.shape == (PERMUTATIONS,)
    assert abs(even.mean() - 0.5) < 0.03
    assert uneven.mean() < 0.47


def test_a_signal_lies_above_its_permutations_and_none_among_them() -> None:
    null, real = refit_of(0.8, RELATIONS, 3)
    assert real > null.max()
    null, nothing = refit_of(0.0, RELATIONS, 4)
    assert null.min() < nothing < null.max()
