"""Checks every listed file of a folder of ours against size and sha256, and reports unlisted ones.

A run's list is its index or, if that is lost, its manifest. Comparisons and detectors have a manifest with the hash of
every file; a bundle vouches for itself. Folders of ours inside are checked too. Nothing is written.
"""

import contextlib
import os
import shlex
import time
from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Any

from anchorscope.artefacts.run_folder import (
    OtherVersion,
    index_in,
    is_run,
    read_index,
    read_manifest,
    rerun_command,
)
from anchorscope.artefacts.sealed_folder import (
    COMPARISON,
    DETECTORS,
    INDEX,
    MANIFEST,
    MARKERS,
    RUN,
    STUDY,
    FileFacts,
    kind_of,
    only_hashes,
    read_sealed,
    wrong_with,
)
from anchorscope.errors import UserError
from anchorscope.files import LOCK, partial_of, read_regular
from anchorscope.progress import Progress, Silent

BUNDLE = "detector"
_JSON, _WEIGHTS = "detector.json", "weights.safetensors"
_THREADS, _AGAIN, _NAMED = 4, 3, 5
_MAKERS = {COMPARISON: "compare", DETECTORS: "detect", STUDY: "study run"}


def _maker_of(marker: str) -> str:
    """The command that writes a list."""
    name = Path(marker).name
    return "run" if name == INDEX else _MAKERS[MARKERS[name]]


RESULT = "result"
"""The part of a file that belongs to no step."""


@dataclass(frozen=True)
class Problem:
    file: str
    wrong: str
    """In words that follow its name."""
    part: str = RESULT
    """What it belongs to: `result`, or a step's name."""


@dataclass(frozen=True)
class Verified:
    path: Path
    kind: str
    """`run`, `comparison`, `study`, `detectors` or `detector`."""
    finished: bool
    files: int
    size: int
    seconds: float
    problems: tuple[Problem, ...] = ()
    unlisted: tuple[str, ...] = ()
    """The user's own files, which are never touched."""
    commands: tuple[str, ...] = ()
    """What makes damaged files again."""

    @property
    def whole(self) -> bool:
        return not self.problems

    @property
    def answer(self) -> str:
        checked = f"{self.size / 1e6:,.1f} MB checked in {self.seconds:.1f} s"
        if self.whole:
            so_far = "" if self.finished else " so far, the run is not finished"
            return f"whole{so_far}: {self.files:,} files, {checked}"
        return f"damaged: {len(self.problems):,} of {self.files:,} files, {checked}"

    def lines(self) -> Iterator[str]:
        """The answer, then every damaged file, then unlisted ones."""
        yield f"{self.path}: {self.answer}"
        for problem in self.problems:
            yield f"  {problem.file} {problem.wrong} ({problem.part})"
        if self.unlisted:
            named = ", ".join(self.unlisted[:_NAMED]) + (
                " …" if len(self.unlisted) > _NAMED else ""
            )
            yield f"  not listed, and never touched: {len(self.unlisted):,} ({named})"

    def record(self) -> dict[str, Any]:
        return {
            "folder": str(self.path),
            "kind": self.kind,
            "whole": self.whole,
            "finished": self.finished,
            "files": self.files,
            "bytes": self.size,
            "seconds": round(self.seconds, 3),
            "damaged": [vars(problem) for problem in self.problems],
            "unlisted": list(self.unlisted),
            "commands": list(self.commands),
        }


@dataclass
class _Listing:
    kind: str
    finished: bool = True
    files: dict[str, tuple[FileFacts, str]] = field(default_factory=dict)
    markers: set[str] = field(default_factory=set)
    """Our files that no list names: the list itself, the lock, files being written."""
    problems: list[Problem] = field(default_factory=list)
    command: str = ""
    """What makes damaged files again."""

    def add(self, files: Mapping[str, FileFacts], part: str = RESULT) -> None:
        self.files |= {name: (facts, part) for name, facts in files.items()}


def verify(path: str | Path, progress: Progress | None = None) -> Verified:
    """Checks every file of a run, comparison, detectors or a bundle, and of folders inside."""
    folder, listener = Path(path), progress or Silent()
    if not folder.is_dir() or _kind_of_folder(folder) is None:
        reason = (
            "there is no such folder"
            if not folder.exists()
            else "it holds no index.json and no manifest"
        )
        raise UserError(
            f"{str(folder)!r} is no folder of anchorscope's ({reason}); name a run, a comparison, a study, "
            f"detectors or a bundle."
        )
    for _ in range(_AGAIN):
        before = _index_bytes(folder)
        verified = _verify(folder, listener)
        # no run at work wrote in the meantime
        if verified.whole or _index_bytes(folder) == before:
            break
    return verified


def _verify(folder: Path, progress: Progress) -> Verified:
    began, listing = time.monotonic(), _list_files(folder)
    problems, size = _check(folder, listing.files, progress)
    problems = [*listing.problems, *problems]
    commands = [listing.command] if problems else []
    unlisted, inner_folders, lost = _find_unlisted(folder, listing)
    problems += lost
    commands += [f"anchorscope {_maker_of(problem.file)}" for problem in lost]
    listed = {problem.file for problem in (*listing.problems, *lost)}
    n_files = len(listing.files) + len(listed)
    for name in inner_folders:
        inner, below = _verify(folder / name, progress), f"{name}/"
        problems += [
            replace(problem, file=below + problem.file) for problem in inner.problems
        ]
        commands += inner.commands
        size, n_files = size + inner.size, n_files + inner.files
        unlisted += [below + file for file in inner.unlisted]
    seconds, commands = time.monotonic() - began, list(dict.fromkeys(commands))
    files = (tuple(problems), tuple(unlisted), tuple(commands))
    return Verified(
        folder, listing.kind, listing.finished, n_files, size, seconds, *files
    )


def _check(
    folder: Path, files: Mapping[str, tuple[FileFacts, str]], progress: Progress
) -> tuple[list[Problem], int]:
    """Damaged files, and how many bytes were read."""
    progress.start(f"check {folder}", len(files))
    problems, size = list[Problem](), 0
    with ThreadPoolExecutor(_THREADS) as threads:
        checked = threads.map(
            lambda name: wrong_with(folder / name, files[name][0]), files
        )
        for name, wrong in zip(files, checked, strict=True):
            if wrong is None:
                size += (folder / name).stat().st_size
            else:
                problems.append(Problem(name, wrong, files[name][1]))
            progress.advance(1)
    progress.finish()
    return problems, size


def _kind_of_folder(folder: Path) -> str | None:
    return kind_of(folder) or (
        BUNDLE if (folder / _JSON).is_file() and (folder / _WEIGHTS).is_file() else None
    )


def _list_files(folder: Path) -> _Listing:
    kind = _kind_of_folder(folder)
    if kind == RUN:
        return _list_run(folder)
    return (
        _list_bundle(folder) if kind == BUNDLE else _list_by_manifest(folder, str(kind))
    )


def _list_run(folder: Path) -> _Listing:
    """By the index; without one, by the manifest, which has the results and the final index."""
    listing = _Listing(RUN, markers={INDEX, LOCK}, command=rerun_command(folder))
    run = manifest = unusable = None
    try:
        manifest = read_manifest(folder) if (folder / MANIFEST).is_file() else None
    except UserError as error:
        unusable = Problem(MANIFEST, f"cannot be used: {error}")
    try:
        run = read_index(folder) if is_run(folder) else None
        if run is None:
            listing.problems.append(Problem(INDEX, "is missing"))
    except UserError as error:
        # an older run is checked by its manifest
        if manifest is None or not isinstance(error, OtherVersion):
            listing.problems.append(Problem(INDEX, f"cannot be used: {error}"))
    if run is not None:
        listing.finished = MANIFEST in run.results
        listing.markers |= {*run.arriving, *run.leaving}
    elif manifest is not None:
        run = index_in(folder, manifest)
        run.results = only_hashes(manifest["sha256"])
        listing.markers.add(MANIFEST)
    else:
        listing.finished = False
        listing.problems += [unusable] if unusable else []
        return listing
    for name, record in run.steps.items():
        listing.add(record.files, f"step {name}")
    listing.add(run.results)
    return listing


def _list_by_manifest(folder: Path, kind: str) -> _Listing:
    (name,) = (marker for marker, marked in MARKERS.items() if marked == kind)
    markers = {name, LOCK} if kind == STUDY else {name}
    listing = _Listing(kind, markers=markers, command=f"anchorscope {_MAKERS[kind]}")
    try:
        manifest = read_sealed(folder / name)
    except (OSError, ValueError):
        listing.problems.append(Problem(name, "is damaged"))
        return listing
    # a quote that is not closed; a command that is no text
    with contextlib.suppress(ValueError, AttributeError):
        words = shlex.split(manifest.get("command") or "")
        if words[:1] == ["anchorscope"]:
            # every word quoted: the folder may come from anybody
            listing.command = shlex.join(words)
    hashes = manifest.get("sha256", {})
    listing.add(
        only_hashes(
            {file: hashes[file] for file in hashes if file not in listing.markers}
        )
    )
    return listing


def _list_bundle(folder: Path) -> _Listing:
    from anchorscope.detectors.bundle import read_bundle  # only here: it brings torch

    listing = _Listing(BUNDLE, markers={_JSON, _WEIGHTS}, command="anchorscope detect")
    try:
        read_bundle(folder)
    except UserError as error:
        listing.problems.append(
            Problem(_JSON, f"or {_WEIGHTS} cannot be used: {error}")
        )
    return listing


_TELLTALE = {
    "detection.json": {"detectors.csv", "differences.csv"},
    INDEX: {"recipe.toml", "items.parquet"},
    "comparison.json": {"observations.json", "probe_scores.csv"},
}
"""Files that lie beside the list of their folder; the first that are there decide."""


def _lost_list(names: Collection[str]) -> str | None:
    """The list that has gone from a folder of these files; None if it isn't one of ours."""
    found = (lost for lost, beside in _TELLTALE.items() if beside <= set(names))
    return next(found, None)


def _find_unlisted(
    folder: Path, listing: _Listing
) -> tuple[list[str], list[str], list[Problem]]:
    """Files that aren't listed, folders of ours that hold such, and folders of ours whose own list is missing.

    Half-made folders of a run at work are left out.
    """
    unlisted: list[str] = []
    inner: list[str] = []
    lost: list[Problem] = []
    for above, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if partial_of(name) is None)
        links = [name for name in folders if (Path(above) / name).is_symlink()]
        where = Path(above).relative_to(folder)
        paths = [(where / name).as_posix() for name in sorted([*names, *links])]
        new = [
            path
            for path in paths
            if path not in listing.files
            and path not in listing.markers
            and partial_of(PurePosixPath(path).name) is None
        ]
        if new and where.parts and _kind_of_folder(Path(above)) is not None:
            inner.append(where.as_posix())
            folders.clear()
            continue
        unlisted += new
        missing = _lost_list(names) if new and where.parts else None
        if missing is not None:
            lost.append(Problem((where / missing).as_posix(), "is missing"))
    return unlisted, inner, lost


def _index_bytes(folder: Path) -> bytes | None:
    try:
        return read_regular(folder / INDEX)
    except OSError:
        return None
