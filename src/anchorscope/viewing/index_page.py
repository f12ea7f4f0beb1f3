"""The page that lists what was made: the newest first, its answer card open, the others one line each."""

import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from anchorscope.report.page_writer import fragment
from anchorscope.viewing.found import COMPARISON, DETECTORS, RUN, STUDY, VALIDATION, Found

_KINDS = {
    RUN: ("run", "runs"),
    COMPARISON: ("comparison", "comparisons"),
    DETECTORS: ("folder of detectors", "folders of detectors"),
    VALIDATION: ("validation", "validations"),
    STUDY: ("study", "studies"),
}


def index_page(found: Sequence[Found], folder: Path, address: Callable[[str, str], str]) -> str:
    """The page as HTML; `address` gives the address of a folder's file."""
    entries = [
        {
            "one": one,
            "kind": _KINDS[one.kind][0],
            "when": time.strftime("%Y-%m-%d %H:%M", time.localtime(one.changed)),
            "place": str(folder) if one.name == "." else str(folder / one.name),
            "address": address(one.name, one.page) if one.page else None,
        }
        for one in found
    ]
    first = next((place for place, one in enumerate(found) if one.card is not None), None)
    counts = Counter(one.kind for one in found)
    counted = ", ".join(f"{n} {_KINDS[kind][n > 1]}" for kind in _KINDS if (n := counts[kind])) or "nothing yet"
    return fragment("view", {"entries": entries, "folder": str(folder), "counted": counted, "first": first})
