"""Holm's correction against values worked out by hand."""

import math

import pytest

from anchorscope.stats.estimate import holm


def test_by_hand():
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])


def test_none_is_above_one_and_a_missing_one_counts_for_nothing():
    corrected = holm([0.9, math.nan, 0.02])
    assert corrected[0] == pytest.approx(0.9)
    assert math.isnan(corrected[1])
    assert corrected[2] == pytest.approx(0.04)
    assert holm([0.6, 0.7]) == [1.0, 1.0]
    assert holm([]) == []
