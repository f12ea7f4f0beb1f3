"""The corrected assignment in every draw, against a slow reading: each resample by itself, with its items repeated."""

from dataclasses import replace

import numpy as np
import pytest

from anchorscope.evidence.delta_p import CELLS, Corrected, cell_sums, correct_shift
from anchorscope.evidence.draws import Draws
from anchorscope.evidence.measured import Measured, noise_at_reference
from anchorscope.stats.estimate import group_weights
from evidence_synthetic import random_measured, sigmoid, slow_shift


def drawn(measured: Measured) -> np.ndarray:
    """Counts of the sample and some resamples, [draw, item]."""
    weights = group_weights(measured.groups, 12, np.random.default_rng(1))
    return np.concatenate([np.ones((1, weights.shape[1]), weights.dtype), weights])


def corrected(measured: Measured) -> Corrected:
    return correct_shift(measured, Draws.of(drawn(measured)[1:]))


def slow_moved(measured: Measured, intervention: str, counts: np.ndarray) -> np.ndarray:
    """Log-odds after the cut without the shift of this draw, [layer, item of those that were run]."""
    ran, index = measured.ran[intervention], measured.probe("full")
    moved = measured.after[intervention][index].astype(float).copy()
    for fold in np.unique(measured.folds):
        here = measured.folds[ran] == fold
        for layer in range(measured.n_layers):
            before = measured.before[index, layer, ran[here]]
            moved[layer, here] -= slow_shift(before, moved[layer, here], counts[None, ran[here]])[0]
    return moved


def slow_group(measured: Measured, counts: np.ndarray) -> list[tuple[str, bool] | None]:
    """The cell of each item in this draw."""
    index, noise = measured.probe("full"), noise_at_reference(measured, "full")
    moved = slow_moved(measured, "knockout", counts)
    found: list[tuple[str, bool] | None] = []
    for item, label in enumerate(measured.labels):
        layer = measured.reference[index, measured.folds[item]]
        x, y = measured.before[index, layer, item], moved[layer, item]
        flips = (y > 0) != (x > 0) and abs(y - x) > noise
        found.append(CELLS[(0 if flips else 2) + (0 if label else 1)] if (x > 0) == label else None)
    return found


@pytest.mark.parametrize("intervention", ["knockout", "random", "none"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("scale", [1.0, 100.0])
def test_every_draw_by_a_slow_reading_of_the_definition(intervention: str, dtype: type, scale: float) -> None:
    made = random_measured(seed=21)
    # Scaled up, log-odds and the shifts of different draws lie further apart than single precision's odds reach.
    scaled = {name: (scale * logits).astype(dtype) for name, logits in made.after.items()}
    measured = replace(made, before=(scale * made.before).astype(dtype), after=scaled)
    sums = cell_sums(corrected(measured), intervention)
    ran, index, tolerance = measured.ran[intervention], measured.probe("full"), 1e-8 if dtype == np.float64 else 2e-3
    for draw, counts in enumerate(drawn(measured)):
        cells, moved = slow_group(measured, counts), slow_moved(measured, intervention, counts)
        change = 100 * (sigmoid_of(moved) - sigmoid_of(measured.before[index][:, ran]))
        change *= np.where(measured.labels[ran], 1, -1)
        for place, cell in enumerate(CELLS):
            inside = counts[ran] * [cells[item] == cell for item in ran]
            assert sums.number[place, draw] == inside.sum()
            for fold in range(3):
                wanted = (change * inside * (measured.folds[ran] == fold)).sum(axis=1)
                assert sums.delta_p[place, :, fold, draw].numpy() == pytest.approx(wanted, abs=tolerance)


def sigmoid_of(log_odds: np.ndarray) -> np.ndarray:
    return sigmoid(np.clip(log_odds, -700, 700))
