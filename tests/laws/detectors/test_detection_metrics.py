"""Laws of the detection metrics, and slow references: repeated items, all orders of ties, scikit-learn."""

from fractions import Fraction
from functools import partial
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, roc_auc_score

from anchorscope.stats import detection_metrics as metrics
from anchorscope.stats.auc import auc
from anchorscope.stats.detection_metrics import brier, reliability_bins


def repeated(weights: np.ndarray, *values: np.ndarray) -> list[np.ndarray]:
    """Every item as often as its whole weight says."""
    return [np.repeat(value, weights.astype(int)) for value in values]


def orders(scores: np.ndarray) -> list[tuple[int, ...]]:
    """All orders of few items from high to low, ties in every way."""
    return [
        one
        for one in permutations(range(len(scores)))
        if all(np.diff(scores[list(one)]) <= 0)
    ]


def accuracies(truthful: np.ndarray, order: tuple[int, ...]) -> list[Fraction]:
    """Share of true answers among the k first, k = 1 … n."""
    return [
        Fraction(int(truthful[list(order[: k + 1])].sum()), k + 1)
        for k in range(len(order))
    ]


def area(scores: np.ndarray, truthful: np.ndarray) -> float:
    """Mean accuracy over what is kept, mean over all orders of ties."""
    means = [sum(accuracies(truthful, one)) / len(scores) for one in orders(scores)]
    return float(sum(means) / len(means))


def share_at(scores: np.ndarray, truthful: np.ndarray, coverage: float) -> float:
    """Accuracy at a coverage; part of the last item, mean over all orders of ties."""
    found = []
    for one in orders(scores):
        left, true = coverage * len(scores), 0.0
        for item in one:
            part = min(1.0, left)
            left, true = left - part, true + part * truthful[item]
        found.append(true / (coverage * len(scores)))
    return float(np.mean(found))


def equal_mass_error(probability: np.ndarray, truthful: np.ndarray, bins: int) -> float:
    """Every item cut into as many parts as there are bins: bins then hold whole parts; ties get their mean truth."""
    mean_truth = np.array([truthful[probability == one].mean() for one in probability])
    order = np.argsort(probability)
    said, so = np.repeat(probability[order], bins), np.repeat(mean_truth[order], bins)
    pairs = zip(np.split(said, bins), np.split(so, bins), strict=True)
    return float(np.mean([abs(one.mean() - other.mean()) for one, other in pairs]))


def measured(name, scores, truthful, weights=None):
    return metrics.all_metrics(np.full(len(scores), 0.5), truthful, weights, scores)[
        name
    ]


def weighted_auc(scores, truthful, weights=None):
    """Rows of weights, as the other measures take them."""
    rows = np.ones(len(scores)) if weights is None else weights
    return auc(scores, truthful, None, rows.reshape(-1, len(scores)).T).reshape(
        rows.shape[:-1]
    )


ONE_NUMBER = {
    "auroc": weighted_auc,
    "auprc": partial(measured, "auprc"),
    "e-aurc": partial(measured, "e-aurc"),
    "prr": partial(measured, "prr"),
    "accuracy": lambda *given: metrics.accuracy_at_coverage(*given)[..., 1],
    "risk": lambda *given: metrics.risk_coverage_curve(*given, points=7)[1][..., 2],
    "brier": brier,
    "ece": lambda *given: reliability_bins(*given).error,
    "ece_width": lambda *given: (
        reliability_bins(*given, bins=5, equal_width=True).error
    ),
}

worlds = st.lists(
    st.tuples(st.integers(0, 6), st.booleans(), st.integers(0, 3)),
    min_size=1,
    max_size=30,
)
few = st.lists(st.tuples(st.integers(0, 3), st.booleans()), min_size=1, max_size=5)


def _arrays(rows):
    scores, truthful, *weights = (
        np.array(column) for column in zip(*rows, strict=True)
    )
    return scores / 6, truthful, *(one.astype(float) for one in weights)


@pytest.mark.parametrize("measure", ONE_NUMBER.values(), ids=ONE_NUMBER)
@given(rows=worlds, seed=st.integers(0, 99))
def test_a_weight_counts_items_and_their_order_does_not_matter(measure, rows, seed):
    scores, truthful, weights = _arrays(rows)
    if not weights.any():
        assert np.isnan(measure(scores, truthful, weights))
        return
    found = measure(scores, truthful, weights)
    assert found == pytest.approx(
        measure(*repeated(weights, scores, truthful)), abs=1e-10, nan_ok=True
    )
    other = np.random.default_rng(seed).permutation(len(scores))
    assert found == pytest.approx(
        measure(scores[other], truthful[other], weights[other]), abs=1e-10, nan_ok=True
    )


@pytest.mark.parametrize("measure", ONE_NUMBER.values(), ids=ONE_NUMBER)
def test_many_rows_at_once_equal_one_by_one(measure):
    rng = np.random.default_rng(0)
    scores, truthful = (
        rng.integers(0, 40, 900) / 40,
        rng.random(900) < 0.4,
    )  # so many that rows come in several blocks
    weights = rng.random((3, 211, 900)) * rng.integers(0, 3, (3, 211, 900))
    together = measure(scores, truthful, weights)
    assert together.shape == (3, 211)
    for row in ((0, 0), (1, 105), (2, 210)):
        assert together[row] == pytest.approx(
            measure(scores, truthful, weights[row]), abs=1e-12
        )
    assert measure(scores, truthful, weights.astype(np.float32)) == pytest.approx(
        together, abs=1e-6
    )


@given(rows=few)
def test_areas_are_means_over_every_k_and_every_order_of_ties(rows):
    scores, truthful = _arrays(rows)
    own, oracle, random = (
        area(scores, truthful),
        area(truthful.astype(float), truthful),
        truthful.mean(),
    )
    assert measured("e-aurc", scores, truthful) == pytest.approx(oracle - own)
    if 0 < random < 1:
        assert measured("prr", scores, truthful) == pytest.approx(
            (own - random) / (oracle - random)
        )
    for coverage in (0.3, 0.5, 1.0):
        found = metrics.accuracy_at_coverage(scores, truthful, coverages=[coverage])
        assert found == pytest.approx(share_at(scores, truthful, coverage))


@given(rows=worlds)
def test_order_measures_equal_scikit_learn(rows):
    scores, truthful, weights = _arrays(rows)
    if not weights[truthful].any() or not weights[~truthful].any():
        assert np.isnan(weighted_auc(scores, truthful, weights))
        return
    given_here = {"sample_weight": weights}
    assert weighted_auc(scores, truthful, weights) == pytest.approx(
        roc_auc_score(truthful, scores, **given_here)
    )
    flagged = average_precision_score(~truthful, -scores, **given_here)
    assert measured("auprc", scores, truthful, weights) == pytest.approx(flagged)


@given(rows=worlds, bins=st.integers(1, 7))
def test_calibration_error_in_bins_of_equal_mass(rows, bins):
    probability, truthful, _ = _arrays(rows)
    wanted = equal_mass_error(probability, truthful, bins)
    found = reliability_bins(probability, truthful, bins=bins)
    assert found.error == pytest.approx(wanted, abs=1e-12)
    assert found.mass == pytest.approx(np.full(bins, 1 / bins))
    assert np.all(np.diff(found.probability) >= -1e-12)
    assert (found.rate * found.mass).sum() == pytest.approx(truthful.mean())
