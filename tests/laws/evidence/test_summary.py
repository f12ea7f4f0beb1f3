"""The summary: shares, their null, agreement, the controls; checked where the answer is known."""

import numpy as np
import pytest

from anchorscope.evidence.delta_p import Measured, pathways, permuted_flip_share
from anchorscope.evidence.draws import Draws
from anchorscope.evidence.scores import SummaryRow
from anchorscope.evidence.tables import summarise
from anchorscope.stats.estimate import Estimate, group_weights
from evidence_synthetic import half_lose_their_signal, random_measured, sigmoid

Q, A = "Q-Anchored", "A-Anchored"


def drawn(measured: Measured, resamples: int = 100) -> Draws:
    return Draws.of(group_weights(measured.groups, resamples, np.random.default_rng(1)))


class Summary:
    def __init__(self, measured: Measured) -> None:
        self.rows: list[SummaryRow] = summarise(measured, drawn(measured))

    def __call__(self, quantity: str, **columns: str | None) -> Estimate:
        found = [
            row.estimate
            for row in self.rows
            if row.quantity == quantity
            and all(getattr(row, name) == value for name, value in columns.items())
        ]
        assert len(found) == 1, (quantity, columns, len(found))
        return found[0]


def test_shares_of_groups_and_of_true_answers_where_half_lose_their_signal() -> None:
    summary = Summary(half_lose_their_signal())
    for group in (Q, A):
        share = summary("group_share", group=group)
        true = summary("true_share", group=group)
        assert (share.value, share.n) == (0.5, 48)
        assert (true.value, true.n) == (0.5, 24)
        assert share.ci_low < 0.5 < share.ci_high
        assert true.ci_low < 0.5 < true.ci_high
    assert summary("null_share").value == 0.5
    assert summary("kappa").value == pytest.approx(0)
    lost = 100 * (sigmoid(-0.5) - sigmoid(2))
    assert summary("delta_p_reference", group=Q).value == pytest.approx(lost)
    assert summary("delta_p_reference", group=A).value == pytest.approx(0)
    assert summary("flip_rate", intervention="knockout", group=None).value == 0.5
    assert summary("flip_rate", intervention="knockout", group=Q).value == 1
    assert summary("flip_rate", intervention="knockout", group=A).value == 0
    assert summary("delta_p_reference_difference").value == pytest.approx(lost)
    assert summary("mean_probability_before").value == pytest.approx(0.5)
    assert summary("mean_probability_after").value == pytest.approx(0.5)


def test_rows_agree_with_a_slow_count() -> None:
    measured = random_measured(seed=13)
    summary, calls = Summary(measured), pathways(measured)
    layers = measured.reference[measured.folds]
    items = np.arange(len(measured.labels))
    before, after = (
        measured.before[layers, items],
        measured.after["knockout"][layers, items],
    )
    right = (before > 0) == measured.labels
    share = summary("group_share", group=Q)
    assert (share.value, share.n) == (
        pytest.approx(calls.members(Q).sum() / right.sum()),
        right.sum(),
    )
    true = summary("true_share", group=A)
    assert true.value == pytest.approx(measured.labels[calls.members(A)].mean())
    null = permuted_flip_share(before, after, measured.labels, measured.folds)
    assert summary("null_share").value == null
    agreed = ((before > 0) == (after > 0)).mean()
    p, q = (before > 0).mean(), (after > 0).mean()
    chance = p * q + (1 - p) * (1 - q)
    assert summary("kappa").value == pytest.approx((agreed - chance) / (1 - chance))
    assert summary(
        "mean_probability_before", intervention="knockout"
    ).value == pytest.approx(sigmoid(before).mean())
    assert summary(
        "mean_probability_after", intervention="knockout"
    ).value == pytest.approx(sigmoid(after).mean())
    delta = 100 * (sigmoid(after) - sigmoid(before)) * np.where(measured.labels, 1, -1)
    reference = summary("delta_p_reference", intervention="knockout", group=Q)
    assert reference.value == pytest.approx(delta[calls.members(Q)].mean())
    assert reference.ci_low < reference.value < reference.ci_high
