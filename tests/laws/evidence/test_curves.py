"""Curves: mean ΔP of a group per layer, where the answer is known, and by a slow reading of the definition."""

import numpy as np
import pytest

from anchorscope.evidence.delta_p import (
    GROUPS,
    TRUTHS,
    Curve,
    Measured,
    curves,
    noise_at_reference,
)
from anchorscope.evidence.draws import Draws
from anchorscope.stats.estimate import group_weights
from evidence_synthetic import half_lose_their_signal, random_measured, sigmoid

Q, A = GROUPS
Keyed = dict[tuple[str, str], Curve]


def drawn_curves(measured: Measured, intervention: str = "knockout") -> Keyed:
    """With the intervals of 60 resamples."""
    weights = group_weights(measured.groups, 60, np.random.default_rng(1))
    made = curves(measured, intervention, Draws.of(weights))
    found = {(curve.group, curve.truth): curve for curve in made}
    assert len(found) == len(made) == len(GROUPS) * len(TRUTHS)
    return found


def slow_delta(measured: Measured, intervention: str, layer: int, item: int) -> float:
    """ΔP of one item as docs/method.md defines it."""
    place = measured.ran[intervention].tolist().index(item)
    before = sigmoid(measured.before[layer, item])
    after = sigmoid(measured.after[intervention][layer, place])
    return 100 * float(after - before) * (1 if measured.labels[item] else -1)


def slow_group(measured: Measured) -> list[str | None]:
    """The pathway of each item by the rule."""
    noise = noise_at_reference(measured)
    found: list[str | None] = []
    for item, label in enumerate(measured.labels):
        layer = measured.reference[measured.folds[item]]
        x = measured.before[layer, item]
        y = measured.after["knockout"][layer, item]
        if (x > 0) != label:
            found.append(None)
        elif (y > 0) != (x > 0) and abs(y - x) > noise:
            found.append(Q)
        else:
            found.append(A)
    return found


def kept(measured: Measured, intervention: str, truth: str) -> list[int]:
    """The items of a truth label that were run."""
    wanted = {"all": (True, False), "true": (True,), "false": (False,)}[truth]
    return [
        int(item)
        for item in measured.ran[intervention]
        if bool(measured.labels[item]) in wanted
    ]


def test_half_of_the_items_lose_their_signal() -> None:
    found = drawn_curves(half_lose_their_signal())
    lost = 100 * (sigmoid(-0.5) - sigmoid(2))
    for truth, n in (("all", 24), ("true", 12), ("false", 12)):
        assert found[Q, truth].delta_p == pytest.approx(lost)
        assert found[A, truth].delta_p == pytest.approx(0)
        assert found[Q, truth].n == found[A, truth].n == found[Q, truth].n_groups == n


def test_a_common_shift_alone_makes_two_groups() -> None:
    """Every item loses the same log-odds, and nothing tells one pathway from another: the groups are the labels."""
    found = drawn_curves(half_lose_their_signal(shift=-3))
    assert (found[Q, "true"].n, found[Q, "false"].n) == (24, 0)
    assert (found[A, "true"].n, found[A, "false"].n) == (0, 24)
    assert (found[Q, "all"].delta_p < -50).all()
    assert (found[A, "all"].delta_p > 0).all()


@pytest.mark.parametrize("intervention", ["knockout", "random", "none"])
def test_curves_by_a_slow_reading_of_the_definition(intervention: str) -> None:
    measured = random_measured(seed=7)
    groups = slow_group(measured)
    for (group, truth), curve in drawn_curves(measured, intervention).items():
        items = [
            item
            for item in kept(measured, intervention, truth)
            if groups[item] == group
        ]
        assert curve.n == len(items) > 2
        assert curve.n_groups == len({measured.groups[item] for item in items})
        for layer in range(measured.n_layers):
            changes = [
                slow_delta(measured, intervention, layer, item) for item in items
            ]
            assert curve.delta_p[layer] == pytest.approx(np.mean(changes))


def test_every_draw_is_the_mean_over_the_items_that_it_holds() -> None:
    measured = random_measured(seed=21)
    weights = group_weights(measured.groups, 12, np.random.default_rng(1))
    groups = slow_group(measured)
    for curve in curves(measured, "none", Draws.of(weights)):
        items = [
            item
            for item in kept(measured, "none", curve.truth)
            if groups[item] == curve.group
        ]
        changes = [slow_delta(measured, "none", 1, item) for item in items]
        for draw, counts in enumerate(weights, start=1):
            wanted = np.average(changes, weights=counts[items])
            assert float(curve.samples[1, draw]) == pytest.approx(wanted)


def test_the_reference_layer_moves_and_stays_within_the_model() -> None:
    measured = random_measured(seed=7)
    draws = Draws.of(group_weights(measured.groups, 2, np.random.default_rng(1)))
    last = Measured(
        **{**vars(measured), "reference": np.full_like(measured.reference, 3)}
    )
    moved = curves(measured, "knockout", draws, move=99)
    wanted = curves(last, "knockout", draws)
    for curve, other in zip(moved, wanted, strict=True):
        assert (curve.n, curve.delta_p.tolist()) == (other.n, other.delta_p.tolist())
