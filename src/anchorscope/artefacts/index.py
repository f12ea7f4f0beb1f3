"""The index of a run folder: the marker by which a folder is a run, and the list of every file that the run wrote.

Only files that stand here may ever be removed or replaced. Every file is listed with its size and hash, which are
checked when it is read. The index guards itself with a hash of its own content.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from anchorscope.artefacts.durable import canonical_hash, sha256, write_json
from anchorscope.errors import UserError
from anchorscope.schema import SCHEMA_VERSION

INDEX = "index.json"
_MARK = "anchorscope run"

FileFacts = dict[str, Any]
"""`size` and `sha256` of a file."""


@dataclass
class StepRecord:
    """A step that was made: what it was made from, its files, and what it took."""

    key: str
    made_from: dict[str, Any]
    files: dict[str, FileFacts]
    """By path relative to the run folder; empty where the result was dropped to save space."""
    seconds: float
    peak_memory_mb: dict[str, float]
    large: bool = False
    """Whether the result is dropped when the run is finished."""
    dropped: bool = False
    """Whether the result was made and then removed, because it is large and was not to be kept."""


@dataclass
class Index:
    """All that a run folder knows of itself."""

    steps: dict[str, StepRecord] = field(default_factory=dict)
    results: dict[str, FileFacts] = field(default_factory=dict)
    """The result files, by path relative to the run folder."""
    arriving: dict[str, FileFacts] = field(default_factory=dict)
    """Files that may stand in their place already, though neither a step nor a result lists them yet."""
    leaving: list[str] = field(default_factory=list)
    """Files that no step and no result lists any more, and that may still be there."""
    notes: dict[str, Any] = field(default_factory=dict)
    """Numbers that a resumed run has to know."""
    events: list[str] = field(default_factory=list)
    """What was extended, redone or retried, in the order in which it happened."""

    def save(self, folder: Path) -> None:
        """Writes it, whole."""
        content = {
            "marker": _MARK,
            "schema_version": SCHEMA_VERSION,
            "steps": {name: vars(record) for name, record in self.steps.items()},
            "results": self.results,
            "arriving": self.arriving,
            "leaving": self.leaving,
            "notes": self.notes,
            "events": self.events,
        }
        write_json(folder / INDEX, {**content, "seal": canonical_hash(content)}, indent=None)  # after every step


def is_run(folder: Path) -> bool:
    """Whether a folder carries our marker."""
    return (folder / INDEX).is_file()


def read_index(folder: Path) -> Index:
    """The index of a run folder; one that is damaged, or of another version, is told in one line."""
    try:
        found = json.loads((folder / INDEX).read_text(encoding="utf-8"))
        seal = found.pop("seal")
        whole = found["marker"] == _MARK and seal == canonical_hash(found)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        whole = False
    if not whole:
        raise UserError(
            f"{str(folder / INDEX)!r} is damaged, so that it cannot be told which files of this folder belong to the "
            f"run; nothing was changed. Choose another folder with --out, or move this one away."
        )
    if found["schema_version"] != SCHEMA_VERSION:
        raise UserError(
            f"The run in {str(folder)!r} was written by another version of anchorscope (format "
            f"{found['schema_version']}, this one writes {SCHEMA_VERSION}); choose another folder with --out."
        )
    steps = {name: StepRecord(**record) for name, record in found["steps"].items()}
    others = ("results", "arriving", "leaving", "notes", "events")
    return Index(steps, **{name: found[name] for name in others})


def facts_of(folder: Path, names: list[str]) -> dict[str, FileFacts]:
    """Size and hash of files of a folder, by their relative paths."""
    return {name: {"size": (folder / name).stat().st_size, "sha256": sha256(folder / name)} for name in names}


def damage(folder: Path, files: Mapping[str, FileFacts], hashes: bool = True) -> str | None:
    """What is wrong with files, in words: the first that is missing or not what was written; None if all are whole."""
    for name, known in files.items():
        place = folder / name
        if not place.is_file():
            return f"{name} is missing"
        if place.stat().st_size != known["size"]:
            return f"{name} has {place.stat().st_size:,} bytes instead of {known['size']:,}"
        if hashes and sha256(place) != known["sha256"]:
            return f"{name} is not what was written (its sha256 differs)"
    return None
