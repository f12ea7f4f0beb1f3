"""Tests, truth filters, areas and rank correlations that experiments share."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm, pearsonr, rankdata, spearmanr

from anchorscope.evidence.draws import Draws
from anchorscope.experiments.statistics import (
    comparable,
    family_rows,
    p_value,
    q_values,
)
from anchorscope.experiments.wordings import rank_correlation
from anchorscope.stats.estimate import group_weights


def test_a_p_value_is_that_of_the_standard_error() -> None:
    drawn = np.random.default_rng(0).normal(1.5, 0.7, 500)
    samples = torch.from_numpy(np.concatenate([[1.5], drawn]))
    assert p_value(samples) == pytest.approx(2 * norm.sf(1.5 / drawn.std()))
    assert p_value(samples, null=1.5) == 1


@pytest.mark.parametrize("rounding", [0.0, 1e-15])
def test_where_all_draws_agree_there_is_no_p_value_and_it_counts_for_none(
    rounding: float,
) -> None:
    still = torch.full((50,), 0.3, dtype=torch.float64)
    still[1::2] += rounding
    assert p_value(still) is None
    assert p_value(torch.full((50,), torch.nan)) is None
    moving = torch.linspace(0.2, 0.4, 50, dtype=torch.float64)
    first, second = family_rows(
        "x", [(still, 10, {}), (moving, 10, {"variant": "moves"})]
    )
    assert (first.p_value, first.q_value) == (None, None)
    assert second.q_value == second.p_value
    assert second.variant == "moves"
    assert q_values([0.01, None, 0.04]) == pytest.approx([0.02, None, 0.04])


@given(calls=st.lists(st.tuples(st.booleans(), st.integers(0, 4)), max_size=40))
def test_who_is_compared_has_somebody_of_the_other_pathway_beside_it(
    calls: list[tuple[bool, int]],
) -> None:
    asks, strata = (
        np.array([asked for asked, _ in calls], bool),
        np.array([place for _, place in calls], np.int64),
    )
    wanted = [
        any(place == other and asked != call for call, other in calls)
        for asked, place in calls
    ]
    assert comparable(asks, strata).tolist() == wanted


def test_the_sample_has_scipys_correlation_and_draws_that_of_repeated_items() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=60)
    y = np.exp(x + rng.normal(size=60))
    weights = group_weights(np.arange(60) // 2, 40, rng)
    found = rank_correlation(x, y, Draws.of(weights)).numpy()
    assert found[0] == pytest.approx(spearmanr(x, y).statistic)
    for draw in (0, 17):
        repeated = np.repeat(np.arange(60), weights[draw].astype(int))
        assert found[1 + draw] == pytest.approx(
            pearsonr(rankdata(x)[repeated], rankdata(y)[repeated]).statistic
        )
