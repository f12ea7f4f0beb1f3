"""Ridge out of fold: the transposed map, the gathering of items into cells, and the penalty."""

import numpy as np
import pytest
import torch

from anchorscope.evidence_parts.need import PENALTIES, Ridge, best_penalty


def ridge(case, penalty):
    states = case.cut.double()
    return Ridge(
        states, case.halves, torch.full((len(states),), penalty, dtype=torch.double)
    )


def test_the_adjoint_is_the_transposed_map(make_case):
    case = make_case(70, 5, 0.5, 0.5, problems=2, splits=2)
    of_z = ridge(case, 3.0)
    n, splits = len(case.labels), case.halves.n_splits
    # The map itself, column by column: one item's target is 1, all others 0.
    unit = torch.eye(splits * n, dtype=torch.double).reshape(-1, splits, n)
    columns = torch.stack(
        [of_z.predict(one.expand(2, -1, -1)).flatten(1) for one in unit], dim=-1
    )
    residual = torch.randn(
        2, splits, n, dtype=torch.double, generator=torch.Generator().manual_seed(0)
    )
    wanted = torch.einsum("pij,pi->pj", columns, residual.flatten(1))
    torch.testing.assert_close(
        of_z.adjoint(residual).flatten(1), wanted, rtol=1e-9, atol=1e-11
    )
    assert columns.abs().max() > 0.01


def test_a_prediction_is_blind_to_its_own_fold(make_case):
    case = make_case(70, 5, 0.5, 0.5, splits=2)
    of_z = ridge(case, 3.0)
    target = torch.randn(
        1, 2, 70, dtype=torch.double, generator=torch.Generator().manual_seed(1)
    )
    inside = (case.halves.first[0] == case.halves.first[0, 0]) & (
        case.halves.folds[0] == case.halves.folds[0, 0]
    )
    changed = target.clone()
    changed[0, 0, inside] += 100
    before, after = of_z.predict(target), of_z.predict(changed)
    torch.testing.assert_close(before[0, 0, inside], after[0, 0, inside])
    other = (case.halves.first[0] == case.halves.first[0, 0]) & ~inside
    assert (before - after)[0, 0, other].abs().min() > 1e-3


def test_the_penalty_has_the_least_leave_one_out_error():
    rng = np.random.default_rng(0)
    states = rng.standard_normal((60, 8)) * (1 + np.arange(8)) ** -0.5
    target = states[:, 0] + 2 * rng.standard_normal(60)
    found = float(
        best_penalty(
            torch.from_numpy(states)[None], torch.from_numpy(target)[None, None]
        )[0]
    )
    centred = states - states.mean(0)
    unit = np.linalg.eigvalsh(centred.T @ centred).mean()
    errors = []
    for multiple in PENALTIES:
        left = []
        for item in range(60):
            # Centring once, over all items, is part of the definition: only the weights are learned without the item.
            others = np.arange(60) != item
            weight = np.linalg.solve(
                centred[others].T @ centred[others] + multiple * unit * np.eye(8),
                centred[others].T @ (target - target.mean())[others],
            )
            left.append(target[item] - target.mean() - centred[item] @ weight)
        errors.append(np.mean(np.square(left)))
    best = PENALTIES[int(np.argmin(errors))] * unit
    assert PENALTIES.index(
        min(PENALTIES, key=lambda one: abs(one * unit - found))
    ) == pytest.approx(
        PENALTIES.index(min(PENALTIES, key=lambda one: abs(one * unit - best))), abs=1
    )
