"""Curves: mean ΔP of a group per layer by the three assignments, where the answer is known, and by slow readings."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from anchorscope.evidence.delta_p import (
    CELLS,
    TRUTHS,
    Curve,
    cell_sums,
    correct_shift,
    corrected_curves,
    cross_fitted_curves,
    plain_curves,
)
from anchorscope.evidence.draws import Draws
from anchorscope.evidence.measured import GROUPS, Measured, noise_at_reference
from anchorscope.stats.estimate import group_weights
from evidence_synthetic import (
    half_lose_their_signal,
    random_measured,
    sigmoid,
    slow_shift,
)

Q, A = GROUPS
Keyed = dict[tuple[str, str], Curve]


def curves_after_the_shift(
    measured: Measured, intervention: str, draws: Draws
) -> list[Curve]:
    corrected = correct_shift(measured, draws)
    return corrected_curves(corrected, intervention, cell_sums(corrected, intervention))


WAYS = (plain_curves, cross_fitted_curves, curves_after_the_shift)


def curves(make: Any, measured: Measured, intervention: str = "knockout") -> Keyed:
    """By one of the ways, with the intervals of 60 resamples."""
    drawn = Draws.of(group_weights(measured.groups, 60, np.random.default_rng(1)))
    made = make(measured, intervention, drawn)
    found = {(curve.group, curve.truth): curve for curve in made}
    assert len(found) == len(made) == len(GROUPS) * len(TRUTHS)
    return found


def slow_delta(
    measured: Measured, intervention: str, probe: str, layer: int, item: int
) -> float:
    """ΔP of one item as docs/method.md defines it."""
    index = measured.probe(probe)
    place = measured.ran[intervention].tolist().index(item)
    p = [
        sigmoid(measured.before[index, layer, item]),
        sigmoid(measured.after[intervention][index, layer, place]),
    ]
    return 100 * float(p[1] - p[0]) * (1 if measured.labels[item] else -1)


def slow_group(measured: Measured, probe: str) -> list[str | None]:
    """The pathway of each item by the rule."""
    index, noise = measured.probe(probe), noise_at_reference(measured, probe)
    found: list[str | None] = []
    for item, label in enumerate(measured.labels):
        layer = measured.reference[index, measured.folds[item]]
        x, y = (
            measured.before[index, layer, item],
            measured.after["knockout"][index, layer, item],
        )
        found.append(
            None
            if (x > 0) != label
            else Q
            if (y > 0) != (x > 0) and abs(y - x) > noise
            else A
        )
    return found


def kept(measured: Measured, intervention: str, truth: str) -> list[int]:
    """The items of a truth label that were run."""
    wanted = {"all": (True, False), "true": (True,), "false": (False,)}[truth]
    return [
        int(item)
        for item in measured.ran[intervention]
        if bool(measured.labels[item]) in wanted
    ]


@pytest.mark.parametrize("make", WAYS)
def test_half_of_the_items_lose_their_signal(make: object) -> None:
    measured = half_lose_their_signal()
    found = curves(make, measured)
    lost = 100 * (sigmoid(-0.5) - sigmoid(2))
    for truth, n in (("all", 24), ("true", 12), ("false", 12)):
        assert found[Q, truth].delta_p == pytest.approx(lost)
        assert found[A, truth].delta_p == pytest.approx(0)
        assert found[Q, truth].n == found[A, truth].n == found[Q, truth].n_groups == n


def test_a_common_shift_fools_the_plain_chart_and_not_the_corrected_one() -> None:
    measured = half_lose_their_signal(shift=-3)
    fooled, right = (
        curves(plain_curves, measured),
        curves(curves_after_the_shift, measured),
    )
    # Every true item flips and every false one stays: the plain groups are the labels.
    assert (fooled[Q, "true"].n, fooled[Q, "false"].n) == (24, 0)
    assert (fooled[A, "true"].n, fooled[A, "false"].n) == (0, 24)
    assert right[Q, "all"].delta_p == pytest.approx(100 * (sigmoid(-0.5) - sigmoid(2)))
    assert right[A, "all"].delta_p == pytest.approx(0)
    assert (right[Q, "true"].n, right[Q, "false"].n, right[A, "all"].n) == (12, 12, 24)


@pytest.mark.parametrize("intervention", ["knockout", "random", "none"])
def test_plain_curves_by_a_slow_reading_of_the_definition(intervention: str) -> None:
    measured = random_measured(seed=7)
    groups = slow_group(measured, "full")
    for (group, truth), curve in curves(plain_curves, measured, intervention).items():
        items = [
            item
            for item in kept(measured, intervention, truth)
            if groups[item] == group
        ]
        assert curve.n == len(items) > 2
        assert curve.n_groups == len({measured.groups[item] for item in items})
        for layer in range(measured.n_layers):
            wanted = np.mean(
                [
                    slow_delta(measured, intervention, "full", layer, item)
                    for item in items
                ]
            )
            assert curve.delta_p[layer] == pytest.approx(wanted)


@pytest.mark.parametrize("intervention", ["knockout", "none"])
def test_cross_fitted_curves_by_a_slow_reading_of_the_definition(
    intervention: str,
) -> None:
    measured = random_measured(seed=8)
    for (group, truth), curve in curves(
        cross_fitted_curves, measured, intervention
    ).items():
        means, sizes = [], []
        for assigner, meter in (("a", "b"), ("b", "a")):
            groups = slow_group(measured, assigner)
            items = [
                item
                for item in kept(measured, intervention, truth)
                if groups[item] == group
            ]
            sizes.append(len(items))
            means.append(
                [
                    np.mean(
                        [
                            slow_delta(measured, intervention, meter, layer, item)
                            for item in items
                        ]
                    )
                    for layer in range(measured.n_layers)
                ]
            )
        assert curve.delta_p == pytest.approx(np.mean(means, axis=0))
        assert curve.n == round(np.mean(sizes))


def counts_of(measured: Measured) -> np.ndarray:
    """Counts of the sample and some resamples, [draw, item]."""
    weights = group_weights(measured.groups, 12, np.random.default_rng(1))
    return np.concatenate([np.ones((1, weights.shape[1]), weights.dtype), weights])


def slow_moved(measured: Measured, intervention: str, counts: np.ndarray) -> np.ndarray:
    """Log-odds after the cut without the shift of this draw, [layer, item of those that were run]."""
    ran, index = measured.ran[intervention], measured.probe("full")
    moved = measured.after[intervention][index].astype(float).copy()
    for fold in np.unique(measured.folds):
        here = measured.folds[ran] == fold
        for layer in range(measured.n_layers):
            before = measured.before[index, layer, ran[here]]
            moved[layer, here] -= slow_shift(
                before, moved[layer, here], counts[None, ran[here]]
            )[0]
    return moved


def slow_cell(measured: Measured, counts: np.ndarray) -> list[tuple[str, bool] | None]:
    """The cell of each item in this draw."""
    index, noise = measured.probe("full"), noise_at_reference(measured, "full")
    moved = slow_moved(measured, "knockout", counts)
    found: list[tuple[str, bool] | None] = []
    for item, label in enumerate(measured.labels):
        layer = measured.reference[index, measured.folds[item]]
        x, y = measured.before[index, layer, item], moved[layer, item]
        flips = (y > 0) != (x > 0) and abs(y - x) > noise
        found.append(
            CELLS[(0 if flips else 2) + (0 if label else 1)]
            if (x > 0) == label
            else None
        )
    return found


@pytest.mark.parametrize("intervention", ["knockout", "random", "none"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("scale", [1.0, 100.0])
def test_every_draw_by_a_slow_reading_of_the_definition(
    intervention: str, dtype: type, scale: float
) -> None:
    made = random_measured(seed=21)
    # Scaled up, log-odds and the shifts of different draws lie further apart than single precision's odds reach.
    scaled = {
        name: (scale * logits).astype(dtype) for name, logits in made.after.items()
    }
    measured = replace(made, before=(scale * made.before).astype(dtype), after=scaled)
    sums = cell_sums(
        correct_shift(measured, Draws.of(counts_of(measured)[1:])), intervention
    )
    ran, index, tolerance = (
        measured.ran[intervention],
        measured.probe("full"),
        1e-8 if dtype == np.float64 else 2e-3,
    )
    for draw, counts in enumerate(counts_of(measured)):
        cells, moved = (
            slow_cell(measured, counts),
            slow_moved(measured, intervention, counts),
        )
        change = 100 * (sigmoid_of(moved) - sigmoid_of(measured.before[index][:, ran]))
        change *= np.where(measured.labels[ran], 1, -1)
        for place, cell in enumerate(CELLS):
            inside = counts[ran] * [cells[item] == cell for item in ran]
            assert sums.number[place, draw] == inside.sum()
            for fold in range(3):
                wanted = (change * inside * (measured.folds[ran] == fold)).sum(axis=1)
                assert sums.delta_p[place, :, fold, draw].numpy() == pytest.approx(
                    wanted, abs=tolerance
                )


def sigmoid_of(log_odds: np.ndarray) -> np.ndarray:
    return sigmoid(np.clip(log_odds, -700, 700))
