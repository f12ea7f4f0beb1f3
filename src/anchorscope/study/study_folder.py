"""The folder of a study: its file, a run folder per run below `runs/`, and the page.

`study.json` marks it and lists what the study itself wrote, with hashes: only these files are ever replaced, and a file
that was changed since is moved aside. It also keeps why runs failed. How far each run is stands in its own folder.
"""

import contextlib
import hashlib
import os
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from anchorscope.artefacts.index import are_inside, damage, facts_of
from anchorscope.artefacts.kinds import STUDY_MARKER
from anchorscope.artefacts.sealed_folder import read_sealed
from anchorscope.errors import UserError
from anchorscope.files import (
    LOCK,
    PARTIAL,
    canonical_hash,
    files_below,
    folder_beside,
    locked,
    make_folder,
    move_aside,
    move_files,
    new_folder,
    remove_files,
    replacing,
    sync_tree,
    writable,
    write_json,
)
from anchorscope.study.grid import Study, read_study

FILE, RUNS = "study.toml", "runs"
"""The study's own file, and the folder of its runs."""
_MARK, _VERSION = "anchorscope study", 1
_OURS = {FILE, STUDY_MARKER, LOCK, RUNS, f"{STUDY_MARKER}{PARTIAL}", f"{FILE}{PARTIAL}", f"page{PARTIAL}"}


@dataclass
class StudyFolder:
    """A study's folder, and what it remembers."""

    path: Path
    name: str = ""
    runs: list[str] = field(default_factory=list)
    """The names of all runs."""
    failed: dict[str, dict[str, str]] = field(default_factory=dict)
    """Why a run failed (`line`), and of which options (`key`)."""
    files: dict[str, str] = field(default_factory=dict)
    """sha256 of every file that the study itself wrote."""
    arriving: dict[str, str] = field(default_factory=dict)
    """Files that may stand in their place already, though `files` does not list them yet."""
    page_of: str | None = None
    """Hash of what the page was made from."""

    def run(self, name: str) -> Path:
        """The folder of one run."""
        return self.path / RUNS / name

    def save(self) -> None:
        """Writes study.json, whole."""
        content = {
            "marker": _MARK,
            "schema_version": _VERSION,
            "name": self.name,
            "runs": self.runs,
            "failed": self.failed,
            "arriving": self.arriving,
            "page_of": self.page_of,
            "sha256": self.files,
            "command": shlex.join(["anchorscope", "study", "report", "--out", str(self.path)]),
        }
        write_json(self.path / STUDY_MARKER, {**content, "seal": canonical_hash(content)})

    def fail(self, name: str, key: str, line: str | None) -> None:
        """Keeps why a run failed, or forgets it."""
        if line is None and name not in self.failed:
            return
        self.failed.pop(name, None)
        if line is not None:
            self.failed[name] = {"key": key, "line": line}
        self.save()

    def write_study(self, study: Study, source: Path) -> None:
        """Keeps the study's file; one that was edited in its place stays as it is."""
        self.name, self.runs = study.name, [run.name for run in study.runs]
        place = self.path / FILE
        if place.exists() and source.exists() and os.path.samefile(place, source):
            self.files[FILE] = hashlib.sha256(place.read_bytes()).hexdigest()
            return self.save()
        content = study.to_toml().encode()
        self.arriving = {FILE: hashlib.sha256(content).hexdigest()}
        self._clear_way([FILE])
        self.save()
        with replacing(place) as half_made:
            half_made.write_bytes(content)
        self.files |= self.arriving
        self.arriving = {}
        self.save()

    @contextlib.contextmanager
    def new_page(self, made_from: str) -> Iterator[Path]:
        """A folder to write the page into; its files then take their place, and that of the earlier ones."""
        with folder_beside(self.path / "page") as made:
            yield made
            names = files_below(made)
            hashes = {name: facts["sha256"] for name, facts in facts_of(made, names).items()}
            sync_tree(made)
            self._clear_way(names)
            own = {name: known for name, known in self.files.items() if name == FILE}
            old = {name: known for name, known in self.files.items() if name not in own}
            stale = [name for name in old if name not in hashes and self._is_own(name)]
            self.files, self.arriving, self.page_of = own, {**old, **hashes}, None
            self.save()
            move_files(made, self.path, names)
            remove_files(self.path, stale)
            self.files, self.arriving, self.page_of = own | hashes, {}, made_from
            self.save()

    def has_page(self, made_from: str) -> bool:
        """Whether the page of exactly this is there, whole."""
        known = {name: {"sha256": one} for name, one in self.files.items() if name != FILE}
        return self.page_of == made_from and damage(self.path, known) is None

    def _clear_way(self, names: list[str]) -> None:
        """Moves aside what stands where a file of the study goes and was not written by it."""
        for name in names:
            for part in reversed(Path(name).parents[:-1]):  # a file where a folder has to be
                if os.path.lexists(self.path / part) and not (self.path / part).is_dir():
                    move_aside(self.path / part)
            if os.path.lexists(self.path / name) and not self._is_own(name):
                move_aside(self.path / name)

    def _is_own(self, name: str) -> bool:
        """Whether a file is as the study wrote it."""
        known = [one[name] for one in (self.files, self.arriving) if name in one]
        return any(damage(self.path, {name: {"sha256": one}}) is None for one in known)


@contextlib.contextmanager
def open_study(path: Path, study: Study, source: Path) -> Iterator[StudyFolder]:
    """The folder, ready and locked; one that holds anything but a study is refused."""
    with writable(path):
        _refuse_foreign(path)
    with new_folder(path), locked(path):
        with writable(path):
            _refuse_foreign(path)  # another process may have been here in the meantime
            folder = look_into(path)
            make_folder(path / RUNS)
            folder.write_study(study, source)
        yield folder


def look_into(path: Path) -> StudyFolder:
    """What a study's folder remembers; nothing where it is new."""
    try:
        found = read_sealed(path / STUDY_MARKER)
        whole = found["marker"] == _MARK and are_inside([*found["sha256"], *found["arriving"]])
        newer = found["schema_version"] != _VERSION
        known: dict[str, Any] = {name: found[name] for name in ("name", "runs", "failed", "arriving", "page_of")}
        known["failed"] = {
            name: {"key": str(one["key"]), "line": str(one["line"])} for name, one in known["failed"].items()
        }
    except FileNotFoundError:
        return StudyFolder(path)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        whole, newer, known = False, False, {}
    if newer:
        raise UserError(
            f"The study in {str(path)!r} was written by another version of anchorscope; choose another folder with "
            f"--out."
        )
    if not whole:
        raise UserError(
            f"{str(path / STUDY_MARKER)!r} is damaged. Its runs are whole in themselves: move it away, and the same "
            f"command goes on."
        )
    return StudyFolder(path, files=dict(found["sha256"]), **known)


def study_in(path: Path) -> Study:
    """The study that a folder holds."""
    if not (path / FILE).is_file():
        raise UserError(
            f"{str(path)!r} holds no study (no {FILE}); run one with: anchorscope study run STUDY.toml --out DIR"
        )
    return read_study(path / FILE)


def _refuse_foreign(path: Path) -> None:
    """Refuses a folder that holds anything but a study; a user's files beside a study's are left alone."""
    if path.exists() and not path.is_dir():
        raise UserError(f"{str(path)!r} is a file, not a folder; choose another with --out.")
    if not path.is_dir() or (path / STUDY_MARKER).is_file():
        return
    others = sorted(entry.name for entry in path.iterdir() if entry.name not in _OURS)
    if others:
        listed = ", ".join(others[:5])
        raise UserError(f"Folder {str(path)!r} holds other things ({listed}); choose an empty or new one with --out.")
