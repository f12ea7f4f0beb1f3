"""Tests, truth filters and areas that all experiments share."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm

from anchorscope.experiments.statistics import (
    answers_of,
    comparable,
    in_groups_of,
    known,
    of_truth,
    p_value,
    p_values,
    q_values,
    separation,
)
from experiments_synthetic import make_inputs


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


@given(calls=st.lists(st.tuples(st.booleans(), st.integers(0, 4)), max_size=40))
def test_who_is_compared_has_somebody_of_the_other_pathway_beside_it(calls: list[tuple[bool, int]]) -> None:
    asks, strata = np.array([one for one, _ in calls], bool), np.array([one for _, one in calls], np.int64)
    wanted = [any(place == other and asked != call for call, other in calls) for asked, place in calls]
    assert comparable(asks, strata).tolist() == wanted


def test_groups_that_do_not_follow_the_draw_are_said_not_to() -> None:
    inputs = make_inputs(resamples=50)
    found = separation(inputs, "auc", "so", np.random.default_rng(0).normal(size=inputs.n))
    assert {row.assignment for row in found.statistics} == set(inputs.calls)
    for row in found.statistics:
        assert row.estimate.method.endswith(", groups of the sample") == (row.assignment == "corrected")


def test_a_score_that_always_tells_has_an_area_and_no_test() -> None:
    inputs = make_inputs(resamples=50)
    found = separation(inputs, "auc", "so", inputs.calls["plain"].flipped.astype(float))
    rows = [row for row in found.statistics if row.assignment == "plain"]
    assert rows
    for row in rows:
        assert (row.estimate.value, row.p_value) == (1, None)  # the same in every draw: no standard error to go by
