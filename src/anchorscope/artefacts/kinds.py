"""What kind of results a folder holds, by the marker that was written into it."""

import os
from pathlib import Path

from anchorscope.artefacts.index import INDEX

RUN, COMPARISON, DETECTORS, VALIDATION, STUDY = "run", "comparison", "detectors", "validation", "study"
STUDY_MARKER = "study.json"
"""Of a study, finished or not."""
MARKERS = {
    "comparison.json": COMPARISON,
    "detection.json": DETECTORS,
    "validation.json": VALIDATION,
    STUDY_MARKER: STUDY,
}
"""The file that is written last, by which a folder is of a kind; a run has an index, or a manifest and a recipe."""


def kind_of(folder: Path) -> str | None:
    """What kind of results a folder holds; None for none of ours."""
    for marker, kind in MARKERS.items():
        if (folder / marker).is_file():
            return kind
    if (folder / INDEX).is_file() or {"manifest.json", "recipe.toml"} <= set(_names(folder)):
        return RUN
    return None


def _names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []
