"""Folders of results: every file listed with its hash, the list sealed, and no file replaced that we didn't write.

Only listed files are ever replaced or removed; a file that was changed since, or that is in the way, is moved aside. A
list seals itself with a hash of its own content. Runs and studies keep their list up to date while they work;
comparisons and detectors write theirs last.
"""

import contextlib
import hashlib
import os
import re
import shlex
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Any

from anchorscope.artefacts.forms import check_form
from anchorscope.errors import UserError
from anchorscope.files import (
    PARTIAL,
    canonical_hash,
    files_below,
    folder_beside,
    known_sha256,
    locked,
    make_folder,
    move_aside,
    move_files,
    new_folder,
    partial_of,
    read_regular,
    remove_files,
    remove_partials,
    replacing,
    sync_folder,
    sync_tree,
    writable,
)
from anchorscope.json_text import from_json, to_json

RUN = "run"
COMPARISON = "comparison"
DETECTORS = "detectors"
STUDY = "study"
INDEX, MANIFEST, STUDY_MARKER = "index.json", "manifest.json", "study.json"
MARKERS = {
    "comparison.json": COMPARISON,
    "detection.json": DETECTORS,
    STUDY_MARKER: STUDY,
}
"""The file that marks a kind of folder; a run has an index, or a manifest and a recipe."""
_NEW = "results"
_ASIDE = re.compile(r"\.changed-\d+$")

FileFacts = dict[str, Any]
"""`size` and `sha256` of a file; a manifest has only the second."""


class Damaged(UserError):
    """A file of ours isn't what was written; the message names it and the command that makes it again."""


def kind_of(folder: Path) -> str | None:
    """The kind of results in a folder; None if not ours."""
    for marker, kind in MARKERS.items():
        if (folder / marker).is_file():
            return kind
    is_run = (folder / INDEX).is_file() or all(
        os.path.lexists(folder / name) for name in (MANIFEST, "recipe.toml")
    )
    return RUN if is_run else None


# Files and what is known of them


def facts_of(folder: Path, names: Collection[str]) -> dict[str, FileFacts]:
    """Size and hash of files of a folder, by their relative paths."""
    places = [folder / name for name in names]
    return {
        name: {"size": path.stat().st_size, "sha256": digest}
        for name, path, digest in zip(names, places, known_sha256(places), strict=True)
    }


def only_hashes(hashes: Mapping[str, str]) -> dict[str, FileFacts]:
    return {name: {"sha256": digest} for name, digest in hashes.items()}


def wrong_with(path: Path, facts: FileFacts) -> str | None:
    """What is wrong with a file, in words; None if it is whole."""
    try:
        if not path.is_file():
            return "is missing"
        size = path.stat().st_size
        if size != facts.get("size", size):
            return f"has {size:,} bytes instead of {facts['size']:,}"
        return (
            None
            if known_sha256([path]) == [facts["sha256"]]
            else "is not what was written (its sha256 differs)"
        )
    except OSError as error:
        return f"cannot be read ({error.strerror})"


def damage(folder: Path, files: Mapping[str, FileFacts]) -> str | None:
    """What is wrong with the first missing or damaged file, in words; None if all are whole."""
    checked = (
        (name, wrong_with(folder / name, facts)) for name, facts in files.items()
    )
    return next(
        (f"{name} {wrong}" for name, wrong in checked if wrong is not None), None
    )


def are_inside(names: Iterable[str]) -> bool:
    """Whether all names are below the folder that lists them: a list from elsewhere may say anything."""
    return all(
        name
        and "\0" not in name
        and not PurePosixPath(name).is_absolute()
        and ".." not in PurePosixPath(name).parts
        for name in names
    )


# Sealed records


def sealed(record: Mapping[str, Any]) -> dict[str, Any]:
    return {**record, "seal": canonical_hash(record)}


def sealed_text(folder: Path, record: Mapping[str, Any], names: Collection[str]) -> str:
    """A manifest as text: its content, the sha256 of files, and the hash of all that."""
    hashes = {name: facts["sha256"] for name, facts in facts_of(folder, names).items()}
    record = sealed({**record, "sha256": hashes})
    return to_json(record, indent=2, ascii=False) + "\n"


def read_json(path: Path) -> Any:
    """The content of a JSON file; `ValueError` if it isn't one."""
    return from_json(read_regular(path))


def unsealed(record: Any) -> dict[str, Any]:
    """The content of a sealed record; `ValueError` if it was changed."""
    if not isinstance(record, dict):
        raise ValueError("something else")
    content = {name: value for name, value in record.items() if name != "seal"}
    if record.get("seal") != canonical_hash(content):
        raise ValueError("changed")
    hashes = record.get("sha256", {})
    if not isinstance(hashes, dict) or not are_inside(hashes):
        raise ValueError("something else")
    if not all(isinstance(digest, str) for digest in hashes.values()):
        raise ValueError("a file without its hash")
    return content


def read_sealed(path: Path) -> dict[str, Any]:
    """What a list of ours says; `ValueError` if it was changed, or holds something else than we write."""
    record = unsealed(read_json(path))
    check_form(path.name, record)
    return record


# The folder


@dataclass
class OwnFiles:
    """The files of a folder that we wrote; no other file is ever replaced or removed.

    The lists are saved before files move and afterwards: a killed process leaves only files that the next one
    recognises as ours.
    """

    path: Path
    results: dict[str, FileFacts] = field(default_factory=dict)
    """Files in place, by their relative paths."""
    arriving: dict[str, FileFacts] = field(default_factory=dict)
    """Files that may be in place already, though no other list has them yet."""

    def save(self) -> None:
        """Writes the lists; a folder that is sealed at its end has none until then."""

    def tell(self, what: str) -> None:
        """Reports something that the user has to know."""

    def own_facts(self, name: str) -> FileFacts | None:
        """Size and hash of an unchanged result; None for any other file, and for a link."""
        if (self.path / name).is_symlink():
            return None
        listed = [
            files[name] for files in (self.results, self.arriving) if name in files
        ]
        return next(
            (facts for facts in listed if wrong_with(self.path / name, facts) is None),
            None,
        )

    def is_own(self, name: str) -> bool:
        """Whether a file is as we wrote it."""
        return self.own_facts(name) is not None

    def clear_way(self, names: Iterable[str]) -> None:
        """Moves aside what isn't ours where a file of ours goes."""
        for name in names:
            for part in reversed(PurePosixPath(name).parents[:-1]):
                place = self.path / part  # a file or a link where a folder has to be
                if place.is_symlink() or (place.exists() and not place.is_dir()):
                    self.move_aside(str(part))
            if os.path.lexists(self.path / name) and not self.is_own(name):
                self.move_aside(name)

    def move_aside(self, name: str) -> None:
        """Renames a file that isn't ours, or was changed."""
        aside = move_aside(self.path / name)
        self.results.pop(name, None)
        self.tell(
            f"{name} was not what the run had written; it was moved to {aside.name}"
        )

    def write(self, name: str, content: bytes) -> None:
        """Writes one file, unless it exists with the same content."""
        facts = {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}
        if name in self.results and wrong_with(self.path / name, facts) is None:
            return
        self.arriving[name] = facts
        self.clear_way([name])
        self.save()
        make_folder((self.path / name).parent)
        with replacing(self.path / name) as half_made:
            half_made.write_bytes(content)
        self.results[name] = self.arriving.pop(name)
        self.save()

    def take(self, made: Path, files: dict[str, FileFacts], last: str) -> None:
        """Moves files from their own folder into place, `last` after all others.

        Earlier results without a successor are removed. Without its last file the folder counts as unfinished. The
        caller saves the lists at the end.
        """
        sync_tree(made)
        self.clear_way(files)
        old = self._without_successor(set(files))
        first = {name: facts for name, facts in files.items() if name != last}
        rest = {name: facts for name, facts in files.items() if name == last}
        self.arriving = old | files
        self.save()
        (self.path / last).unlink(missing_ok=True)
        sync_folder(self.path)
        move_files(made, self.path, first)
        self.results, self.arriving = first, old | rest
        self.save()
        remove_files(self.path, old)
        move_files(made, self.path, rest)
        self.results, self.arriving = files, {}

    def _without_successor(self, new: set[str]) -> dict[str, FileFacts]:
        """Results to remove; a changed one stays, and is the user's from now on."""
        old = {
            name: self.own_facts(name)
            for name in sorted({*self.results, *self.arriving} - new)
        }
        for name, facts in old.items():
            if facts is None and (self.path / name).exists():
                self.tell(
                    f"{name} is no result of this run any more; it was changed, so that it stays"
                )
        return {name: facts for name, facts in old.items() if facts is not None}


@contextlib.contextmanager
def open_locked(path: Path, refuse: Callable[[], None]) -> Iterator[None]:
    """A folder, made if missing, locked; `refuse` runs before anything is written, and under the lock."""
    refuse_linked(path)
    with writable(path):
        refuse()
    with new_folder(path), locked(path):
        with writable(path):
            refuse()
        yield


def refuse_linked(path: Path) -> None:
    """Refuses a place that a link inside a folder of results leads to: it belongs to something else."""
    with writable(path):
        place = Path.cwd() / path
        for part in (place, *place.parents):
            if part.is_symlink() and any(map(_has_sealed_list, part.parents)):
                raise UserError(
                    f"{str(part)!r} is a link inside a folder of results; such links are not followed, and nothing was "
                    f"changed. Remove it, or choose another place with --out."
                )


def _has_sealed_list(folder: Path) -> bool:
    """Whether a folder holds a list of files of ours; many projects have an index.json."""
    for name in (INDEX, MANIFEST, *MARKERS):
        with contextlib.suppress(OSError, ValueError):
            record = read_json(folder / name)
            if isinstance(record, dict) and "seal" in record:
                return True
    return False


def refuse_foreign(path: Path, ours: Collection[str], named: str | None = None) -> None:
    """Refuses a folder that holds a link, or anything but our files and folders and what was moved aside."""
    named = named or str(path)
    if path.exists() and not path.is_dir():
        raise UserError(
            f"{named!r} is a file, not a folder; choose another with --out."
        )
    files = (
        below.relative_to(path)
        for below in path.rglob("*")
        if below.is_symlink() or not below.is_dir()
    )
    foreign = (name.as_posix() for name in files if not _is_ours(path, name, ours))
    shown = sorted(islice(foreign, 6))  # it may be a whole home directory
    if shown:
        listed = ", ".join(shown[:5]) + (" …" if len(shown) > 5 else "")
        raise UserError(
            f"Folder {named!r} holds other things ({listed}); choose an empty or new one with --out."
        )


def _is_ours(folder: Path, file: Path, ours: Collection[str]) -> bool:
    if any(map(partial_of, file.parts)):  # a killed command left it
        return True
    original = file.with_name(_ASIDE.sub("", file.name))
    if (folder / file).is_symlink() and original == file:
        return False
    return any(part.as_posix() in ours for part in (original, *original.parents))


@dataclass(frozen=True)
class SealedFolder:
    """A kind of folder that a command writes whole or not at all.

    A new folder is made beside its destination and renamed. In an existing one, files are moved one by one, the
    manifest last, so that a shell or a mount inside it stays valid.
    """

    kind: str
    command: str
    manifest: str
    """Written last; a folder without it isn't of this kind."""

    def refuse_foreign(self, out: Path) -> None:
        """Refuses a folder that is not of this kind; called before anything that takes time as well."""
        refuse_linked(out)
        target = Path(os.path.realpath(out))
        if not target.name:
            raise UserError(
                f"{str(out)!r} is the root of the file system; choose a folder below it with --out."
            )
        with writable(out):
            with contextlib.suppress(FileNotFoundError):
                target.stat()  # links in a circle, a name that is too long: reported before hours of work
            before = self._written_before(target)
            ours = () if before is None else (*before, self.manifest)
            refuse_foreign(target, ours, str(out))

    @contextlib.contextmanager
    def fresh(self, out: Path) -> Iterator[Path]:
        """A new folder to write into; at the end its files replace those in `out`. On failure `out` stays as it was."""
        self.refuse_foreign(out)
        target = Path(os.path.realpath(out))
        before = self._written_before(target)
        if target.is_dir():
            remove_partials(target, _NEW)
            with folder_beside(target / _NEW) as half_made:
                yield half_made
                own = OwnFiles(target, only_hashes(before or {}))
                own.clear_way(before or ())
                if before is not None and (target / self.manifest).is_file():
                    own.results |= facts_of(target, [self.manifest])
                own.take(
                    half_made,
                    facts_of(half_made, files_below(half_made)),
                    self.manifest,
                )
            return
        remove_partials(target.parent, target.name)
        with new_folder(target.parent), replacing(target) as half_made:
            with writable(out):
                half_made.mkdir()
            yield half_made

    def _written_before(self, folder: Path) -> dict[str, str] | None:
        """The files that the manifest lists here, or that of a killed command which was moving its files here."""
        found: dict[str, str] | None = None
        for place in (*folder.glob(f"{_NEW}.*{PARTIAL}"), folder):
            if place == folder or partial_of(place.name) == _NEW:
                with contextlib.suppress(OSError, ValueError, KeyError):
                    listed = unsealed(read_json(place / self.manifest))["sha256"]
                    found = {**(found or {}), **listed}
        return found

    def seal(self, folder: Path, manifest: dict[str, Any]) -> None:
        """Writes the manifest with the sha256 of every other file."""
        text = sealed_text(folder, manifest, files_below(folder))
        (folder / self.manifest).write_text(text, encoding="utf-8")

    def read(self, path: Path) -> dict[str, Any]:
        try:
            return read_sealed(path / self.manifest)
        except FileNotFoundError:
            why = f"(no {self.manifest}); make one with {self.command}."
        except (OSError, ValueError):
            why = f"(its {self.manifest} is damaged); make it with {self.command}."
        raise UserError(f"{str(path)!r} is not a {self.kind} {why}")

    def checked_file(self, path: Path, manifest: dict[str, Any], name: str) -> Path:
        """Path of a file of a finished folder; a damaged one is refused."""
        wrong = damage(path, {name: {"sha256": manifest.get("sha256", {}).get(name)}})
        if wrong is not None:
            raise Damaged(
                f"The {self.kind} {str(path)!r} is damaged: {wrong}. The command that makes it again is named by: "
                f"anchorscope verify {shlex.quote(str(path))}"
            )
        return path / name
