"""The one way in which files are written: whole or not at all, and still there after a power cut.

A file is written beside its place, brought to the disk (fsync), renamed, and the folder's entry is brought to the disk
as well. A name therefore always stands for a complete file.
"""

import contextlib
import errno
import hashlib
import json
import os
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from anchorscope.file_hashes import sha256 as sha256
from anchorscope.system_errors import naming

PARTIAL = ".anchorscope-partial"
"""Ending of what is still being written: nobody else has files of such names, so that what a killed process left of
them can be removed."""


@contextlib.contextmanager
def replacing(place: Path) -> Iterator[Path]:
    """A path to write a file or a folder to; it takes the place of `place` only when all went well."""
    half_made = place.with_name(f"{place.name}{PARTIAL}")
    _remove(half_made)
    try:
        with naming(place):
            yield half_made
        sync_tree(half_made)
        if place.is_dir() and not place.is_symlink():
            shutil.rmtree(place)
        os.replace(half_made, place)
        sync_folder(place.parent)
    finally:
        with contextlib.suppress(OSError):
            _remove(half_made)


@contextlib.contextmanager
def folder_beside(place: Path) -> Iterator[Path]:
    """An empty folder to write into, named after `place`; it is gone afterwards, with whatever is still in it."""
    half_made = place.with_name(f"{place.name}{PARTIAL}")
    _remove(half_made)
    make_folder(half_made)
    try:
        with naming(place):
            yield half_made
    finally:
        with contextlib.suppress(OSError):
            _remove(half_made)


def move_files(made: Path, place: Path, names: Iterable[str]) -> None:
    """Moves files, which are on the disk already, to the same names in another folder; its other files stay."""
    folders = {(place / name).parent for name in names}
    for folder in folders:
        make_folder(folder)
    for name in names:
        os.replace(made / name, place / name)
    for folder in folders:
        sync_folder(folder)


def move_aside(place: Path) -> Path:
    """Gives a file that is not ours, or was changed, another name beside its place; that name."""
    aside = next(
        one
        for number in range(1, 10_000)
        if not os.path.lexists(one := place.with_name(f"{place.name}.changed-{number}"))
    )
    os.replace(place, aside)
    sync_folder(place.parent)
    return aside


def remove_files(folder: Path, names: Iterable[str]) -> None:
    """Removes files of a folder, and those below it that are empty then; nothing outside it, whatever links say."""
    home = os.path.realpath(folder)
    for name in names:
        place = folder / name
        if not Path(os.path.realpath(place.parent)).is_relative_to(home) or (place.is_dir() and not place.is_symlink()):
            continue  # a folder in its place is none of ours
        with contextlib.suppress(NotADirectoryError):  # a file stands where its folder was
            place.unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # until one is not empty
            for below in place.parents:
                if below == folder:
                    break
                below.rmdir()


def files_below(folder: Path) -> list[str]:
    """The files of a folder and those below it, by their relative paths, written with `/`."""
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def write_json(place: Path, record: Any, indent: int | None = 1) -> None:
    """A JSON file; NaN is refused, since JSON has none. Without an indent it is written several times as fast."""
    with replacing(place) as half_made:
        half_made.write_text(json.dumps(record, indent=indent, allow_nan=False, ensure_ascii=False), encoding="utf-8")


def make_folder(path: Path) -> None:
    """A folder and those above it, there after a power cut."""
    if not path.is_dir():
        make_folder(path.parent)
        with contextlib.suppress(FileExistsError):
            path.mkdir()
        if not path.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path))
        sync_folder(path.parent)


def sync_tree(path: Path) -> None:
    """Brings a file, or a folder with all its members, to the disk."""
    if not path.is_dir():
        with path.open("rb") as written:
            os.fsync(written.fileno())
        return
    for member in path.iterdir():
        sync_tree(member)
    sync_folder(path)


def sync_folder(path: Path) -> None:
    """Brings the names in a folder to the disk; systems that cannot open a folder do it by themselves."""
    with contextlib.suppress(OSError):
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def canonical_hash(record: Any) -> str:
    """Hash of a record of plain values: the same for equal records, whatever the order of their keys."""
    return hashlib.sha256(json.dumps(record, sort_keys=True, allow_nan=False).encode()).hexdigest()


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
