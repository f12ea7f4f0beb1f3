"""The folder of a comparison: written beside its place and renamed, so that it is there whole or not at all."""

import contextlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from anchorscope.errors import UserError
from anchorscope.store import replacing, sha256

MANIFEST = "comparison.json"
"""Written last; a folder without it is no comparison."""
FILES = ("curves.csv", "observations.json", "figures", "report.html", "report.md", MANIFEST)
"""Everything that a comparison writes."""


@contextlib.contextmanager
def fresh_folder(out: Path, runs: Sequence[Path]) -> Iterator[Path]:
    """A new folder to write into; when all is done it takes the place of `out`, and of an earlier comparison there."""
    place = out.resolve()
    _refuse_foreign(out, place)
    _refuse_foreign(out, place.with_name(f"{place.name}.partial"))  # a killed comparison may have left one
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


def _refuse_foreign(asked: Path, place: Path) -> None:
    """A folder that holds anything but a comparison is not ours to replace."""
    if place.exists() and not place.is_dir():
        raise UserError(f"{str(place)!r} is a file, not a folder; choose another with --out.")
    entries = sorted(entry.name for entry in place.iterdir()) if place.is_dir() else []
    foreign = [name for name in entries if name not in FILES]
    if foreign:
        found = ", ".join(foreign[:5]) + (" …" if len(foreign) > 5 else "")
        where = str(asked) if place == asked.resolve() else str(place)
        raise UserError(f"Folder {where!r} holds other things ({found}); choose an empty or new one with --out.")
