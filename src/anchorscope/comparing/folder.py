"""The folder of a comparison: written beside its place and renamed, so that it is there whole or not at all."""

import contextlib
import json
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from anchorscope.artefacts.durable import replacing, sha256
from anchorscope.errors import UserError

MANIFEST = "comparison.json"
"""Written last; a folder without it is no comparison."""
FILES = ("curves.csv", "observations.json", "figures", "report.html", "report.md", MANIFEST)
"""Everything that a comparison writes."""


@contextlib.contextmanager
def fresh_folder(out: Path, runs: Sequence[Path]) -> Iterator[Path]:
    """A new folder to write into; when all is done it takes the place of `out`, and of an earlier comparison there."""
    place = out.resolve()
    beside = place.with_name(f"{place.name}.partial")
    _refuse_foreign(str(out), place, _written_before(place))
    _refuse_foreign(str(beside), beside, FILES)  # a killed comparison may have left one
    for run in runs:
        if place.is_relative_to(run.resolve()):
            raise UserError(f"{str(out)!r} lies within the run {str(run)!r}, which is sealed; choose another --out.")
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        with replacing(place) as half_made:
            half_made.mkdir()
            yield half_made
    except OSError as error:
        reason = error.strerror or str(error)
        raise UserError(f"Folder {str(out)!r} cannot be written ({reason}); choose another with --out.") from None


def seal(folder: Path, manifest: dict[str, Any]) -> None:
    """Writes the manifest with the sha256 of every other file."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    hashes = {path.relative_to(folder).as_posix(): sha256(path) for path in files}
    text = json.dumps({**manifest, "sha256": hashes}, indent=2, ensure_ascii=False, allow_nan=False)
    (folder / MANIFEST).write_text(text + "\n", encoding="utf-8")


def read_comparison(path: Path) -> dict[str, Any]:
    """The manifest of a comparison."""
    try:
        found: dict[str, Any] = json.loads((path / MANIFEST).read_text(encoding="utf-8"))
        return found
    except (OSError, json.JSONDecodeError):
        told = f"{str(path)!r} is not a comparison (no {MANIFEST}); make one with anchorscope compare."
        raise UserError(told) from None


def _written_before(place: Path) -> tuple[str, ...]:
    """What the comparison in this folder says that it wrote; nothing, where none was finished here."""
    try:
        return (MANIFEST, *read_comparison(place)["sha256"])
    except (UserError, KeyError, TypeError):
        return ()


def _refuse_foreign(named: str, place: Path, ours: Sequence[str]) -> None:
    """A folder that holds anything but what a comparison wrote is not ours to replace: people have figures too."""
    if place.exists() and not place.is_dir():
        raise UserError(f"{named!r} is a file, not a folder; choose another with --out.")
    files = (path.relative_to(place).as_posix() for path in place.rglob("*") if not path.is_dir())
    foreign = (name for name in files if not any(name == own or name.startswith(f"{own}/") for own in ours))
    named_ones = sorted(islice(foreign, 6))  # somebody's whole home may lie there
    if named_ones:
        found = ", ".join(named_ones[:5]) + (" …" if len(named_ones) > 5 else "")
        raise UserError(f"Folder {named!r} holds other things ({found}); choose an empty or new one with --out.")
