"""The summary: shares, their null, agreement, the controls; checked where the answer is known."""

import numpy as np
import pytest

from anchorscope.evidence.delta_p import cell_sums, correct_shift
from anchorscope.evidence.draws import Draws
from anchorscope.evidence.measured import Measured, permuted_flip_share, plain_calls
from anchorscope.evidence.scores import SummaryRow
from anchorscope.evidence.tables import summarise
from anchorscope.stats.estimate import Estimate, group_weights
from evidence_synthetic import half_lose_their_signal, random_measured, sigmoid

Q, A = "Q-Anchored", "A-Anchored"


def drawn(measured: Measured, resamples: int = 100) -> Draws:
    return Draws.of(group_weights(measured.groups, resamples, np.random.default_rng(1)))


class Summary:
    def __init__(self, measured: Measured) -> None:
        self.corrected = correct_shift(measured, drawn(measured))
        self.sums = {name: cell_sums(self.corrected, name) for name in measured.after}
        self.rows: list[SummaryRow] = summarise(self.corrected, self.sums)

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
    for assignment in ("plain", "corrected"):
        for group in (Q, A):
            share = summary("group_share", assignment=assignment, group=group)
            true = summary("true_share", assignment=assignment, group=group)
            assert (share.value, share.n) == (0.5, 48)
            assert (true.value, true.n) == (0.5, 24)
            if (
                assignment == "plain"
            ):  # scores with so many ties have no shift that fits a resample
                assert share.ci_low < 0.5 < share.ci_high
                assert true.ci_low < 0.5 < true.ci_high
        assert summary("null_share", assignment=assignment).value == 0.5
        assert summary("kappa", assignment=assignment).value == pytest.approx(0)
    lost = 100 * (sigmoid(-0.5) - sigmoid(2))
    for assignment in ("plain", "corrected", "cross-fitted"):
        assert summary(
            "delta_p_reference", assignment=assignment, group=Q
        ).value == pytest.approx(lost)
        assert summary(
            "delta_p_reference", assignment=assignment, group=A
        ).value == pytest.approx(0)
    assert summary("flip_rate", intervention="knockout", group=None).value == 0.5
    assert summary("flip_rate", intervention="knockout", group=Q).value == 1
    assert summary("flip_rate", intervention="knockout", group=A).value == 0
    for assignment in ("plain", "corrected", "cross-fitted"):
        between = summary(
            "delta_p_reference_difference",
            assignment=assignment,
            intervention="knockout",
        )
        assert between.value == pytest.approx(lost)
    assert summary("mean_probability_before").value == pytest.approx(0.5)
    assert summary("mean_probability_after").value == pytest.approx(0.5)


def test_rows_agree_with_a_slow_count() -> None:
    measured = random_measured(seed=13)
    summary, calls = Summary(measured), plain_calls(measured)
    index = measured.probe("full")
    layers = measured.reference[index][measured.folds]
    items = np.arange(len(measured.labels))
    before, after = (
        measured.before[index, layers, items],
        measured.after["knockout"][index, layers, items],
    )
    right = (before > 0) == measured.labels
    share = summary("group_share", assignment="plain", group=Q)
    assert (share.value, share.n) == (
        pytest.approx(calls.members(Q).sum() / right.sum()),
        right.sum(),
    )
    true = summary("true_share", assignment="plain", group=A)
    assert true.value == pytest.approx(measured.labels[calls.members(A)].mean())
    null = permuted_flip_share(before, after, measured.labels, measured.folds)
    assert summary("null_share", assignment="plain").value == null
    agreed = ((before > 0) == (after > 0)).mean()
    p, q = (before > 0).mean(), (after > 0).mean()
    chance = p * q + (1 - p) * (1 - q)
    assert summary("kappa", assignment="plain").value == pytest.approx(
        (agreed - chance) / (1 - chance)
    )
    assert summary(
        "mean_probability_before", intervention="knockout"
    ).value == pytest.approx(sigmoid(before).mean())
    assert summary(
        "mean_probability_after", intervention="knockout"
    ).value == pytest.approx(sigmoid(after).mean())
    delta = 100 * (sigmoid(after) - sigmoid(before)) * np.where(measured.labels, 1, -1)
    reference = summary(
        "delta_p_reference", assignment="plain", intervention="knockout", group=Q
    )
    assert reference.value == pytest.approx(delta[calls.members(Q)].mean())
    assert reference.ci_low < reference.value < reference.ci_high
