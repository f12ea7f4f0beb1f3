"""Telling pathways apart by a score: only items that stand in a stratum with both pathways are compared."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from anchorscope.evidence.experiments.separation import comparable, separation
from experiments_synthetic import make_inputs


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
