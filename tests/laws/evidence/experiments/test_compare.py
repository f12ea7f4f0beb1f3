"""Tests, and truth filters that all experiments share."""

import numpy as np
import pytest
import torch
from scipy.stats import norm

from anchorscope.evidence.experiments.compare import (
    answers_of,
    in_groups_of,
    known,
    of_truth,
    p_value,
    p_values,
    q_values,
)


def test_a_p_value_is_that_of_the_standard_error() -> None:
    drawn = np.random.default_rng(0).normal(1.5, 0.7, 500)
    samples = torch.from_numpy(np.concatenate([[1.5], drawn]))
    assert p_value(samples) == pytest.approx(2 * norm.sf(1.5 / drawn.std()))
    assert p_value(samples, null=1.5) == 1


@pytest.mark.parametrize("rounding", [0.0, 1e-15])
def test_where_all_draws_agree_there_is_no_p_value(rounding: float) -> None:
    still = torch.full((50,), 0.3, dtype=torch.float64)
    still[1::2] += rounding
    assert p_value(still) is None
    assert p_value(torch.full((50,), torch.nan)) is None
    moving = torch.linspace(0.2, 0.4, 50, dtype=torch.float64)
    p = p_values(torch.stack([still, moving]))
    assert np.isnan(p).tolist() == [True, False]
    assert np.isnan(q_values(p)).tolist() == [True, False]


def test_what_is_no_number_is_none() -> None:
    assert known(float("nan")) is None
    assert known(float("inf")) is None
    assert known(0.25) == 0.25


def test_truth_filters() -> None:
    labels = np.array([True, False, True])
    assert of_truth(labels, "all").all()
    assert of_truth(labels, "true").tolist() == [True, False, True]
    assert of_truth(labels, "false").tolist() == [False, True, False]
    assert [answers_of(truth) for truth in ("all", "true", "false")] == ["items", "true answers", "false answers"]


def test_only_the_corrected_rule_could_make_other_groups_in_a_draw() -> None:
    assert in_groups_of("corrected", "so") == "so, groups of the sample"
    assert [in_groups_of(rule, "so") for rule in ("plain", None)] == ["so"] * 2
