"""Newton–CG on a sparse design: the optimum that scikit-learn's solvers approach."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.linear_model import LogisticRegression

from anchorscope.stats.sparse_logistic import GRADIENT_NORM, fit_sparse_logistic


def bag(n: int, n_words: int, seed: int) -> tuple[sp.csr_array, np.ndarray]:
    """Documents of about eight words, some words frequent and most rare, a few of which tell the label."""
    rng = np.random.default_rng(seed)
    frequency = 8 / np.arange(1, n_words + 1) / (1 / np.arange(1, n_words + 1)).sum()
    present = (rng.random((n, n_words)) < frequency).astype(float)
    return sp.csr_array(present), rng.random(n) < 1 / (1 + np.exp(-2 * present[:, 1] + 1.5 * present[:, 4] - 0.5))


@pytest.mark.parametrize(("n", "n_words"), [(80, 400), (400, 60)])
@pytest.mark.parametrize("penalty", [1.0, 0.05])
def test_weights_and_intercept_are_those_of_scikit_learn_at_its_optimum(n: int, n_words: int, penalty: float) -> None:
    design, labels = bag(n, n_words, seed=n)
    weight, intercept = fit_sparse_logistic(design, labels, penalty)
    wanted = LogisticRegression(C=1 / penalty, tol=1e-10, max_iter=10_000, solver="newton-cholesky")
    wanted.fit(design.toarray(), labels)
    assert weight == pytest.approx(wanted.coef_[0], abs=1e-6)
    assert intercept == pytest.approx(wanted.intercept_[0], abs=1e-6)


def test_nothing_is_left_to_gain() -> None:
    design, labels = bag(200, 500, seed=3)
    weight, intercept = fit_sparse_logistic(design, labels)
    off = 1 / (1 + np.exp(-(design @ weight + intercept))) - labels
    gradient = np.append(design.T @ off + weight, off.sum())
    assert np.linalg.norm(gradient) < 2 * GRADIENT_NORM


def test_a_word_that_no_item_has_gets_no_weight() -> None:
    design, labels = bag(60, 30, seed=4)
    wider = sp.csr_array(sp.hstack([design, sp.csr_array((60, 3))]))
    weight, _ = fit_sparse_logistic(wider, labels)
    assert weight[-3:].tolist() == [0.0, 0.0, 0.0]
    assert weight[:-3] == pytest.approx(fit_sparse_logistic(design, labels)[0])


def test_items_that_can_be_told_apart_without_error_have_an_optimum_too() -> None:
    design = sp.csr_array(np.repeat(np.eye(2), 30, axis=0))
    labels = np.repeat([True, False], 30)
    weight, intercept = fit_sparse_logistic(design, labels, penalty=1e-3)
    assert weight[0] == pytest.approx(-weight[1])
    assert weight[0] > 5
    assert intercept == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("label", [True, False])
def test_one_class_alone_is_refused(label: bool) -> None:
    design, _ = bag(20, 5, seed=5)
    with pytest.raises(ValueError, match="both classes"):
        fit_sparse_logistic(design, np.full(20, label))
