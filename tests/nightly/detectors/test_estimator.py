"""Every detector as scikit-learn's own checks see it."""

import numpy as np
import pytest
from sklearn.datasets import make_classification
from sklearn.utils import estimator_checks
from sklearn.utils.estimator_checks import parametrize_with_checks

from anchorscope.detectors.estimator import DetectorClassifier

_ALONE = ("saplma", "ensemble", "auto")
"""Detectors, beside the probe, that clean states alone suffice for."""

_OF_THE_DETECTOR = (
    "check_classifiers_train",
    "check_classifiers_one_label_sample_weights",
    "check_estimators_pickle",
    "check_fit2d_1feature",
    "check_fit2d_1sample",
    "check_fit_idempotent",
    "check_methods_sample_order_invariance",
    "check_methods_subset_invariance",
)
"""Checks of what a detector learns; the others are about the class around it, which is the same for all."""


@parametrize_with_checks(
    [DetectorClassifier("probe")],
    expected_failed_checks=lambda one: {
        "check_sample_weight_equivalence_on_dense_data": "inner folds: a row twice is not a row of weight two",
        "check_sample_weight_equivalence_on_sparse_data": "no sparse input",
    },
)
def test_scikit_learns_own_checks(estimator, check):
    check(estimator)


@pytest.mark.parametrize("name", _ALONE)
@pytest.mark.parametrize("check", _OF_THE_DETECTOR)
def test_scikit_learns_checks_of_what_is_learnt(check, name):
    getattr(estimator_checks, check)("DetectorClassifier", DetectorClassifier(name))


def _blocks(n=160):
    values, truth = make_classification(n, 20, n_informative=6, random_state=0)
    values[:, 18:] += truth[:, None]
    columns = {
        "clean": range(6),
        "knockout": range(6, 12),
        "random": range(12, 18),
        "log_prob_mean": [18],
        "log_prob_min": [19],
    }
    return values, truth, columns


@pytest.mark.parametrize("name", ["confidence", "probe+confidence", "mop", "counterfactual", "auto"])
def test_blocks_of_columns_are_runs_and_numbers(name):
    values, truth, columns = _blocks()
    found = DetectorClassifier(name, columns).fit(values, truth, groups=np.arange(160) // 2)
    probability = found.predict_proba(values)
    assert probability.shape == (160, 2)
    np.testing.assert_allclose(probability.sum(axis=1), 1)
    assert found.score(values, truth) > 0.55


def test_what_is_not_there_is_named():
    values, truth, _ = _blocks()
    with pytest.raises(ValueError, match="'knockout' were not kept; name its columns"):
        DetectorClassifier("mop").fit(values, truth)
