"""Shares, agreement and differences of one way to assign pathways, against counting by hand."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import cohen_kappa_score

from anchorscope.evidence.draws import Draws
from anchorscope.evidence.experiments.assignment_rows import Assigned, Few, kappa_row, mean_rows, notes, share_rows
from anchorscope.evidence.experiments.experiment import Statistic
from anchorscope.stats.estimate import group_weights

Q, A = "Q-Anchored", "A-Anchored"


def make_way(correct: np.ndarray, flipped: np.ndarray, variant: str = "so") -> Assigned:
    return Assigned(variant, correct, torch.as_tensor(flipped)[:, None], "plain", 3)


def draws_of(n: int, resamples: int = 200, seed: int = 0) -> Draws:
    return Draws.of(group_weights(np.arange(n), resamples, np.random.default_rng(seed)))


def value(rows: list[Statistic], quantity: str, group: str | None = None, truth: str | None = "all") -> float:
    (row,) = [one for one in rows if (one.quantity, one.group, one.truth) == (quantity, group, truth)]
    return row.estimate.value


@given(seed=st.integers(0, 2**32 - 1))
def test_shares_are_what_counting_gives(seed: int) -> None:
    rng = np.random.default_rng(seed)
    labels, correct, flipped = (rng.random(200) < chance for chance in (0.5, 0.8, 0.4))
    rows, few = share_rows(make_way(correct, flipped), labels, draws_of(200, 20))
    assert not few
    assert value(rows, "q_share") == pytest.approx(flipped[correct].mean())
    of_truth = {"true": flipped[correct & labels].mean(), "false": flipped[correct & ~labels].mean()}
    for truth, share in of_truth.items():
        assert value(rows, "q_share", truth=truth) == pytest.approx(share)
    assert value(rows, "label_bias", truth=None) == pytest.approx(of_truth["true"] - of_truth["false"])
    true = [labels[correct & flipped].mean(), labels[correct & ~flipped].mean()]
    for group, share in zip((Q, A), true, strict=True):
        assert value(rows, "true_share", group) == pytest.approx(share)
    assert value(rows, "true_share_difference") == pytest.approx(true[0] - true[1])
    assert all((row.variant, row.assignment, row.layer) == ("so", "plain", 3) for row in rows)


def test_draws_that_call_an_item_differently_are_counted_with_their_own_calls() -> None:
    rng = np.random.default_rng(1)
    draws = draws_of(100, 50)
    labels, correct = rng.random(100) < 0.5, rng.random(100) < 0.9
    flipped = torch.as_tensor(rng.random((100, 51)) < 0.5)
    rows, _ = share_rows(Assigned("so", correct, flipped), labels, draws)
    counts = draws.counts.numpy()[correct]
    shares = (counts * flipped.numpy()[correct]).sum(axis=0) / counts.sum(axis=0)
    (row,) = [one for one in rows if one.quantity == "q_share" and one.truth == "all"]
    assert row.estimate.value == pytest.approx(shares[0])
    assert (row.estimate.ci_low, row.estimate.ci_high) == pytest.approx(np.percentile(shares[1:], [2.5, 97.5]))


def test_a_bias_is_told_from_none() -> None:
    rng = np.random.default_rng(2)
    labels, everyone = np.arange(300) % 2 == 0, np.ones(300, bool)
    fair, unfair = rng.random(300) < 0.5, rng.random(300) < np.where(labels, 0.8, 0.2)
    for flipped, biased in ((fair, False), (unfair, True)):
        rows, _ = share_rows(make_way(everyone, flipped), labels, draws_of(300))
        for quantity in ("label_bias", "true_share_difference"):
            (row,) = [one for one in rows if one.quantity == quantity]
            assert (row.estimate.ci_low > 0) == biased
            assert (row.estimate.ci_low < 0 < row.estimate.ci_high) != biased
            assert row.p_value is not None
            assert (row.p_value < 0.01) == biased
            assert row.effect_size is not None
            assert (row.effect_size > 1) == biased


def test_a_group_of_a_few_gets_no_row_and_a_reason() -> None:
    labels = np.arange(100) % 2 == 0
    flipped = np.arange(100) < 9
    rows, few = share_rows(make_way(np.ones(100, bool), flipped), labels, draws_of(100))
    assert few == [Few("are Q-Anchored", "so", 9)]
    quantities = {(row.quantity, row.group) for row in rows}
    assert ("true_share", A) in quantities
    assert ("true_share", Q) not in quantities
    assert ("true_share_difference", None) not in quantities


def test_of_nobody_there_is_no_bias() -> None:
    labels = np.arange(100) % 2 == 0
    for flipped in (np.zeros(100, bool), np.ones(100, bool)):
        rows, _ = share_rows(make_way(np.ones(100, bool), flipped), labels, draws_of(100))
        assert not [row for row in rows if row.quantity == "label_bias"]


def test_labels_of_a_few_get_no_row_and_a_reason() -> None:
    labels = np.arange(100) < 95
    rows, few = share_rows(make_way(np.ones(100, bool), np.arange(100) % 2 == 0), labels, draws_of(100))
    assert few == [Few("are called right and false", "so", 5)]
    assert [row.truth for row in rows if row.quantity == "q_share"] == ["all", "true"]
    assert not [row for row in rows if row.quantity == "label_bias"]


@given(seed=st.integers(0, 2**32 - 1))
def test_kappa_is_scikit_learns_among_the_items_called_right_both_ways(seed: int) -> None:
    rng = np.random.default_rng(seed)
    first, second = (make_way(rng.random(200) < 0.8, rng.random(200) < 0.5) for _ in range(2))
    (row,), few = kappa_row(first, second, "other", draws_of(200, 20))
    both = first.correct & second.correct
    wanted = cohen_kappa_score(first.flipped[both, 0], second.flipped[both, 0])
    assert not few
    assert row.estimate.value == pytest.approx(wanted)
    assert row.estimate.n == both.sum()
    assert row.against == "other"


def test_a_way_agrees_with_itself() -> None:
    way = make_way(np.ones(60, bool), np.arange(60) % 2 == 0)
    (row,), _ = kappa_row(way, way, "itself", draws_of(60))
    assert (row.estimate.value, row.estimate.ci_low, row.estimate.ci_high) == (1, 1, 1)


def test_where_a_way_calls_all_alike_there_is_no_kappa() -> None:
    way = make_way(np.ones(60, bool), np.arange(60) % 2 == 0)
    alike = make_way(np.ones(60, bool), np.ones(60, bool), "alike")
    assert kappa_row(alike, way, "other", draws_of(60)) == (
        [],
        [Few("are of the rarer pathway, for kappa with other,", "alike", 0)],
    )
    nobody = make_way(np.arange(60) < 5, np.arange(60) % 2 == 0)
    assert kappa_row(nobody, way, "other", draws_of(60))[0] == []


def test_means_of_groups_leave_out_what_is_not_known() -> None:
    labels = np.arange(100) % 2 == 0
    flipped = (np.arange(100) // 2) % 2 == 0
    values = np.where(flipped, -30.0, -5.0) + np.where(labels, 1.0, -1.0)
    values[:2] = np.nan  # one true and one false answer, both Q-Anchored
    rows, few = mean_rows(make_way(np.ones(100, bool), flipped), "delta_p", values, labels, draws_of(100))
    assert not few
    assert value(rows, "delta_p", Q) == pytest.approx(-30)
    assert value(rows, "delta_p", A, "true") == pytest.approx(-4)
    assert value(rows, "delta_p", Q, "false") == pytest.approx(-31)
    assert value(rows, "delta_p_difference") == pytest.approx(-25)
    (row,) = [one for one in rows if one.quantity == "delta_p" and one.group == Q and one.truth == "all"]
    assert row.estimate.n == 48
    (row,) = [one for one in rows if one.quantity == "delta_p_difference" and one.truth == "true"]
    assert row.p_value is None  # all draws agree to the last bit: no standard error
    assert row.effect_size is None


def test_reasons_of_many_ways_are_one_line() -> None:
    few = [Few("are Q-Anchored", f"l* − {move}", move) for move in range(1, 8)] + [Few("are true", "l*", 3)]
    assert notes(few) == [
        "only 1 to 7 items are Q-Anchored under l* − 1, l* − 2, l* − 3, l* − 4 and 3 more, 10 needed",
        "only 3 items are true under l*, 10 needed",
    ]
    assert notes([]) == []
