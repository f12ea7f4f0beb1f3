"""The batched solver against scikit-learn: the same objective, the same minimum, and honest about convergence."""

from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.preprocessing import StandardScaler

from anchorscope.probes import logistic
from anchorscope.probes.logistic import TrainingSets, fit_layers

STRENGTHS = (1e-5, 1e-3, 0.1, 1.0, 30.0)
"""Weak ones, as the probes use, and one stronger than any of theirs."""


@dataclass(frozen=True)
class Problem:
    """States with every training set and strength that is fitted on them."""

    states: torch.Tensor
    labels: np.ndarray
    scaled_on: np.ndarray
    """[item, scaling]."""
    members: np.ndarray
    """[item, column]."""
    scaling: np.ndarray
    strengths: np.ndarray

    def sets(self) -> TrainingSets:
        return TrainingSets(
            labels=torch.tensor(self.labels),
            members=torch.tensor(self.members.T.copy()),
            scaled_on=torch.tensor(self.scaled_on.T.copy()),
            scaling=torch.tensor(self.scaling),
            strengths=torch.tensor(self.strengths),
        )

    def fit(self) -> SimpleNamespace:
        """The parts of `Fit` of this problem alone, [column, …]."""
        found = fit_layers(self.states[None], self.sets())
        return SimpleNamespace(
            **{name: part[0] for name, part in vars(found).items() if name != "notes"}
        )

    def scaler(self, column: int) -> StandardScaler:
        return StandardScaler().fit(
            self.states.double().numpy()[self.scaled_on[:, self.scaling[column]]]
        )

    def objective(self, column: int, weight: np.ndarray, intercept: float) -> float:
        """scikit-learn's, for a weight on the standardised states."""
        rows = self.members[:, column]
        logits = (
            self.scaler(column).transform(self.states.double().numpy()[rows]) @ weight
            + intercept
        )
        signed = np.where(self.labels[rows], -logits, logits)
        return float(
            self.strengths[column] * np.logaddexp(0, signed).sum()
            + 0.5 * weight @ weight
        )

    def gradient(self, column: int, weight: np.ndarray, intercept: float) -> float:
        """Largest element of the gradient of the mean loss, which is what the tolerance speaks of."""
        rows = self.members[:, column]
        x = self.scaler(column).transform(self.states.double().numpy()[rows])
        error = 1 / (1 + np.exp(-(x @ weight + intercept))) - self.labels[rows]
        slope = (x.T @ error + weight / self.strengths[column]) / rows.sum()
        return float(max(np.abs(slope).max(), abs(error.mean())))

    def standardised(
        self, fit: SimpleNamespace, column: int
    ) -> tuple[np.ndarray, float]:
        """Our raw weight and bias in the coordinates of the objective."""
        scaler, raw = self.scaler(column), fit.weight[column].double().numpy()
        return raw * scaler.scale_, float(fit.bias[column]) + float(raw @ scaler.mean_)


def make_problem(n: int, d: int, kind: str, seed: int = 0) -> Problem:
    """States whose first directions are a hundred times as long as the last, as those of language models are."""
    rng = np.random.default_rng(seed)
    labels = rng.random(n) < 0.45
    leading = (
        rng.normal(size=(n, 8)) * np.logspace(1.5, -0.5, 8) @ rng.normal(size=(8, d))
    )
    states = (
        leading
        + 0.3 * rng.normal(size=(n, d))
        + np.outer(labels - 0.5, rng.normal(size=d))
    )
    if kind == "outliers":
        states[:, 0] = 300 + 0.01 * states[:, 0]  # large and almost constant
        states[:, 1] = -800 + 500 * (rng.random(n) < 0.05)  # large for a few items
        states[:, 2] = 3.7  # constant
        states[:, 3] = 0.0
        for place, value in enumerate((0.25, 0.1, -7.7, 1 / 3, 123.4)):
            # constant on the whole of the second scaling, and not outside it
            states[: n // 2, 4 + place] = value
    item = np.arange(n)
    scaled_on = np.stack([item % 5 != 0, item < n // 2, item >= 0], axis=1)
    members, scaling, strengths = [], [], []
    for place in range(3):
        for keeps in (
            item >= 0,
            item % 3 != 0,
        ):  # the whole scaling set, and an inner training set of it
            for strength in STRENGTHS:
                members.append(scaled_on[:, place] & keeps)
                scaling.append(place)
                strengths.append(strength)
    return Problem(
        torch.tensor(states, dtype=torch.float32),
        labels,
        scaled_on,
        np.stack(members, axis=1),
        np.array(scaling),
        np.array(strengths),
    )


SHAPES = {"more items than features": (300, 20), "more features than items": (120, 200)}


@pytest.mark.parametrize("kind", ["plain", "outliers"])
@pytest.mark.parametrize("shape", SHAPES)
def test_every_column_reaches_scikit_learns_minimum_and_acts_on_raw_states(
    shape: str, kind: str
) -> None:
    problem = make_problem(*SHAPES[shape], kind)
    fit = problem.fit()
    assert fit.converged.all()
    x = problem.states.double().numpy()
    for column, strength in enumerate(problem.strengths):
        rows = problem.members[:, column]
        scaled = problem.scaler(column).transform(x)
        wanted = LogisticRegression(
            C=strength, solver="newton-cholesky", tol=1e-8, max_iter=1000
        )
        wanted.fit(scaled[rows], problem.labels[rows])
        best = problem.objective(column, wanted.coef_[0], wanted.intercept_[0])
        ours = problem.objective(column, *problem.standardised(fit, column))
        assert abs(ours - best) <= 1e-5 * best
        found, logits = (
            fit.logits[column].double().numpy(),
            wanted.decision_function(scaled),
        )
        # Without much penalty nothing holds a feature that the training items do not vary in: look at them alone.
        where = slice(None) if strength <= 1 else rows
        assert np.abs(found - logits)[where].max() < 0.05
        assert (
            abs(
                roc_auc_score(problem.labels, found)
                - roc_auc_score(problem.labels, logits)
            )
            < 0.002
        )
    raw = fit.weight.double() @ problem.states.double().T + fit.bias.double()[:, None]
    # Weight and bias act on the raw states. Half a thousandth: raw features of 800 times float32 weights.
    torch.testing.assert_close(fit.logits.double(), raw, rtol=1e-4, atol=5e-4)
    assert fit.weight.shape == (len(problem.strengths), problem.states.shape[1])
    if kind == "outliers":
        # what never varies teaches nothing
        assert (fit.weight[:, 2:4].abs() < 1e-5).all()


@pytest.mark.parametrize("size", [1e3, 3e5, 3e7])
def test_a_wild_item_outside_the_training_set_does_no_harm(size: float) -> None:
    problem = make_problem(120, 20, "plain")
    states, inside = problem.states.clone(), np.arange(120) < 119
    members, strengths = (
        np.repeat(inside[:, None], 3, axis=1),
        np.array([1e-3, 0.1, 1.0]),
    )
    columns = (
        problem.labels,
        inside[:, None],
        members,
        np.zeros(3, dtype=int),
        strengths,
    )
    tame = Problem(states, *columns).fit()
    states[119] = size
    wild = Problem(states, *columns).fit()
    assert wild.converged.all()
    assert (wild.logits - tame.logits)[:, :119].abs().max() < 0.01


@pytest.mark.parametrize("most", [1, 4, 12, 400])
def test_a_column_counts_as_converged_only_if_its_gradient_is_small(
    monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    problem = make_problem(120, 200, "outliers")
    monkeypatch.setattr(logistic, "MAX_ITERATIONS", most)
    fit = problem.fit()
    left = np.array(
        [
            problem.gradient(c, *problem.standardised(fit, c))
            for c in range(len(problem.strengths))
        ]
    )
    # Recomputed in float64 from the raw weights, whose rounding adds a little to the solver's own gradient.
    assert (left[fit.converged.numpy()] < 2 * logistic.TOLERANCE).all()
    assert (left[~fit.converged.numpy()] > 0.5 * logistic.TOLERANCE).all()
    assert bool(fit.converged.all()) == (most == 400)
    if most == 12:
        # both kinds at once, so that the flags must tell them apart
        assert fit.converged.any()
