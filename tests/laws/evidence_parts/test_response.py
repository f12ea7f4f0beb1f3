"""The jackknife of the probes: how their scores move with one item's weight, against probes that were fitted again."""

import numpy as np
import pytest
import torch
from scipy.optimize import minimize


def fit(states, labels, strength, weights):
    """Logistic regression with weighted items: scikit-learn's objective, intercept unpenalised."""
    columns = np.column_stack([states, np.ones(len(states))])
    sign = np.where(labels, 1.0, -1.0)

    def loss(w):
        margin = sign * (columns @ w)
        value = (
            strength * (weights * np.logaddexp(0, -margin)).sum()
            + 0.5 * (w[:-1] ** 2).sum()
        )
        slope = -strength * columns.T @ (weights * sign / (1 + np.exp(margin)))
        slope[:-1] += w[:-1]
        return value, slope

    found = minimize(
        loss,
        np.zeros(columns.shape[1]),
        jac=True,
        method="L-BFGS-B",
        tol=1e-14,
        options={"maxiter": 2000, "ftol": 1e-15, "gtol": 1e-10},
    )
    return columns @ found.x


@pytest.fixture(scope="module")
def case(make_case):
    return make_case(60, 4, 0.7, 0.6, splits=1)


def refitted(case, evidence, item, weight):
    """Σ pull·z by both probes of the split, one item having another weight."""
    states = evidence.principal[0].double().numpy()
    first = case.halves.first[0]
    z = np.zeros(len(states))
    for side in range(2):
        learns = first == (side == 0)
        weights = learns.astype(float)
        weights[item] *= weight
        scores = fit(states, case.labels, float(evidence.strength[0, 0, side]), weights)
        z[~learns] = scores[~learns]
    return z


def test_leaving_an_item_out_moves_the_scores_as_the_jackknife_says(case):
    evidence = case.evidence().to(torch.device("cpu"))
    pulls = torch.randn(
        2, 1, 1, 60, dtype=torch.double, generator=torch.Generator().manual_seed(0)
    )
    found = np.stack(
        [evidence.response(case.halves, pull)[0].numpy() for pull in pulls]
    )
    whole = refitted(case, evidence, 0, 1.0)
    np.testing.assert_allclose(
        whole, evidence.held_out(case.halves)[0, 0].numpy(), atol=2e-3
    )  # the same probes
    weights = pulls[:, 0, 0].numpy()
    without = np.stack(
        [weights @ (whole - refitted(case, evidence, item, 0.0)) for item in range(60)],
        axis=1,
    )
    # One step of Newton's method: close where an item moves a probe little, and of the right size everywhere.
    assert np.corrcoef(found.ravel(), without.ravel())[0, 1] > 0.99
    np.testing.assert_allclose(found, without, atol=0.1 * np.abs(without).max())
