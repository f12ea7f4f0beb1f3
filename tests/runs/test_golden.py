"""What commands write is what they wrote: tables, cards and `--json` of the golden files (tests/golden/README.md)."""

import pytest

from golden_runs import QUICK, check_piece


@pytest.mark.parametrize("piece", QUICK)
def test_a_piece_is_what_was_written_down(piece: str) -> None:
    check_piece(piece)
