"""What commands write is what they wrote: tables, cards and `--json` of the golden files (tests/golden/README.md)."""

import pytest

from golden import compare_texts, file_hashes, golden_texts, numerics, recorded_hashes, report_changes, stored_texts
from golden_runs import PIECES, golden_folder

AGAIN = "If this is meant: python tests/golden/write.py, and explain the change in the commit."


@pytest.mark.parametrize("piece", PIECES)
def test_a_piece_is_what_was_written_down(piece: str) -> None:
    recorded = recorded_hashes(numerics(golden_folder("supplied")))
    changes = compare_texts(stored_texts(piece), golden_texts(golden_folder(piece)), exact=recorded is not None)
    assert not changes, f"\n{report_changes(changes, piece)}\n{AGAIN}"
    if recorded is not None:
        own = file_hashes(piece, golden_folder(piece))
        bits = sorted(name for name in own if recorded.get(name) != own[name])
        assert not bits, f"\nThe last digits differ, on a machine of the recorded numerics class: {bits}\n{AGAIN}"
