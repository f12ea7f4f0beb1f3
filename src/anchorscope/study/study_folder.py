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

from anchorscope.artefacts.sealed_folder import (
    STUDY_MARKER,
    OwnFiles,
    are_inside,
    damage,
    facts_of,
    hashes_of,
    only_hashes,
    open_locked,
    read_sealed,
    refuse_foreign,
    sealed,
)
from anchorscope.errors import UserError
from anchorscope.files import LOCK, PARTIAL, files_below, folder_beside, make_folder, writable, write_json
from anchorscope.study.grid import Study, read_study

FILE, RUNS = "study.toml", "runs"
"""The study's own file, and the folder of its runs."""
_MARK, _VERSION = "anchorscope study", 1
_OURS = (LOCK, RUNS, f"{STUDY_MARKER}{PARTIAL}", FILE, f"{FILE}{PARTIAL}", f"page{PARTIAL}")


@dataclass
class StudyFolder(OwnFiles):
    """A study's folder, and what it remembers."""

    name: str = ""
    runs: list[str] = field(default_factory=list)
    """The names of all runs."""
    failed: dict[str, dict[str, str]] = field(default_factory=dict)
    """Why a run failed (`line`), and of which options (`key`)."""
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
            "arriving": hashes_of(self.arriving),
            "page_of": self.page_of,
            "sha256": hashes_of(self.results),
            "command": shlex.join(["anchorscope", "study", "report", "--out", str(self.path)]),
        }
        write_json(self.path / STUDY_MARKER, sealed(content))

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
            self.results[FILE] = {"sha256": hashlib.sha256(place.read_bytes()).hexdigest()}
        else:
            self.write(FILE, study.to_toml().encode())
        self.save()

    @contextlib.contextmanager
    def new_page(self, made_from: str) -> Iterator[Path]:
        """A folder to write the page into; its files then take their place, and that of the earlier ones."""
        with folder_beside(self.path / "page") as made:
            yield made
            self.page_of = None
            self.take(made, facts_of(made, files_below(made)), kept=[FILE])
            self.page_of = made_from
            self.save()

    def has_page(self, made_from: str) -> bool:
        """Whether the page of exactly this is there, whole."""
        pages = {name: facts for name, facts in self.results.items() if name != FILE}
        return self.page_of == made_from and damage(self.path, pages) is None


@contextlib.contextmanager
def open_study(path: Path, study: Study, source: Path) -> Iterator[StudyFolder]:
    """The folder, ready and locked; one that holds anything but a study is refused."""

    def refuse() -> None:
        if not (path / STUDY_MARKER).is_file():  # a user's files beside a study's are left alone
            refuse_foreign(path, _OURS)

    with open_locked(path, refuse):
        with writable(path):
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
        known: dict[str, Any] = {name: found[name] for name in ("name", "runs", "page_of")}
        known |= {"results": only_hashes(found["sha256"]), "arriving": only_hashes(found["arriving"])}
        known["failed"] = {
            name: {"key": str(one["key"]), "line": str(one["line"])} for name, one in found["failed"].items()
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
    return StudyFolder(path, **known)


def study_in(path: Path) -> Study:
    """The study that a folder holds."""
    if not (path / FILE).is_file():
        raise UserError(
            f"{str(path)!r} holds no study (no {FILE}); run one with: anchorscope study run STUDY.toml --out DIR"
        )
    return read_study(path / FILE)
