"""A folder of results that a command writes whole or not at all, and replaces only where it wrote it itself.

It is made beside its place and renamed. Its manifest, written last, names every file with its sha256: only these may be
replaced later.
"""

import contextlib
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from anchorscope.artefacts.durable import replacing, sha256
from anchorscope.artefacts.new_folder import new_folder, writable
from anchorscope.errors import UserError


@dataclass(frozen=True)
class SealedFolder:
    """One kind of such folders."""

    kind: str
    """What it is called."""
    command: str
    """What makes one."""
    manifest: str
    """The file that is written last; a folder without it is not of this kind."""
    files: tuple[str, ...]
    """Files and folders that it may hold."""

    @contextlib.contextmanager
    def fresh(self, out: Path) -> Iterator[Path]:
        """A new folder to write into; when all is done it takes the place of `out`, and of an earlier one there."""
        place = Path(os.path.realpath(out))
        if not place.name:
            raise UserError(f"{str(out)!r} is the root of the file system; choose a folder below it with --out.")
        beside = place.with_name(f"{place.name}.partial")
        with writable(out):
            with contextlib.suppress(FileNotFoundError):
                place.stat()  # links in a circle, a name that is too long: told before hours of work
            _refuse_foreign(str(out), place, self._written_before(place))
            _refuse_foreign(str(beside), beside, self.files)  # a killed command may have left one
        with new_folder(place.parent), replacing(place) as half_made:
            with writable(out):
                half_made.mkdir()
            yield half_made

    def seal(self, folder: Path, manifest: dict[str, Any]) -> None:
        """Writes the manifest with the sha256 of every other file."""
        files = sorted(path for path in folder.rglob("*") if path.is_file())
        hashes = {path.relative_to(folder).as_posix(): sha256(path) for path in files}
        text = json.dumps({**manifest, "sha256": hashes}, indent=2, ensure_ascii=False, allow_nan=False)
        (folder / self.manifest).write_text(text + "\n", encoding="utf-8")

    def read(self, path: Path) -> dict[str, Any]:
        """The manifest of a finished folder."""
        try:
            found: dict[str, Any] = json.loads((path / self.manifest).read_text(encoding="utf-8"))
            return found
        except (OSError, json.JSONDecodeError):
            told = f"{str(path)!r} is not a {self.kind} (no {self.manifest}); make one with {self.command}."
            raise UserError(told) from None

    def _written_before(self, place: Path) -> tuple[str, ...]:
        """What the manifest in this folder says that was written; nothing, where none was finished here."""
        try:
            return (self.manifest, *self.read(place)["sha256"])
        except (UserError, KeyError, TypeError):
            return ()


def _refuse_foreign(named: str, place: Path, ours: Sequence[str]) -> None:
    """A folder that holds anything but what the same command wrote is not ours to replace: people have figures too."""
    if place.exists() and not place.is_dir():
        raise UserError(f"{named!r} is a file, not a folder; choose another with --out.")
    files = (path.relative_to(place).as_posix() for path in place.rglob("*") if not path.is_dir())
    foreign = (name for name in files if not any(name == own or name.startswith(f"{own}/") for own in ours))
    named_ones = sorted(islice(foreign, 6))  # somebody's whole home may lie there
    if named_ones:
        found = ", ".join(named_ones[:5]) + (" …" if len(named_ones) > 5 else "")
        raise UserError(f"Folder {named!r} holds other things ({found}); choose an empty or new one with --out.")
