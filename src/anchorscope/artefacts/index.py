"""The index of a run folder: the marker by which a folder is a run, and the list of every file that the run wrote.

Only files that stand here may ever be removed or replaced. Every file is listed with its size and hash, which are
checked when it is read. The index guards itself with a hash of its own content.
"""

import json
import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from anchorscope.artefacts.durable import canonical_hash, write_json
from anchorscope.errors import UserError
from anchorscope.file_hashes import known_sha256
from anchorscope.regular_files import read_regular
from anchorscope.schema import SCHEMA_VERSION

INDEX = "index.json"
WORK = "work"
"""The folder of a run's steps."""
_MARK = "anchorscope run"
_STEP_FILE = re.compile(rf"{WORK}/(?:.+/)?[^/]+-[0-9a-f]{{12}}/.+", re.DOTALL)

FileFacts = dict[str, Any]
"""`size` and `sha256` of a file; a manifest knows the second only."""


class OtherVersion(UserError):
    """An index that another version of anchorscope wrote."""


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
    """Files of steps that no step lists any more, and that may still be there."""
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

    def when_finished(self, published: str) -> dict[str, Any]:
        """What the manifest keeps of it, so that an index that was lost can be written again: large steps are gone."""
        gone: dict[str, Any] = {"dropped": True, "files": {}}
        steps = {name: {**vars(one), **(gone if one.large else {})} for name, one in self.steps.items()}
        return {"steps": steps, "notes": {**self.notes, "published": published}}


def is_run(folder: Path) -> bool:
    """Whether a folder carries our marker."""
    return (folder / INDEX).is_file()


def read_index(folder: Path) -> Index:
    """The index of a run folder; one that is damaged, or of another version, is told in one line."""
    try:
        found = json.loads(read_regular(folder / INDEX))
        seal = found.pop("seal")
        whole = found["marker"] == _MARK and seal == canonical_hash(found) and _is_possible(found)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        whole = False
    if not whole:
        raise Damaged(
            f"{str(folder / INDEX)!r} is damaged, so that it cannot be told which files of this folder belong to the "
            f"run; nothing was changed. Run the same command again into another folder with --out."
        )
    if found["schema_version"] != SCHEMA_VERSION:
        raise OtherVersion(
            f"The run in {str(folder)!r} was written by another version of anchorscope (format "
            f"{found['schema_version']}, this one writes {SCHEMA_VERSION}); choose another folder with --out."
        )
    others = ("results", "arriving", "leaving", "notes", "events")
    return Index(_steps(found), **{name: found[name] for name in others})


def index_in(manifest: Mapping[str, Any]) -> Index:
    """The steps and notes that the index had when a run was finished, out of its manifest; none of an early version."""
    kept = manifest.get("index", {"steps": {}, "notes": {}})
    of_steps = _files_of_steps(kept)
    if not (are_inside(of_steps) and all(map(_STEP_FILE.fullmatch, of_steps))):
        return Index()
    return Index(_steps(kept), notes=dict(kept["notes"]), events=list(manifest.get("events", ())))


def _steps(found: Mapping[str, Any]) -> dict[str, StepRecord]:
    return {name: StepRecord(**record) for name, record in found["steps"].items()}


class Damaged(UserError):
    """A file of ours is not what was written; the message names it and the command that makes it again."""


def rerun_command(folder: Path) -> str:
    """The command that makes damaged files of a run again: from its recipe, where that is whole."""
    recipe = folder / "recipe.toml"
    try:
        facts = read_index(folder).results.get(recipe.name)
    except UserError:
        return "anchorscope run --out NEW_FOLDER, with the options that the run was made with"
    if facts is not None and wrong_with(recipe, facts) is None:
        return shlex.join(["anchorscope", "run", str(recipe), "--out", str(folder)])
    return f"anchorscope run --out {shlex.quote(str(folder))}, with the options that the run was made with"


def _is_possible(found: Mapping[str, Any]) -> bool:
    """Whether an index lists only what a run can have written: whoever makes one elsewhere may list anything.

    Files of steps are removed without a look at what is in them, so they must lie in a step's own folder; results are
    compared with their hash before.
    """
    results = [*found["results"], *found["arriving"]]
    of_steps = [*_files_of_steps(found), *found["leaving"], *(name for name in results if name.startswith(f"{WORK}/"))]
    return are_inside([*of_steps, *results]) and all(map(_STEP_FILE.fullmatch, of_steps))


def _files_of_steps(found: Mapping[str, Any]) -> list[str]:
    return [name for record in found["steps"].values() for name in record["files"]]


def are_inside(names: Iterable[str]) -> bool:
    """Whether all names are of files below the folder that lists them: a list from elsewhere may say anything."""
    return all(
        name and "\0" not in name and not PurePosixPath(name).is_absolute() and ".." not in PurePosixPath(name).parts
        for name in names
    )


def facts_of(folder: Path, names: list[str]) -> dict[str, FileFacts]:
    """Size and hash of files of a folder, by their relative paths."""
    places = [folder / name for name in names]
    return {
        name: {"size": place.stat().st_size, "sha256": digest}
        for name, place, digest in zip(names, places, known_sha256(places), strict=True)
    }


def wrong_with(place: Path, known: FileFacts) -> str | None:
    """How a file is not what was written, in words; None if it is."""
    try:
        if not place.is_file():
            return "is missing"
        size = place.stat().st_size
        if size != known.get("size", size):
            return f"has {size:,} bytes instead of {known['size']:,}"
        return None if known_sha256([place]) == [known["sha256"]] else "is not what was written (its sha256 differs)"
    except OSError as error:
        return f"cannot be read ({error.strerror})"


def damage(folder: Path, files: Mapping[str, FileFacts]) -> str | None:
    """What is wrong with files, in words: the first that is missing or not what was written; None if all are whole."""
    for name, known in files.items():
        wrong = wrong_with(folder / name, known)
        if wrong is not None:
            return f"{name} {wrong}"
    return None
