"""The shared prefix: common to all, within every limit, and as long as that allows; cuts that cannot be made."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anchorscope.engine.sequences import Cut, shared_prefix_length
from anchorscope.errors import UserError

TOKENS = st.lists(st.integers(0, 2), min_size=1, max_size=9)


@given(
    st.lists(st.tuples(TOKENS, st.integers(0, 9)), min_size=1, max_size=5),
    st.lists(st.integers(0, 2), max_size=6),
)
def test_the_shared_prefix_is_the_longest_that_all_have_in_common_within_their_limits(
    rows: list[tuple[list[int], int]], head: list[int]
) -> None:
    sequences, limits = [head + own for own, _ in rows], [limit for _, limit in rows]
    found = shared_prefix_length(sequences, limits)

    def allowed(length: int) -> bool:
        return all(
            sequence[:length] == sequences[0][:length]
            and length <= limit
            and length < len(sequence)
            for sequence, limit in zip(sequences, limits, strict=True)
        )

    assert allowed(found)
    assert not allowed(found + 1)


@given(st.floats())
def test_a_cut_has_a_bias_or_is_refused_in_one_line(alpha: float) -> None:
    if -1 <= alpha < math.inf:
        assert Cut((1,), alpha=alpha).bias < math.inf
        return
    with pytest.raises(
        UserError, match=r"A cut has alpha .*; allowed: −1 .* Change"
    ) as caught:
        Cut((1,), alpha=alpha)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("wrong", [{"edges": "some"}, {"how": "fade"}])
def test_unknown_edges_are_refused_in_one_line(wrong: dict[str, str]) -> None:
    with pytest.raises(UserError, match="allowed: all, outside, direct, mask, zero"):
        Cut((1,), **wrong)
