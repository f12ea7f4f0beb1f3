"""What the evaluation hands to the judges: probabilities of their prevalence, and who was scored by which fit."""

from dataclasses import replace

import numpy as np
from scipy.special import expit

from anchorscope.detectors.evaluation import balanced_weights
from anchorscope.detectors.training import Dataset
from anchorscope.stats.detection_metrics import reliability_bins
from made_detection import made_dataset, made_trained


def test_balanced_probabilities_of_a_run_that_was_not_balanced():
    """Without balancing one answer in five is true; judged as balanced, one in two."""
    whole = made_dataset(n=500, signal=1.0)
    kept = [place for place in range(500) if place % 2 or place % 8 == 0]
    dataset = Dataset(
        "made",
        whole.features.take(kept),
        whole.labels[kept],
        whole.groups[kept],
        *([values[place] for place in kept] for values in (whole.relations, whole.item_ids)),
        natural=np.ones(len(kept)),
        group_keys=[whole.group_keys[place] for place in kept],
    )
    trained = made_trained(dataset, seeds=1)
    said = {natural: expit(trained.in_domain("confidence", natural).log_odds[0]) for natural in (False, True)}
    labels, weights = dataset.labels, balanced_weights(dataset)
    assert float(reliability_bins(said[False], labels, weights).error) < 0.1
    assert float(reliability_bins(said[True], labels).error) < 0.1
    assert float(reliability_bins(said[True], labels, weights).error) > 0.1  # the natural prevalence would not do


def test_elsewhere_items_of_different_fits_are_not_compared():
    dataset = made_dataset(n=80)
    trained = made_trained(dataset, seeds=1)
    again = replace(made_dataset(n=80, seed=1), name="other", group_keys=dataset.group_keys)
    found = trained.elsewhere("probe", again)
    assert found is not None
    assert len(np.unique(found.strata)) == 2  # an item is scored by the fit that left its question's fold out
    np.testing.assert_array_equal(found.strata[0], trained.in_domain("probe").strata[0])
