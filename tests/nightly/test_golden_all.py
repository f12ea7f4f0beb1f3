"""The golden files that take longer: a run with all evidence, and one on four datasets (tests/golden/README.md)."""

import pytest

from golden_runs import PIECES, QUICK, check_piece


@pytest.mark.parametrize("piece", sorted(set(PIECES) - set(QUICK)))
def test_a_piece_is_what_was_written_down(piece: str) -> None:
    check_piece(piece)
