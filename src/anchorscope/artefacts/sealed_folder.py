"""A folder of results that a command writes whole or not at all, and replaces only where it wrote it itself.

A new folder is made beside its place and renamed. Into one that is there, the files are moved one by one, the manifest
last: whoever stands in it (a shell, a mount) stays where it is. The manifest names every file with its sha256, and
seals itself with a hash: only these files may be replaced later, and one that was changed since is moved aside.
"""

import contextlib
import json
import os
import re
import shlex
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from anchorscope.artefacts.index import Damaged, are_inside, damage, facts_of
from anchorscope.errors import UserError
from anchorscope.files import (
    PARTIAL,
    canonical_hash,
    files_below,
    folder_beside,
    move_aside,
    move_files,
    new_folder,
    read_regular,
    remove_files,
    replacing,
    sync_folder,
    sync_tree,
    writable,
)

_NEW = "results"
_ASIDE = re.compile(r"\.changed-\d+$")


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
        """A new folder to write into; when all is done its files take their place in `out`, and that of earlier ones.

        A command that fails leaves `out` as it was.
        """
        place = Path(os.path.realpath(out))
        if not place.name:
            raise UserError(f"{str(out)!r} is the root of the file system; choose a folder below it with --out.")
        with writable(out):
            with contextlib.suppress(FileNotFoundError):
                place.stat()  # links in a circle, a name that is too long: told before hours of work
            before = self._written_before(place)
            killed = tuple(f"{_NEW}{PARTIAL}/{name}" for name in self.files)  # a killed command may have left them
            _refuse_foreign(str(out), place, killed if before is None else (*before, self.manifest, *killed))
        if place.is_dir():
            with folder_beside(place / _NEW) as half_made:
                yield half_made
                self._take_place(half_made, place, before or {})
            return
        beside = place.with_name(f"{place.name}{PARTIAL}")
        with writable(out):
            _refuse_foreign(str(beside), beside, self.files)
        with new_folder(place.parent), replacing(place) as half_made:
            with writable(out):
                half_made.mkdir()
            yield half_made

    def _take_place(self, made: Path, place: Path, before: dict[str, str]) -> None:
        """Moves new files into a folder that is there; without its manifest it counts as none in the meantime."""
        names = [name for name in files_below(made) if name != self.manifest]
        sync_tree(made)
        for name in {*before, *names}:
            is_ours = name in before and damage(place, {name: {"sha256": before[name]}}) is None
            if os.path.lexists(place / name) and not is_ours:
                move_aside(place / name)
        (place / self.manifest).unlink(missing_ok=True)
        sync_folder(place)
        move_files(made, place, names)
        remove_files(place, {*before} - {*names})
        move_files(made, place, [self.manifest])

    def seal(self, folder: Path, manifest: dict[str, Any]) -> None:
        """Writes the manifest with the sha256 of every other file."""
        text = sealed_text(folder, manifest, files_below(folder))
        (folder / self.manifest).write_text(text, encoding="utf-8")

    def read(self, path: Path) -> dict[str, Any]:
        """The manifest of a finished folder."""
        try:
            return read_sealed(path / self.manifest)
        except FileNotFoundError:
            told = f"{str(path)!r} is not a {self.kind} (no {self.manifest}); make one with {self.command}."
            raise UserError(told) from None
        except (OSError, ValueError):
            told = f"{str(path)!r} is not a {self.kind} (its {self.manifest} is damaged); make it with {self.command}."
            raise UserError(told) from None

    def place(self, path: Path, manifest: dict[str, Any], name: str) -> Path:
        """Where a file of a finished folder is; one that is not what was written is refused."""
        wrong = damage(path, {name: {"sha256": manifest["sha256"][name]}})
        if wrong is not None:
            raise Damaged(
                f"The {self.kind} {str(path)!r} is damaged: {wrong}. The command that makes it again is named by: "
                f"anchorscope verify {shlex.quote(str(path))}"
            )
        return path / name

    def _written_before(self, place: Path) -> dict[str, str] | None:
        """What the manifest in this folder says that was written; None where none was finished here."""
        try:
            return dict(read_sealed(place / self.manifest)["sha256"])
        except (OSError, ValueError, KeyError):
            return None


def sealed_text(folder: Path, record: dict[str, Any], names: list[str]) -> str:
    """A manifest as it is written: what it says, the sha256 of files, and the hash of all that."""
    hashes = {name: known["sha256"] for name, known in facts_of(folder, names).items()}
    content = {**record, "sha256": hashes}
    sealed = {**content, "seal": canonical_hash(content)}
    return json.dumps(sealed, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def read_sealed(place: Path) -> dict[str, Any]:
    """What a manifest says; one that is not what was written raises `ValueError`. Early ones have no seal."""
    try:
        found = json.loads(read_regular(place))
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not isinstance(found, dict) or not isinstance(hashes := found.get("sha256", {}), dict):
        raise ValueError("something else")
    seal = found.pop("seal", None)
    if (seal is not None and seal != canonical_hash(found)) or not are_inside(hashes):
        raise ValueError("changed")
    return found


def _refuse_foreign(named: str, place: Path, ours: Collection[str]) -> None:
    """A folder that holds anything but what the same command wrote is not ours to replace: people have figures too."""
    if place.exists() and not place.is_dir():
        raise UserError(f"{named!r} is a file, not a folder; choose another with --out.")
    files = (path.relative_to(place).as_posix() for path in place.rglob("*") if path.is_symlink() or not path.is_dir())
    foreign = (name for name in files if not _is_among(_ASIDE.sub("", name), ours))
    named_ones = sorted(islice(foreign, 6))  # somebody's whole home may lie there
    if named_ones:
        found = ", ".join(named_ones[:5]) + (" …" if len(named_ones) > 5 else "")
        raise UserError(f"Folder {named!r} holds other things ({found}); choose an empty or new one with --out.")


def _is_among(name: str, ours: Collection[str]) -> bool:
    return any(name == own or name.startswith(f"{own}/") for own in ours)
